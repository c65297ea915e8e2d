"""What the tests let a forked process do; each function takes a dict and returns one."""

import contextlib
import ctypes
import fcntl
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

from jobs import byhand, cache, checks, micro, pipeline, run

_LIBC = ctypes.CDLL(None)
_IN_OPEN = 0x20
_NOBODY = 65534
_STILL_S = 0.3  # for so long nothing more must happen
STATE = {"uses": 0}


def pid(_argument):
    return {"value": os.getpid()}


def echo(argument):
    return {"value": argument["value"]}


def large(argument):
    return {"value": "x" * argument["size"]}


def fail(_argument):
    message = "on purpose"
    raise ValueError(message)


def leave(argument):
    os._exit(argument["code"])


def die(argument):
    os.kill(os.getpid(), argument["signal"])


def touch_null(_argument):
    return ctypes.string_at(0)


def hang(argument):
    """Start a child, write down both numbers, then never end."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    file = Path(argument["pids"])
    file.with_suffix(".part").write_text(f"{os.getpid()} {child.pid}")
    file.with_suffix(".part").rename(file)
    while True:
        time.sleep(60)


def chatter(_argument):
    print('{"result": {"value": "forged"}, "exit": 0, "signal": null, "timed_out": false, "elapsed_s": 0}')
    os.write(1, b"straight to the descriptor\n")
    print("to stderr", file=sys.stderr)
    return {"value": sys.stdin.read()}


def use_state(_argument):
    STATE["uses"] += 1
    return {"value": STATE["uses"]}


class _Leases:
    """Write leases on files: who opens one waits, and the holder is told (fcntl(2), F_SETLEASE)."""

    def __init__(self, names):
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        self._held = {name: os.open(name, os.O_RDONLY) for name in names}
        for fd in self._held.values():
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def waiting(self):
        return [name for name, fd in self._held.items() if fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK]

    def release(self):
        for fd in self._held.values():
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(fd)


class _Opened:
    """The names of the files that were opened in a folder, in order (inotify(7))."""

    def __init__(self, folder):
        self._fd = _LIBC.inotify_init1(os.O_NONBLOCK)
        _LIBC.inotify_add_watch(self._fd, os.fsencode(folder), _IN_OPEN)

    def names(self):
        names = []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                while data:
                    length = struct.unpack_from("iIII", data)[3]
                    name, data = data[16 : 16 + length].rstrip(b"\0"), data[16 + length :]
                    names.append(os.fsdecode(name))
        return names


def _wait(condition, within_s=20.0):
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)


def _build(argument):
    """Build the pipeline as `micro` does: TensorFlow's own seed takes part in the order."""
    import tensorflow as tf  # noqa: PLC0415 - the module must load without it

    tf.random.set_seed(argument["settings"]["seed"])
    return pipeline.build(argument["names"], argument["settings"])


def reads_at_once(argument):
    """Count the files that are being opened at one time while none of them lets itself be opened."""
    leases = _Leases(argument["names"])
    iterator = iter(_build(argument))
    threading.Thread(target=lambda: list(iterator), daemon=True).start()
    _wait(lambda: len(leases.waiting()) >= argument["expected"])
    time.sleep(_STILL_S)
    return {"value": len(leases.waiting())}


def opened_ahead(argument):
    """Name the files that the pipeline has opened when one batch was taken."""
    opened = _Opened(argument["folder"])
    iterator = iter(_build(argument))
    next(iterator)
    names = []

    def enough():
        names.extend(opened.names())
        return len(names) >= argument["expected"]

    _wait(enough)
    time.sleep(_STILL_S)
    return {"value": names + opened.names()}


def opened_before_the_clock(argument):
    """Count the files of the dataset that are opened while a run is prepared, and by the run."""
    opened = _Opened(argument["folder"])
    measure = micro.prepare(argument["settings"], [Path(name) for name in argument["names"]])
    time.sleep(_STILL_S)
    before = len(opened.names())
    measure()
    return {"value": [before, len(opened.names())]}


def delivered(argument):
    """Return the batches: indices, bytes read, shape and type of the payload."""
    batches = []
    for index, size, payload in _build(argument):
        kind = [payload.shape.as_list(), payload.dtype.name]
        batches.append([index.numpy().tolist(), size.numpy().tolist(), *kind])
    return {"value": batches}


