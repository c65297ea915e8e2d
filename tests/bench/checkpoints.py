"""How long does training stand still for its checkpoints? Ours and others', on storages as slow as Table I's.

The throttled devices lie in a folder in memory (10 GB): a virtual machine's disk is slower than Optane. A step changes
every variable and takes a second. What is saved is as large as the paper's network with Adam's moments (704 MB), and as
random. Takes about ten minutes.

A virtual machine gives idle memory back to its host, and the page cache of each snapshot then waits for new pages: up
to 2 s here, whatever the storage, and nothing on a machine that has its memory. So `warm_gb` are touched before each
snapshot, while no clock runs (0: memory is left as it is).

Each way of saving is a process of its own:

    hdd                straight to the hard disk, synchronised, hashed
    hdd async          the same in the background
    burst buffer       to Optane, drained to the hard disk
    burst buffer async the same in the background
    tensorflow async   tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True), to the hard disk
    orbax async        orbax.checkpoint.AsyncCheckpointer, to the hard disk; `orbax` is an interpreter that has it

The figures are how long training stood still for a snapshot (median), how long the program waited at its end for all of
them, and how many times less than `hdd` training stood still in all. What the next step took longer is counted too: a
copy that shares its memory with the variables is made there. TensorFlow and Orbax synchronise nothing: what they call
saved may be in memory.
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.bench import Figure

NEEDS = "root"
SIZES = {
    "smoke": {"snapshots": 1, "every": 1, "warm_gb": 0.0, "width": 0.02, "step_s": 0.1, "size_gb": 0.2, "orbax": ""},
    "full": {"snapshots": 3, "every": 10, "warm_gb": 4.0, "width": 1.0, "step_s": 1.0, "size_gb": 5.0, "orbax": ""},
}
SMALL = 1e-6
GB = 10**9
OURS = ("hdd", "hdd async", "burst buffer", "burst buffer async")
TENSORFLOW, ORBAX = "tensorflow async", "orbax async"
GOALS = {"burst buffer": "at least 2.6, the paper's", "hdd async": "at least 10", "burst buffer async": "at least 10"}
IN_MEMORY = "/dev/shm"  # noqa: S108 - in memory, as the docstring says


def measure(size_gb: float, orbax: str, **of_one: float) -> Iterator[Figure]:
    """Measure every way of saving, one after the other."""
    from tests.bench.bench import Figure, said  # noqa: PLC0415 - Orbax's interpreter does without
    from tests.bench.throttled import HDD, OPTANE, throttled  # noqa: PLC0415

    stood = {}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfio-checkpoints-", dir=IN_MEMORY)))
        speeds = {"optane": OPTANE, "hdd": HDD}
        roots = [stack.enter_context(throttled(place / name, speed, size_gb)) for name, speed in speeds.items()]
        for way in (*OURS, TENSORFLOW, *([ORBAX] if orbax else [])):
            os.sync()
            asked = {**of_one, "way": way, "folders": [str(root / way.replace(" ", "-")) for root in roots]}
            answer = said([orbax if way == ORBAX else sys.executable, __file__, json.dumps(asked)])
            found = json.loads(answer.splitlines()[-1])
            stood[way] = sum(found["stood_s"])
            yield Figure(f"{way}: a snapshot", statistics.median(found["stood_s"]), "s")
            yield Figure(f"{way}: at the end", found["end_s"], "s")
            if way != "hdd":
                yield Figure(f"{way}: less than hdd", stood["hdd"] / stood[way], "times", GOALS.get(way, ""))
            subprocess.run(["rm", "-rf", *asked["folders"]], check=True)


def _one(asked: dict[str, Any]) -> dict[str, Any]:
    """Train and save in one way; returns the seconds that training stood still, and those of the end."""
    saved, changed = [], []
    every, last = asked["every"], asked["snapshots"] * asked["every"]
    with ExitStack() as stack:
        way = stack.enter_context(closing(_Way(asked["way"], *asked["folders"], every, asked["width"])))
        step, save, end = way.begin()
        for number in range(1, last + every + 1):
            time.sleep(asked["step_s"])
            due = number % every == 0 and number <= last
            if due:
                _touch(round(asked["warm_gb"] * GB))
            changed.append(_timed(step))
            if due:
                saved.append((number, _timed(save, number)))
        usual = statistics.median(changed)
        stood = [took + max(0.0, changed[number] - usual) for number, took in saved]
        return {"stood_s": stood, "end_s": _timed(end)}


def _touch(size: int) -> None:
    """Write to so many bytes of memory and free them: the page cache gets them next."""
    if size:
        with mmap.mmap(-1, size) as memory:
            for place in range(0, size, mmap.PAGESIZE):
                memory[place] = 1


def _timed(work: Callable[..., object], *words: object) -> float:
    began = time.perf_counter()
    work(*words)
    return time.perf_counter() - began


class _Way:
    """One way of saving: what a step changes, what saves it, and what waits at the end."""

    def __init__(self, way: str, fast: str, slow: str, every: int, width: float) -> None:
        self._way, self._fast, self._slow, self._every, self._width = way, fast, slow, every, width
        self._open: Any = None

    def begin(self) -> tuple[Callable[[], object], Callable[[int], object], Callable[[], object]]:
        if self._way == TENSORFLOW:
            return self._tensorflow()
        return self._orbax() if self._way == ORBAX else self._ours()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        if "burst" in self._way:  # its drainer ends when all is drained; until then the storages are in use
            from jobs.checkpoints import lease  # noqa: PLC0415
            from jobs.store.folder import Folder  # noqa: PLC0415

            with lease.folder_lock(Folder(Path(self._fast)), "drainer"):
                pass

    def _ours(self) -> tuple[Callable[[], object], Callable[[int], object], Callable[[], object]]:
        from jobs.checkpoints.buffer import BurstBuffer, DirectTarget  # noqa: PLC0415
        from jobs.checkpoints.saver import BackgroundSaver, Saver  # noqa: PLC0415

        self._open = BurstBuffer(self._fast, self._slow) if "burst" in self._way else DirectTarget(self._slow)
        state = _variables(self._width)
        if "async" in self._way:
            saver: Saver = BackgroundSaver(state, self._open, self._every, in_flight=1)
        else:
            saver = Saver(state, self._open, self._every)
        return _change(state), saver.after, saver.finish

    def _tensorflow(self) -> tuple[Callable[[], object], Callable[[int], object], Callable[[], object]]:
        import tensorflow as tf  # noqa: PLC0415

        state = _variables(self._width)
        checkpoint = tf.train.Checkpoint(**state)
        manager = tf.train.CheckpointManager(checkpoint, self._slow, max_to_keep=5)
        options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
        return _change(state), lambda step: manager.save(checkpoint_number=step, options=options), checkpoint.sync

    def _orbax(self) -> tuple[Callable[[], object], Callable[[int], object], Callable[[], object]]:
        import numpy as np  # noqa: PLC0415
        import orbax.checkpoint as orbax  # noqa: PLC0415

        self._open = orbax.AsyncCheckpointer(orbax.PyTreeCheckpointHandler())
        arrays = _arrays(self._width)
        Path(self._slow).mkdir()

        def change() -> None:
            for array in arrays.values():
                np.add(array, SMALL, out=array)

        return change, lambda step: self._open.save(Path(self._slow, str(step)), arrays), self._open.wait_until_finished


def _arrays(width: float) -> dict[str, Any]:
    """Make what the paper's network and Adam have: values, first and second moments."""
    import numpy as np  # noqa: PLC0415

    sys.path.insert(0, str(Path(__file__).parents[2]))  # Orbax's interpreter does not know us
    from jobs.benchmarks.alexnet_network import kernel_shapes  # noqa: PLC0415

    rng = np.random.default_rng(0)
    shapes = [shape for kernel in kernel_shapes(224, 102, width) for shape in (kernel, kernel[-1:])]
    return {
        f"{kind}_{number}": rng.standard_normal(shape, dtype=np.float32)
        for kind in ("values", "means", "squares")
        for number, shape in enumerate(shapes)
    }


def _change(state: dict[str, Any]) -> Callable[[], object]:
    """Return what changes every variable in place, as a step of training does."""
    import tensorflow as tf  # noqa: PLC0415

    def change() -> None:
        for one in state.values():
            one.assign_add(tf.fill(one.shape, SMALL))

    made: Callable[[], object] = tf.function(change, autograph=False)
    made()
    return made


def _variables(width: float) -> dict[str, Any]:
    import tensorflow as tf  # noqa: PLC0415

    return {name: tf.Variable(array) for name, array in _arrays(width).items()}


if __name__ == "__main__":  # one way, in whatever interpreter it needs
    print(json.dumps(_one(json.loads(sys.argv[1]))))
