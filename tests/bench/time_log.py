"""What an event of a time log costs: CPU time of all of it, until its block is with the kernel.

Sixteen events a step, each of a file and with its bytes. The log lies in the temporary folder. The figure is the
least of many short turns: what else the machine does can only add to it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.events import TimeLog
from tests.bench.bench import Figure

SIZES = {"smoke": {"steps": 20, "turns": 1}, "full": {"steps": 500, "turns": 200}}
_EVENTS = 16
_FILES = [f"/data/{place:05}.h5" for place in range(_EVENTS)]
_GOAL = "at most 1"


def measure(steps: int, turns: int) -> Iterator[Figure]:
    """Log with blocks and with stamps."""
    ways = {"`with log.event(…)`": _blocks, "`log.add(…)`": _stamps}
    found = {name: [_cost_us(way, steps) for _ in range(turns)] for name, way in ways.items()}
    for name, costs in found.items():
        yield Figure(f"an event, {name}", min(costs), "CPU µs", _GOAL)


def _cost_us(way: Callable[[TimeLog, int], None], steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder, TimeLog(Path(folder, "log")) as log:
        began = time.process_time()
        for step in range(steps):
            log.at("train", 0, step)
            way(log, step)
        log.flush()
        return 1e6 * (time.process_time() - began) / (steps * _EVENTS)


def _blocks(log: TimeLog, step: int) -> None:
    for file in _FILES:
        with log.event("read", file, step):
            pass


def _stamps(log: TimeLog, step: int) -> None:
    for file in _FILES:
        log.add("read", time.monotonic_ns(), file, step)
