"""Benchmark ``baseline``: measure the speed of the storage alone, on one file (paper IV; Table I).

The benchmark needs no TensorFlow and no images. An engine (IOR, fio, or the built-in engine) reads or writes the file
and bypasses the page cache. To run the benchmark by hand::

    python -m jobs baseline FOLDER --access read
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.engines import datafile, external
from jobs.benchmarks.engines import engine as engines
from jobs.benchmarks.engines.engine import EngineOrder, EngineOutcome
from jobs.errors import EngineError
from jobs.model.declared import Setting
from jobs.model.settings import Node, NodeWithName, Settings
from jobs.model.work import FileRequest, RunRequest
from jobs.objects.client import Client
from jobs.objects.run_objects import RunObjects
from jobs.ready_run import ReadyRun
from jobs.system import files

_WRITTEN, _RANDOM = "write", "random_read"
_MIB = 1 << 20


class Keys(NodeWithName):
    """Measurement of the storage alone: one file is written or read."""

    access: Annotated[
        Literal["write", "read", "random_read"],
        Setting(
            "how the file is accessed; write: a new file is written and flushed; read: the file is read from start to"
            " end; random_read: blocks of the dataset's mean file size are read at random offsets"
        ),
    ] = "read"
    engine: Annotated[
        Literal["auto", "ior", "fio", "builtin"],
        Setting(
            "program that reads or writes the file; auto: IOR, fio or builtin, the first of them that is installed;"
            " ior: IOR (not for random_read); fio: fio; builtin: tfio-campaign itself, with O_DIRECT"
        ),
    ] = "auto"
    file_mb: Annotated[
        int,
        Meta(ge=1, le=10**7),
        Setting("size of the file, rounded up to a multiple of transfer_mib", unit="MB", smoke=400),
    ] = 5000
    transfer_mib: Annotated[
        int,
        Meta(ge=1, le=1024),
        Setting("size of one request of access=read and access=write; no effect on access=random_read", unit="MiB"),
    ] = datafile.TRANSFER_MIB
    seconds_max: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        Setting(
            "time limit of access=random_read, which ends earlier when every block was read once",
            unit="seconds",
            smoke=0.75,
        ),
    ] = 10.0


@contextmanager
def begin_run(request: RunRequest) -> Iterator[ReadyRun]:
    """Yield the run of this request; at the end, remove the file that the run wrote.

    Raises EngineError if the engine of the settings is not installed.
    """
    settings, file_request = request["settings"], request["baseline"]
    if file_request is None:
        raise TypeError(file_request)
    benchmark, file = settings["benchmark"], Path(file_request["file"])
    writes = benchmark["access"] == _WRITTEN
    engine = engine_name(settings)
    if settings.get("storage", {}).get("kind") == "s3":
        with _begin_on_objects(request, file_request) as work:
            yield work
        return
    order = _order(settings, file_request, engines.supports_direct(file, benchmark["access"]))
    raw = Path(file_request["raw"]) if file_request["raw"] else None
    run = _runner(engine, raw)
    output = raw.name if raw and engine != engines.BUILTIN else None

    def measure(watched: AbstractContextManager[Any]) -> dict[str, Any]:
        return {**_measure_order(run, order, watched), "engine": engine, "engine_output": output}

    to_read = [] if writes else [file]
    with ExitStack() as stack:
        if writes:
            stack.callback(files.remove, file, missing_ok=True)
        yield ReadyRun(measure, file.parent, to_read, to_read, writes=writes)


def engine_name(settings: Settings) -> str:
    """Return the name of the engine for these settings on this machine.

    An object store needs the built-in engine. For files, `choose_engine` decides.
    """
    if settings.get("storage", {}).get("kind") == "s3":
        return engines.BUILTIN
    return engines.choose_engine(settings["benchmark"]["engine"], settings["benchmark"]["access"])


@contextmanager
def _begin_on_objects(request: RunRequest, file_request: FileRequest) -> Iterator[ReadyRun]:
    """Yield a run on an object store: ``threads`` threads read ranges of one object, or write objects."""
    settings = request["settings"]
    source = RunObjects(Client(settings["storage"]), {}, request.get("disk"), 1)
    order = _order(settings, file_request, direct=False)
    writes = order.access == _WRITTEN
    client, key = source.client, str(order.file)

    def get(offset: int, count: int) -> int:
        return len(client.get(key, span=(offset, offset + count))) if count else 0

    def put(number: int, data: memoryview) -> None:
        client.put(f"{key}/{number:06}", data)

    order = replace(order, put=put, threads=settings["threads"]) if writes else replace(order, get=get)
    source.engine["concurrency"] = order.threads

    def measure(watched: AbstractContextManager[Any]) -> dict[str, Any]:
        metrics = _measure_order(_runner(engines.BUILTIN, None), order, watched)
        if writes:
            _require_put(order, client)
        return {**metrics, "engine": engines.BUILTIN, "engine_output": None}

    with ExitStack() as stack:
        if writes:
            _remove(order, client)  # removes the objects of an earlier run that was killed
            stack.callback(_remove, order, client)
        yield ReadyRun(measure, Path(), writes=writes, source=source, reading=tuple if writes else source.pids)


def _require_put(order: EngineOrder, client: Client) -> None:
    """Raise EngineError unless the store lists all written objects with their sizes."""
    sizes = [stored.size for stored in client.list_objects(str(order.file))]
    if sizes != [order.block_bytes] * (order.file_bytes // order.block_bytes):
        raise EngineError(
            f"the store lists {len(sizes)} objects of {sum(sizes)} bytes, but {order.file_bytes} bytes were written"
        )


def _remove(order: EngineOrder, client: Client) -> None:
    client.delete([stored.key for stored in client.list_objects(str(order.file))])


def _runner(engine: str, raw: Path | None) -> Callable[[EngineOrder], EngineOutcome]:
    """Return the function that runs an order on this engine; an external engine writes its output to the file `raw`."""
    if engine == engines.BUILTIN:
        from jobs.benchmarks.engines import builtin  # noqa: PLC0415 - imports numpy, which would delay --help

        return builtin.run_builtin
    return partial(external.run_external, external.EXTERNAL[engine], raw)


def _measure_order(
    run: Callable[[EngineOrder], EngineOutcome], order: EngineOrder, watched: AbstractContextManager[Any]
) -> dict[str, Any]:
    with watched:
        start = time.perf_counter()
        outcome = run(order)
        elapsed_s = time.perf_counter() - start
    return {**_metrics_of(outcome, order), "direct": order.direct, "startup_s": elapsed_s - outcome.wall_s}


def _order(settings: Settings, file_request: FileRequest, direct: bool) -> EngineOrder:  # noqa: FBT001 - a field
    benchmark, file = settings["benchmark"], Path(file_request["file"])
    order = EngineOrder(benchmark["access"], file, file_request["file_bytes"], file_request["block_bytes"], direct)
    if benchmark["access"] != _RANDOM:
        return order
    return replace(order, threads=settings["threads"], seconds_max=benchmark["seconds_max"], seed=settings["seed"])


def _metrics_of(outcome: EngineOutcome, order: EngineOrder) -> dict[str, Any]:
    """Return an engine's outcome as metrics of a record.

    If the engine reports no parts of the time, ``transfer_s`` is the whole time.
    """
    word = "write" if order.access == _WRITTEN else "read"
    parts = dict(outcome.parts) or {"transfer_s": outcome.wall_s}
    metrics: dict[str, Any] = {
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
    if order.access == _RANDOM:
        metrics["bytes_asked"] = outcome.requests * order.block_bytes
        metrics |= {"reads_per_s": outcome.requests / outcome.wall_s, "read_bytes_each": order.block_bytes}
    return metrics


def _transfer_mib(settings: Settings) -> int:
    return int(settings["benchmark"].get("transfer_mib", datafile.TRANSFER_MIB))  # not set for random_read


def file_bytes(settings: Settings) -> int:
    """Return the size in bytes of the baseline's file, for these settings."""
    return datafile.whole_bytes(settings["benchmark"]["file_mb"], _transfer_mib(settings))


