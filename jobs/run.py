"""One run of a benchmark: put the cache into its state, prove it, run the clock, read the counters, judge."""

from __future__ import annotations

import gc
import importlib
import os
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import checks
from jobs.benchmarks import baseline
from jobs.checkpoints import run as checkpoint
from jobs.data import manifest
from jobs.observe import counters
from jobs.observe.trace import Trace
from jobs.system import page_cache
from jobs.system.device import device_of
from jobs.system.emulated import emulated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from jobs.checkpoints.run import Checkpoints

BENCHMARKS = ("alexnet", "baseline", "micro")  # names of modules in this room, each with its VERSION


def version_of(benchmark: str) -> int:
    """Return the version of what the benchmark's figures mean."""
    return int(importlib.import_module(f"jobs.benchmarks.{benchmark}").VERSION)


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a benchmark once, here and now.

    Parameters
    ----------
    request
        ``settings`` (of the cell), ``dataset`` (folder), ``manifest`` (folder that holds ``manifest.json``),
        ``limits`` (of the checks), ``trace`` (``file``, ``interval_s`` and ``tail_s`` of the system trace, or None),
        ``checkpoint`` (where snapshots go, see `jobs.checkpoints.run.opened`, or None),
        ``baseline`` (of a baseline, see `jobs.benchmarks.baseline.measured`), ``peak`` (what the storage gives by
        itself, see `jobs.checks.judge`, or None).

    Returns
    -------
    dict
        The raw figures of one run with its checks, its ``status`` (valid or invalid) and ``reason``.
    """
    entered = time.perf_counter()
    settings = request["settings"]
    of_storage = settings["benchmark"]["name"] == "baseline"
    run = baseline.measured(request) if of_storage else _of_images(request)
    run["emulated"] = _is_emulated(request)
    run["checks"], run["reason"] = checks.judge(
        run, checks.claim(settings), checks.Limits(**request["limits"]), request.get("peak")
    )
    run["status"] = "valid" if run["reason"] is None else "invalid"
    run["overhead_s"] = time.perf_counter() - entered - run["wall_s"]
    return run


def _is_emulated(request: Mapping[str, Any]) -> bool:
    """Tell whether a run reads from an emulated storage or saves to one: the kernel serves it on our processors."""
    places = [request["dataset"]] if request.get("dataset") else [Path(request["baseline"]["file"]).parent]
    places += (request.get("checkpoint") or {}).get("folders", [])
    return any(emulated(Path(place)) for place in places)


def _of_images(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do the run of a benchmark that reads images, and saves snapshots where it is asked to."""
    settings, folder = request["settings"], Path(request["dataset"])
    paths = [folder / entry.name for entry in manifest.load(Path(request["manifest"])).files]
    benchmark = importlib.import_module(f"jobs.benchmarks.{settings['benchmark']['name']}")

    def to_save() -> tuple[int, int]:
        number, size = benchmark.to_save(settings, paths)
        return number, size

    with checkpoint.opened(settings.get("checkpoint", {}), request["checkpoint"], to_save) as checkpoints:
        return _measured(request, benchmark, paths, checkpoints)


def _measured(
    request: Mapping[str, Any], benchmark: ModuleType, paths: Sequence[Path], checkpoints: Checkpoints | None
) -> dict[str, Any]:
    """Do the run and return its raw figures."""
    settings, folder = request["settings"], Path(request["dataset"])
    measure = benchmark.prepare(settings, paths, *([checkpoints] if checkpoints else []))
    device = device_of(folder)
    residency = _set_cache(settings["cache"], paths, benchmark.requested(settings, paths), folder)
    load_average = os.getloadavg()[0]
    looks = [counters.look(device, checkpoints)]
    watched = _trace(request["trace"], folder, checkpoints)

    @contextmanager
    def until_the_end() -> Iterator[None]:
        with watched or nullcontext():
            yield
        looks.append(counters.look(device, checkpoints))  # now: the drain that may follow is not the run's

    gc.freeze()  # what is there now is not looked through within the clock: in TensorFlow that takes tenths of a second
    figures = measure(until_the_end())
    for bad in figures["unreadable"]:
        bad["file"] = os.path.relpath(bad["file"], folder)
    return {
        **figures,
        **counters.between(*looks),
        "load_average": load_average,
        "resident_fraction": residency.fraction,
        "residency_method": residency.method,
        "images_per_s": figures["images"] / figures["wall_s"],
        "read_mb_per_s": figures["bytes_read"] / 1e6 / figures["wall_s"],
        "device": device.name if device else None,
        "trace": watched.finish() if watched else None,
        **(checkpoints.figures() if checkpoints else {}),
    }


def _trace(asked: Mapping[str, Any] | None, folder: Path, checkpoints: Checkpoints | None) -> Trace | None:
    """Watch what holds the dataset and what holds the snapshots, and these until they are where they are to stay."""
    if asked is None:
        return None
    folders, settle = (checkpoints.folders, checkpoints.settle) if checkpoints else ((), None)
    return Trace([folder, *folders], asked["interval_s"], asked["tail_s"], Path(asked["file"]), settle)


def _set_cache(policy: str, paths: Sequence[Path], requested: Sequence[Path], folder: Path) -> page_cache.Residency:
    """Bring the pages of `paths` into the state that `policy` names; count what is resident of those `requested`."""
    if policy == "cold":
        return page_cache.cooled(paths, requested, folder)
    if policy == "warm":
        page_cache.read_through(paths)
    return page_cache.residency(requested)
