"""One run of a benchmark: make it ready, observe it while its clock runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

from jobs import step_arrays
from jobs.benchmarks import registry
from jobs.benchmarks.benchmark import Benchmark
from jobs.errors import ProgramError
from jobs.model.codes import RunEnd
from jobs.model.request import Request
from jobs.model.results import Run
from jobs.observe.machine_facts import place
from jobs.observe.observer import all_metrics, observed
from jobs.observe.observers import observers
from jobs.ranks import one_machine, rank

_OBSERVERS, _ = observers(), registry.benchmarks()  # imported now: a forked run finds them there


def execute(request: Request) -> Run:
    """Run a benchmark once, here; returns its raw figures, which whoever shows them judges (`jobs.judging.judge`).

    Of one of several ranks it returns the ``end`` where another one has failed, and of a program of the user's where
    that has.
    """
    entered = time.perf_counter()
    benchmark = registry.of(request["settings"])
    try:
        with rank.joined(request) as here:
            run = _measured(benchmark, request)
            if here.size > 1:
                return one_machine.left_out({**run, **place(), "private_caches": int(here.private_caches)}, here)
    except rank.RanksError as error:
        return {"status": "failed", "end": {"code": RunEnd.RANKS_PARTED, "words": error.message}}
    except ProgramError as error:
        return {"status": "failed", "end": {"code": RunEnd.PROGRAM, "words": error.message}}
    overhead_s = time.perf_counter() - entered - run["wall_s"]
    return {**run, "status": "ended", "overhead_s": overhead_s}


def _measured(benchmark: Benchmark, request: Request) -> Run:
    """Do the run and return its raw figures, those of its observers included."""
    rate = benchmark.rate_of(request["settings"]["benchmark"])
    described: dict[str, Any] = {"wall_parts": [*benchmark.wall_parts], "rate": {"key": rate.key, "unit": rate.unit}}
    with benchmark.begin(request) as work:
        watching = [observer(request, work) for observer in _OBSERVERS]
        run = {**described, **work.measure(_until_all_end(observed(watching)))}
        run |= all_metrics(watching)
    file = request.get("steps")
    return cast("Run", step_arrays.put_apart(run, Path(file) if file else None))


@contextmanager
def _until_all_end(watched: AbstractContextManager[Any]) -> Iterator[None]:
    """Observe until the clocks of all ranks have stopped: each then sees all that the others did beside it."""
    with watched:
        yield
        rank.here().end()