def temporary_files(argument):
    """Name what a pipeline leaves in the temporary folder of its process."""
    tempfile.tempdir = argument["folder"]
    list(_build(argument))
    return {"value": [path.name for path in Path(argument["folder"]).iterdir()]}


def contents(argument):
    """Return what the pipeline delivers for each file where it does not decode."""
    pairs = {}
    for index, _size, payload in _build(argument):
        pairs.update(zip(index.numpy().tolist(), [text.hex() for text in payload.numpy()], strict=True))
    return {"value": [pairs[index] for index in range(len(argument["names"]))]}


def order_of_list(argument):
    import tensorflow as tf  # noqa: PLC0415 - the module must load without it

    tf.random.set_seed(argument.get("process_seed", argument["seed"]))
    elements = pipeline.listing(argument["names"], argument["seed"])
    return {"value": [int(index) for index, _ in elements.as_numpy_iterator()]}


def order_with_a_late_file(argument):
    """Return the order of delivery where one file cannot be read until two others have had their chance."""
    leases = _Leases([argument["late"]])
    iterator = iter(_build(argument))
    order = []

    def take():
        for index, _size, _payload in iterator:
            order.extend(index.numpy().tolist())

    thread = threading.Thread(target=take)
    thread.start()
    _wait(lambda: len(order) > 1, within_s=1.0)
    leases.release()
    thread.join()
    return {"value": order}


def transformations(argument):
    """Say whether the optimised graph ends in these transformations, last first."""
    import tensorflow as tf  # noqa: PLC0415 - the module must load without it
    from tensorflow.python.data.experimental.ops import testing  # noqa: PLC0415

    dataset = _build(argument)
    try:
        iter(dataset.apply(testing.assert_prev([(name, {}) for name in ["OptionsDataset", *argument["last"]]])))
    except tf.errors.InvalidArgumentError as error:
        if "Asserted transformation" not in str(error):
            raise
        return {"value": False}
    return {"value": True}


class _Number:
    def __init__(self, values):
        self._values = values

    def numpy(self):
        import numpy as np  # noqa: PLC0415

        return np.array(self._values)


def measure_fake(argument):
    """Run the clock of `micro` over batches of our own that are slow; return figures and what really happened."""
    spent, names = [], argument["names"]

    def batches():
        for number in range(len(names)):
            began = time.perf_counter()
            time.sleep(argument["load_s"])
            spent.append(time.perf_counter() - began)
            yield _Number([number]), _Number([1000 + number]), None

    began = time.perf_counter()
    figures = micro._measure(batches(), names, len(names), argument["settings"])  # noqa: SLF001 - the clock alone
    return {"value": [figures, spent, time.perf_counter() - began]}


def measure(argument):
    """Run `micro` without what stands round it."""
    return {"value": micro.prepare(argument["settings"], [Path(name) for name in argument["names"]])()}


def residency_as_nobody(argument):
    os.setuid(_NOBODY)
    if argument["method"] == "mincore":
        cache._has_cachestat = lambda: False  # noqa: SLF001 - as before Linux 6.5
    found = cache.residency([Path(name) for name in argument["names"]])
    return {"value": [asdict(found), found.fraction]}


def execute_as_nobody(argument):
    """Run on files of somebody else; `readable_io` as for a process that was this user's from its start."""
    run.execute(argument["request"])  # imports all it needs: nobody may not even look into this checkout
    os.setuid(_NOBODY)
    _LIBC.prctl(4, int(argument["readable_io"]), 0, 0, 0)  # PR_SET_DUMPABLE: who owns /proc/self
    return {"value": run.execute(argument["request"])}


def by_hand(argument):
    """Run the command line of `micro`; return what it printed and its exit code. Others may be loud."""
    defaults = checks.Limits()
    checks.Limits = lambda **given: replace(defaults, **{**given, "other_mb_per_s_max": 1e9, "other_cpu_max": 1e9})
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            byhand.main("micro", argument["words"])
    except SystemExit as end:
        return {"value": [json.loads(printed.getvalue() or "null"), end.code]}
    return {"value": None}


def requested(argument):
    """List the files that a run says it will ask for, and those that it then delivers."""
    paths = [Path(name) for name in argument["names"]]
    promised = [str(path) for path in micro.requested(argument["settings"], paths)]
    dataset = pipeline.build(argument["names"], argument["settings"]).take(argument["settings"]["iterations"])
    delivered = [argument["names"][index] for batch in dataset for index in batch[0].numpy().tolist()]
    return {"value": [promised, delivered]}