def must_exist_before(settings: Settings) -> bool:
    """Return whether the baseline's file must exist before a run: yes, if the run reads the file."""
    return bool(settings["benchmark"]["access"] != _WRITTEN)


def prepare_file(
    settings: Settings, folder: Path, block_bytes: float | None, progress: Callable[[int, int], None]
) -> tuple[Path | None, int, int]:
    """Return the file to read (None if the run writes a file), the file's size in bytes, and the bytes of one request.

    For a run that reads, the file is made if it is missing. For a run that writes, the free space is checked. Raises
    DatasetError if the file cannot be made or the space is too small. `block_bytes` (for random_read) is rounded up to
    whole blocks of the storage. `progress` is called with the MiB written so far and the MiB of the whole file.
    """
    transfer_mib, size = _transfer_mib(settings), file_bytes(settings)
    datafile.make_marked_folder(folder)
    if settings["benchmark"]["access"] == _WRITTEN:
        datafile.require_free_space(folder, size)
        return None, size, transfer_mib * _MIB
    file = datafile.make_data_file(folder, size, progress)
    blocks = datafile.whole_blocks(block_bytes, folder) if block_bytes else transfer_mib * _MIB
    return file, size, blocks


class _Baseline(Benchmark):
    """The benchmark ``baseline``: the access (write, read, random_read) determines its metric and its settings."""

    def figure_of(self, node: Node) -> Figure:
        return Figure("write_mb_per_s" if node["access"] == _WRITTEN else "read_mb_per_s", "MB/s")

    def effective_settings(self, point: Mapping[str, Any]) -> Settings:
        access = point["benchmark"]["access"]
        puts_objects = access == _WRITTEN and point["storage"].get("kind") == "s3"
        unused = "transfer_mib" if access == _RANDOM else "seconds_max"
        own_settings = {name: value for name, value in point["benchmark"].items() if name != unused}
        others = ("dataset", "threads", "seed") if access == _RANDOM else ("threads",) if puts_objects else ()
        names = ("benchmark", "storage", "cache", *others)
        return {
            name: value
            for name, value in super().effective_settings({**point, "benchmark": own_settings}).items()
            if name in names
        }

    def id_words(self, node: Node) -> list[str]:
        return [self.name, node["access"]]

    def page_cache(self, settings: Settings) -> str:
        return "as_is" if settings["benchmark"]["access"] == _WRITTEN else settings["cache"]

    def settings_error(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        if values["cache"] != "cold":
            return (
                f"cache={values['cache']}: benchmark=baseline bypasses the page cache",
                "cache=cold, which is the default",
            )
        if values.get("storage.kind") == "s3" and values["benchmark.engine"] not in (engines.AUTO, engines.BUILTIN):
            return f"benchmark.engine={values['benchmark.engine']} cannot use objects", "benchmark.engine=builtin"
        if values.get("storage.engine") == "async":
            return (
                "storage.engine=async: benchmark=baseline always reads and writes objects by threads",
                "storage.engine=threads",
            )
        if (values["benchmark.access"], values["benchmark.engine"]) == (_RANDOM, engines.IOR):
            return (
                "benchmark.engine=ior with benchmark.access=random_read: IOR has no threads to read in parallel",
                "benchmark.engine=fio, builtin, or auto",
            )
        return None


BENCHMARK = _Baseline(
    name="baseline",
    version=1,
    kind="storage",
    keys=Keys,
    begin=begin_run,
    figure=Figure("read_mb_per_s", "MB/s"),
    about="write or read one file, to measure the speed of the storage without TensorFlow",
    data="file",
    settings=("benchmark", "storage", "cache", "dataset", "threads", "seed"),
    imports=(),
)
