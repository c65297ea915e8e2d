"""What TensorFlow does while it is profiled, in a process that the template forks."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from jobs.profiler import Profile
from jobs.profiler.window import OPERATIONS


def _calls(events):
    return dict(Counter(OPERATIONS[code] for code in events["operation"].tolist()))


def five_thousand(_argument):
    """Read 5,000 files twice, eight at a time."""
    import tensorflow as tf  # noqa: PLC0415

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
    import tensorflow as tf  # noqa: PLC0415

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
