"""What the POSIX profiler costs: a warm pass over small files, read by TensorFlow and by plain calls, with and without.

Passes of all modes take turns in one process, and each is held against its neighbour without hooks, which comes first
in every other pair. Beside it strace and dftracer, where they are installed, on the same pass, in processes of their
own.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from jobs.judging.intervals import CONFIDENCE, interval_of_median
from tests.bench.bench import Figure, said

SIZES = {
    "smoke": {"files": 40, "turns": 1, "events": 1000, "pass_s": 0.0},
    "full": {"files": 5000, "turns": 20, "events": 1_000_000, "pass_s": 3.0},
}
_CALLS = 4  # of a file: open, pread, pread of nothing, close
_GOALS = {"idle": "at most 0.5", "counters": "at most 3", "trace": "at most 3"}
_ENDS = ("", f", {CONFIDENCE:.0%} interval from", f", {CONFIDENCE:.0%} interval to")
_GOALS_US = {"idle": "", "counters": "at most 0.2", "trace": "at most 0.5"}


def measure(files: int, turns: int, events: int, pass_s: float) -> Iterator[Figure]:
    """Measure in processes of their own; a pass of TensorFlow has all files so often that it takes about `pass_s`."""
    with tempfile.TemporaryDirectory() as room:
        folder = f"{room}/files"
        Path(folder).mkdir()
        for place in range(files):
            Path(folder, f"{place:05}").write_bytes(bytes(20_000 + 137 * place % 100_000))
        words = [sys.executable, "-m", "tests.bench.profiler", folder, str(turns), str(events), str(pass_s)]
        found = json.loads(said(words).splitlines()[-1])
        yield Figure("attach to a process with TensorFlow", found["attach_ms"], "ms", "at most 50")
        yield Figure("open a window, attached", found["start_ms"], "ms", "at most 1")
        for mode, goal in _GOALS.items():
            what = f"{mode}: wall of a pass of TensorFlow, 8 threads"
            for name, value in zip(_ENDS, found[f"{mode}_wall"], strict=False):
                yield Figure(what + name, value, "% more", "" if name else goal)
        for mode, goal in _GOALS_US.items():
            yield Figure(f"{mode}: CPU a call, a plain loop", found[f"{mode}_us"], "µs", goal)
        yield Figure(f"stop and count {events:,} events", found["stop_s"], "s", "at most 2")
        for name, before in _others(folder).items() if turns > 1 else ():
            plain, traced = (
                json.loads(said([*each, *words[:4], "0", "0", "0"]).splitlines()[-1])["pass_s"] for each in ([], before)
            )
            yield Figure(f"{name}: wall of the same pass", 100 * (traced / plain - 1), "% more")


def _others(folder: str) -> dict[str, list[str]]:
    """Return what stands before a command to trace it, by the name of who does it, of those that are installed."""
    found = {"strace": ["strace", "-f", "-qq", "-o", "/dev/null"]} if shutil.which("strace") else {}
    if package := find_spec("dftracer"):
        (library,) = Path(str(package.origin)).parent.glob("lib64/libdftracer_preload.so")
        asked = {"ENABLE": "1", "INIT": "PRELOAD", "DATA_DIR": folder, "LOG_FILE": f"{folder}.dftracer"}
        found["dftracer"] = ["env", f"LD_PRELOAD={library}", *(f"DFTRACER_{key}={it}" for key, it in asked.items())]
    return found


def _read_by_tensorflow(paths: Sequence[str], times: int = 1) -> Callable[[], float]:
    import tensorflow as tf  # noqa: PLC0415

    names = tf.data.Dataset.from_tensor_slices(list(paths)).repeat(times)
    data = names.map(tf.io.read_file, num_parallel_calls=8).batch(64)

    def wall_s() -> float:
        before = time.perf_counter()
        for _ in data:
            pass
        return time.perf_counter() - before

    return wall_s


def _read_plainly(paths: Sequence[str]) -> Callable[[], float]:
    def cpu_s() -> float:
        before = time.process_time()
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY)
            os.pread(descriptor, 4096, 0)
            os.pread(descriptor, 4096, 1 << 20)
            os.close(descriptor)
        return time.process_time() - before

    return cpu_s


def _in_turns(run: Callable[[], float], turns: int) -> dict[str, list[tuple[float, float]]]:
    """Return of each mode what its passes took, each beside what one took without hooks, before it or behind."""
    from jobs.profiler import Profile, attach, detach  # noqa: PLC0415

    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in _GOALS}
    run()
    for turn in range(turns):
        for mode, pairs in found.items():
            took = {}
            for hooked in (turn % 2 == 1, turn % 2 == 0):
                (attach if hooked else detach)()
                with nullcontext() if mode == "idle" or not hooked else Profile(mode):
                    took[hooked] = run()
            pairs.append((took[True], took[False]))
    detach()
    return found


def _measured(folder: str, turns: int, events: int, pass_s: float) -> dict[str, Any]:
    paths = sorted(str(path) for path in Path(folder).iterdir())
    read = _read_by_tensorflow(paths)
    read()
    if not turns:
        return {"pass_s": min(read() for _ in range(3))}
    from jobs.profiler import Profile, attach, build, detach  # noqa: PLC0415

    build.build_library()
    answer: dict[str, Any] = {"attach_ms": min(_timed(attach, after=detach) for _ in range(5)) * 1e3}
    attach()
    windows = [Profile() for _ in range(5)]
    answer["start_ms"] = min(_timed(each.start, after=each.stop) for each in windows) * 1e3
    passes = _read_by_tensorflow(paths, ceil(pass_s / read()) or 1)
    for mode, pairs in _in_turns(passes, turns).items():
        more = [100 * (with_ / without - 1) for with_, without in pairs]
        ends = interval_of_median(more)
        answer[f"{mode}_wall"] = [statistics.median(more), *((ends.low, ends.high) if ends else ())]
    for mode, pairs in _in_turns(_read_plainly(paths), 5 * turns).items():
        cost_s = statistics.median(with_ - without for with_, without in pairs)
        answer[f"{mode}_us"] = 1e6 * cost_s / (_CALLS * len(paths))
    full = Profile(events=2 * events)
    full.start()
    descriptor = os.open(paths[0], os.O_RDONLY)
    for _ in range(events):
        os.pread(descriptor, 1, 0)
    os.close(descriptor)
    answer["stop_s"] = _timed(full.stop)
    return answer


def _timed(run: Callable[[], object], after: Callable[[], object] = list) -> float:
    before = time.perf_counter()
    run()
    took = time.perf_counter() - before
    after()
    return took


if __name__ == "__main__":
    print(json.dumps(_measured(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
