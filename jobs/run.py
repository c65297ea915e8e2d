"""Execute one run of a benchmark: prepare the run, start the observers, run the clock, and save the lists per step.

A list with one number per step is too long for a record. Such lists are saved in a file, and the record gets a summary.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from jobs.benchmarks import registry
from jobs.benchmarks.benchmark import Benchmark
from jobs.errors import ProgramError
from jobs.model.codes import RunEnd
from jobs.model.declared import find_declared
from jobs.model.results import Run
from jobs.model.work import RunRequest
from jobs.observe.conditions import place_of_process
from jobs.observe.observer import Observer, collect_metrics, run_observers
from jobs.ranks import rank
from jobs.system import files

_PREFIX = "step_"


def list_observers() -> list[type[Observer]]:
    """Return the observer classes in the order in which observers start.

    Raises TypeError if two observer classes declare the same metric.
    """
    observers: list[type[Observer]] = [
        observer for classes in find_declared("jobs.observe", "OBSERVERS") for observer in classes
    ]
    owners = {key: observer for observer in observers for key in observer.gives}
    for observer in observers:
        for key in observer.gives:
            if owners[key] is not observer:
                raise TypeError(f"{observer.__name__} and {owners[key].__name__} both give {key}")
    return sorted(observers, key=lambda observer: observer.place)


_OBSERVERS, _ = list_observers(), registry.benchmarks()  # a forked run need not import these modules again


def execute(request: RunRequest) -> Run:
    """Run a benchmark once in this process, and return the raw metrics; `jobs.judging.judge` judges the metrics later.

    If another rank or the user's program failed, the result is a failed run, and its ``end`` has the reason.
    """
    entered = time.perf_counter()
    benchmark = registry.benchmark_of(request["settings"])
    try:
        with rank.join_ranks(request) as own_rank:
            run = _measure(benchmark, request)
            if own_rank.size > 1:
                run = {**run, **place_of_process(), "private_caches": int(own_rank.private_caches)}
                return rank.without_other_ranks(run, own_rank)
    except rank.RanksError as error:
        return {"status": "failed", "end": {"code": RunEnd.RANKS_PARTED, "words": error.message}}
    except ProgramError as error:
        return {"status": "failed", "end": {"code": RunEnd.PROGRAM, "words": error.message}}
    overhead_s = time.perf_counter() - entered - run["wall_s"]
    return {**run, "status": "ended", "overhead_s": overhead_s}


def _measure(benchmark: Benchmark, request: RunRequest) -> Run:
    """Run a benchmark with all observers, and return the raw metrics of the benchmark and of the observers."""
    rate = benchmark.rate_of(request["settings"]["benchmark"])
    description: dict[str, Any] = {"wall_parts": [*benchmark.wall_parts], "rate": {"key": rate.key, "unit": rate.unit}}
    with benchmark.begin(request) as work:
        observers = [observer(request, work) for observer in _OBSERVERS]
        run = {**description, **work.measure(run_observers(observers))}
        run |= collect_metrics(observers)
    file = request.get("steps")
    return cast("Run", move_lists_to_file(run, Path(file) if file else None))


def move_lists_to_file(run: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Write the lists per step of a run into a file, and return the metrics with a summary instead of the lists.

    Parameters
    ----------
    run
        The metrics of a run. A list whose name begins with ``step_`` has one number per step: seconds or a loss. A loss
        is None if the loss was infinite or not a number.
    file
        The .npz file for the lists; each list becomes an array of float64 with NaN for None. If `file` is None, the
        lists stay in the metrics.

    Returns
    -------
        The metrics with a summary ``steps``. The summary has the number of steps (``number``) and the seconds of
        waiting for the first batch (``first_load_s``). For a training, it also has ``last_loss``, and in ``lost_loss``
        the first step without a finite loss. ``file`` is the name of the file, or None if the file could not be
        written; ``error`` then has the reason.
    """
    lists = {name: values for name, values in run.items() if name.startswith(_PREFIX) and isinstance(values, list)}
    if not lists:
        return {**run}
    loads, losses = lists.get("step_load_s", []), lists.get("step_loss", [])
    steps: dict[str, Any] = {"number": len(loads), "first_load_s": loads[0] if loads else None}
    if losses:
        steps |= {"last_loss": losses[-1], "lost_loss": losses.index(None) + 1 if None in losses else None}
    if file is None:
        return {**run, "steps": steps}
    error = _write_lists(file, lists)
    others = {name: value for name, value in run.items() if name not in lists}
    return {**others, "steps": {**steps, "file": None if error else file.name, "error": error}}


def _write_lists(file: Path, lists: Mapping[str, Any]) -> str | None:
    """Write the lists into a file; return the error text, or None after success.

    Errors are not raised, because a full disk must not end the run.
    """
    arrays: dict[str, Any] = {name: np.array(values, np.float64) for name, values in lists.items()}
    try:
        with files.write_whole(file) as stream:
            np.savez(stream, **arrays)
    except OSError as error:
        return str(error)
    return None
