"""What TensorFlow does while it is profiled, in a process that the template forks."""

import contextlib
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from jobs.events.posix_window import OPERATIONS
from jobs.lazy_imports import tf
from jobs.profiler import Profile


def _calls(events):
    return dict(Counter(OPERATIONS[code] for code in events["operation"].tolist()))


def five_thousand(_argument):
    """Read 5,000 files twice, eight at a time."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = np.random.default_rng(1).integers(1, 3000, 5000).tolist()
        paths = [f"{folder}/{place:04}" for place in range(len(sizes))]
        for path, size in zip(paths, sizes, strict=True):
            Path(path).write_bytes(bytes(size))
        data = tf.data.Dataset.from_tensor_slices(paths).repeat(2).map(tf.io.read_file, num_parallel_calls=8).batch(100)
        with Profile(only=[folder]) as profile:
            for _ in data:
                pass
    returned = profile.events["returned"][profile.events["operation"] == OPERATIONS.index("pread")]
    return {
        "value": {
            "calls": _calls(profile.events),
            "empty_reads": int((returned == 0).sum()),
            "bytes": int(returned.sum()),
            "sizes": sum(sizes),
            "files": len(profile.files),
            "kernel_bytes": profile.window.kernel_read_bytes,
            "dropped": profile.dropped,
        }
    }


def _process_wrote():
    return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])


def checkpoint(_argument):
    """Save a variable."""
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(x=tf.Variable(tf.zeros([1000, 100])))
        before = _process_wrote()
        with Profile(only=[folder]) as profile:
            saved.write(f"{folder}/c")
        kernel_bytes = _process_wrote() - before
        sizes = sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file())
    calls = _calls(profile.events)
    written = profile.events["returned"][profile.events["operation"] == OPERATIONS.index("fwrite")].sum()
    seen = {"fopen": calls["fopen"], "fclose": calls["fclose"], "written": int(written), "sizes": sizes}
    return {"value": {**seen, "kernel_bytes": kernel_bytes}}


def three_ways(argument):
    """Profile reads as a block, in a Keras training, and through TensorFlow's server; return the folders of traces."""
    from jobs.profiler import ProfileCallback, TensorFlowProfile, join_tensorflow  # noqa: PLC0415

    data, out = Path(argument["folder"]), Path(argument["out"])
    paths = [str(path) for path in sorted(data.iterdir())]
    reads = tf.data.Dataset.from_tensor_slices(paths).map(tf.io.read_file, num_parallel_calls=4)
    for step in range(2):  # within a second
        with TensorFlowProfile(out / "block", step, only=[data]):
            list(reads)
    images = reads.map(lambda content: (tf.fill((4,), float(0)), tf.cast(tf.strings.length(content), tf.float32)))
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    asked = {"batches": (2, 3), "every": 6, "only": [data]}
    fails = tf.keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: 1 // (3 - batch))
    with contextlib.suppress(ZeroDivisionError):  # its window is ended when the next training begins
        model.fit(images.batch(2), verbose=0, callbacks=[ProfileCallback(out / "failed", **asked), fails])
    model.fit(images.batch(2), epochs=2, verbose=0, callbacks=[ProfileCallback(out / "fit", **asked)])
    join_tensorflow(only=[data])
    with Profile("counters"):  # ours is taken: the trace of TensorFlow's comes all the same, and says so
        _remote(reads, str(out / "taken"))
    _remote(reads, str(out / "remote"))
    return {"value": True}


def _remote(reads, logdir):
    import socket  # noqa: PLC0415
    import threading  # noqa: PLC0415

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    begun, over = threading.Event(), threading.Event()

    def read():
        for _ in reads.repeat():
            begun.set()
            if over.is_set():
                return

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    tf.profiler.experimental.client.trace(f"grpc://127.0.0.1:{port}", logdir, 300)
    over.set()
    reader.join()
