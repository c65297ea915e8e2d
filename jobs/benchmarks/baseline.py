"""Benchmark ``baseline``: what a storage gives by itself, one file written or read (paper IV; Table I).

No TensorFlow, no images: an engine (IOR, fio, or our own) moves the bytes past the page cache. By hand, on any node::

    python -m jobs.benchmarks.baseline FOLDER --access read
"""

from __future__ import annotations

import importlib
import os
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.benchmarks.engines import datafile, external
from jobs.benchmarks.engines import engine as engines
from jobs.benchmarks.engines.engine import Order
from jobs.observe import counters
from jobs.observe.trace import Trace
from jobs.observe.trace_sources import traffic_behind
from jobs.system import page_cache
from jobs.system.device import device_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jobs.benchmarks.engines.engine import Outcome

VERSION = 1  # raised when the meaning of a figure changes; figures never mix versions
DEFAULTS: dict[
    str, Any
] = {  # of a run by hand; those of a campaign stand in conf/, and a test holds that they are the same
    "benchmark": {
        "name": "baseline",
        "access": "read",
        "engine": "auto",
        "file_mb": 5000,
        "transfer_mib": datafile.TRANSFER_MIB,
        "seconds_max": 10.0,
    },
    "threads": 4,
    "seed": 0,
    "cache": "cold",
}
_WRITTEN = "write"


class _Flushed:
    """What a run writes is flushed in its time: its own bytes are nobody else's traffic (`jobs.observe.counters`)."""

    devices = ()

    def helpers(self) -> tuple[int, ...]:
        """Return nothing: the engine is a child of ours and waited for, which the kernel adds to our own counts."""
        return ()


def measured(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do one run and return its raw figures.

    Parameters
    ----------
    request
        As of `jobs.run.execute`, and ``baseline``: ``file`` (what is read, or is to be written), ``file_bytes``,
        ``block_bytes`` (one request) and ``raw`` (where the engine's own words are kept, or None).

    Raises
    ------
    jobs.errors.EngineError
        The engine is missing or failed, or what it says cannot be believed.
    """
    settings, asked = request["settings"], request["baseline"]
    benchmark, file = settings["benchmark"], Path(asked["file"])
    writes = benchmark["access"] == _WRITTEN
    engine = engines.chosen(benchmark["engine"], benchmark["access"])
    order = _order(settings, asked)
    run = _runner(engine, asked["raw"] and Path(asked["raw"]))
    device, traffic = device_of(file.parent), _nearest(file.parent)
    residency = _prepared(order)
    load_average = os.getloadavg()[0]
    before, written = counters.look(device, _Flushed() if writes else None), traffic()
    with _tidied(order):
        with (watched := _trace(request["trace"], file.parent)) or nullcontext():
            start = time.perf_counter()
            outcome = run(order)
            elapsed_s = time.perf_counter() - start
        after, late = counters.look(device, _Flushed() if writes else None), traffic()
    return {
        **_figures(outcome, order),
        **counters.between(before, after),
        **({"reached_bytes": None if late is None or written is None else late - written} if writes else {}),
        "engine": engine,
        "direct": order.direct,
        "startup_s": elapsed_s - outcome.wall_s,
        "load_average": load_average,
        "resident_fraction": residency.fraction,
        "residency_method": residency.method,
        "device": device.name if device else None,
        "trace": watched.finish() if watched else None,
        "engine_output": asked["raw"] and Path(asked["raw"]).name if engine != engines.BUILTIN else None,
    }


def _runner(engine: str, raw: Path | None) -> Callable[[Order], Outcome]:
    """Return what makes an engine do an order; our own says nothing that could be kept in `raw`."""
    module = importlib.import_module(f"jobs.benchmarks.engines.{engine}")
    run: Callable[[Order], Outcome] = module.run if engine == engines.BUILTIN else partial(external.run, module, raw)
    return run


@contextmanager
def _tidied(order: Order) -> Iterator[None]:
    """Take away what a run writes, also where it fails."""
    try:
        yield
    finally:
        if order.access == _WRITTEN:
            order.file.unlink(missing_ok=True)


def _order(settings: Mapping[str, Any], asked: Mapping[str, Any]) -> Order:
    benchmark, file = settings["benchmark"], Path(asked["file"])
    direct = engines.takes_direct(file, benchmark["access"])
    order = Order(benchmark["access"], file, asked["file_bytes"], asked["block_bytes"], direct)
    if benchmark["access"] != "random_read":
        return order
    return replace(order, threads=settings["threads"], seconds_max=benchmark["seconds_max"], seed=settings["seed"])


def _prepared(order: Order) -> page_cache.Residency:
    """Leave nothing for the clock that is not the run's: no page in memory, no flush and no removal under way."""
    if order.access != _WRITTEN:
        return page_cache.cooled([order.file], [order.file], order.file.parent)
    page_cache.sync(order.file.parent)
    return page_cache.residency([])


def _nearest(folder: Path) -> Any:
    """Return what counts the bytes that everybody writes to what holds a folder; its counts are None without."""
    read = next(iter(traffic_behind(folder).values()), None)
    return lambda: read()[1] if read else None


def _trace(asked: Mapping[str, Any] | None, folder: Path) -> Trace | None:
    return Trace([folder], asked["interval_s"], asked["tail_s"], Path(asked["file"])) if asked else None


def _figures(outcome: Outcome, order: Order) -> dict[str, Any]:
    """Return what an engine did in the words of a record; of a time that it does not take apart there is one part."""
    word = "write" if order.access == _WRITTEN else "read"
    parts = dict(outcome.parts) or {"transfer_s": outcome.wall_s}
    found: dict[str, Any] = {
        "wall_s": outcome.wall_s,
        **parts,
        "wall_parts": list(parts),
        "bytes_read": 0,
        "bytes_asked": order.file_bytes,
        "bytes_written" if order.access == _WRITTEN else "bytes_read": outcome.moved_bytes,
        f"{word}_mb_per_s": outcome.moved_bytes / 1e6 / outcome.wall_s,
        "requests": outcome.requests,
        "engine_version": outcome.version,
    }
    if order.access == "random_read":
        found["bytes_asked"] = outcome.requests * order.block_bytes
        found |= {"reads_per_s": outcome.requests / outcome.wall_s, "read_bytes_each": order.block_bytes}
    return found


if __name__ == "__main__":
    from jobs.baseline_by_hand import main

    main()
