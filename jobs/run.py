"""One run of a benchmark: put the cache into its state, prove it, run the clock, read the counters, judge."""

from __future__ import annotations

import gc
import importlib
import os
import time
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import cache, checks, counters, manifest
from jobs.device import device_of
from jobs.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BENCHMARKS = ("alexnet", "micro")  # names of modules in this room, each with VERSION and prepare()


def utc_now() -> str:
    """Return the time as ISO 8601, UTC, milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def version_of(benchmark: str) -> int:
    """Return the version of what the benchmark's figures mean."""
    return int(importlib.import_module(f"jobs.{benchmark}").VERSION)


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a benchmark once, here and now.

    Parameters
    ----------
    request
        ``settings`` (of the cell), ``dataset`` (folder), ``manifest`` (folder that holds ``manifest.json``),
        ``limits`` (of the checks), ``trace`` (``file``, ``interval_s`` and ``tail_s`` of the system trace, or None).

    Returns
    -------
    dict
        The raw figures of one run with its checks, its ``status`` (valid or invalid) and ``reason``.
    """
    entered = time.perf_counter()
    settings, folder = request["settings"], Path(request["dataset"])
    paths = [folder / entry.name for entry in manifest.load(Path(request["manifest"])).files]
    benchmark = importlib.import_module(f"jobs.{settings['benchmark']['name']}")
    measure = benchmark.prepare(settings, paths)
    device = device_of(folder)
    residency = _set_cache(settings["cache"], paths, benchmark.requested(settings, paths), folder)
    load_average = os.getloadavg()[0]
    before = counters.look(device)
    watched = _trace(request["trace"], folder)
    gc.freeze()  # what is there now is not looked through within the clock: in TensorFlow that takes tenths of a second
    figures = measure(watched or nullcontext())
    meanwhile = counters.between(before, counters.look(device))
    for bad in figures["unreadable"]:
        bad["file"] = os.path.relpath(bad["file"], folder)
    run = {
        **figures,
        **meanwhile,
        "load_average": load_average,
        "resident_fraction": residency.fraction,
        "residency_method": residency.method,
        "images_per_s": figures["images"] / figures["wall_s"],
        "read_mb_per_s": figures["bytes_read"] / 1e6 / figures["wall_s"],
        "device": device.name if device else None,
        "trace": watched.finish() if watched else None,
    }
    run["checks"], run["reason"] = checks.judge(run, checks.claim(settings), checks.Limits(**request["limits"]))
    run["status"] = "valid" if run["reason"] is None else "invalid"
    run["overhead_s"] = time.perf_counter() - entered - figures["wall_s"]
    return run


def _trace(asked: Mapping[str, Any] | None, folder: Path) -> Trace | None:
    return Trace([folder], asked["interval_s"], asked["tail_s"], Path(asked["file"])) if asked else None


def _set_cache(policy: str, paths: Sequence[Path], requested: Sequence[Path], folder: Path) -> cache.Residency:
    """Bring the pages of `paths` into the state that `policy` names; count what is resident of those `requested`."""
    if policy == "cold":
        cache.evict(paths)
        residency = cache.residency(requested)
        if residency.fraction != 0:  # dirty pages cannot be dropped: write them, then drop again
            cache.sync(folder)
            cache.evict(paths)
            residency = cache.residency(requested)
        return residency
    if policy == "warm":
        cache.read_through(paths)
    return cache.residency(requested)
