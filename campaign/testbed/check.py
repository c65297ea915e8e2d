"""Measure emulated storages with fio and the built-in engine, and compare the rates with the storages' parameters."""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign import console
from campaign.errors import EnvironmentFaultError
from campaign.storage import locks
from campaign.testbed import expected
from jobs.benchmarks.engines import builtin, external
from jobs.benchmarks.engines.engine import EngineOrder
from jobs.errors import EngineError
from jobs.model.codes import Wait
from jobs.system import files
from jobs.system.layers import ask_server

if TYPE_CHECKING:
    from campaign.console import Progress
    from campaign.testbed.spec import StorageRequest
    from campaign.testbed.state import StorageState
    from jobs.model.settings import Node
    from jobs.system.layers import ServerReport

TOLERANCE = 0.1
_DEPTHS = (1, 2, 4, 8, 16, 32)
_BLOCKS = (4096, 112 << 10)  # bytes; the second is the paper's median image (Chien et al. 2018, IV)
_LEAST_BYTES, _MOST_BYTES = expected.SEQUENTIAL_BYTES, 32 * expected.SEQUENTIAL_BYTES
_FILE_S = 1.5  # the file is so large that reading it takes this time, but at most _MOST_BYTES
_BUILTIN_S, _LEAST_S, _MOST_S = 0.5, 0.5, 2.5
# Number of reads by fio. The median is then right within 4 %, although each read waits for a random part of a turn.
_READS = 400
_REPEAT_S = 22.0  # during this time per storage, a differing rate is measured two more times
_SHARES = {"median": 0.5, "95th percentile": 0.95}  # quantiles of the latency
_FIO_PATTERNS = {"write": "write", "read": "read", "random_read": "randread"}  # values of fio's option rw
_PREFIX = ".testbed-check."  # prefix of the name of the measured file
_WITHOUT_DECIMALS = 1000  # numbers from this value on are shown without decimals
_NUMBER_COLUMNS = (2, 4, 5, 6)


@dataclass(frozen=True)
class RequestKind:
    """A kind of request to a storage: the access, the size of its blocks, and the number of outstanding requests."""

    access: str  # write, read or random_read
    block_bytes: int = expected.SEQUENTIAL_BYTES
    depth: int = 1  # outstanding requests

    @property
    def random(self) -> bool:
        """Return whether the requests are random reads; their rate is in reads per second instead of MB/s."""
        return self.access == "random_read"

    def __str__(self) -> str:
        """Return the kind of request as a phrase for the table."""
        return f"random read {self.block_bytes >> 10} KiB x{self.depth}" if self.random else f"sequential {self.access}"


@dataclass(frozen=True)
class CheckedStorage:
    """A running emulated storage, with the file that the check makes on this storage."""

    name: str
    storage: StorageState
    request: StorageRequest
    file: Path
    file_bytes: int

    def rate(self, point: RequestKind) -> float | None:
        """Return the expected MB/s or reads per second, calculated from the storage's parameters.

        Return None if the parameters do not determine this rate.
        """
        if point.random:
            return expected.reads_per_s(self.request, point.block_bytes, point.depth, self.file_bytes)
        return expected.sequential_mb_per_s(self.request, point.access, self.file_bytes)


@dataclass(frozen=True)
class MeasuredRate:
    """The rate and the latencies that an engine measured, and a sentence that explains the measured time."""

    rate: float  # MB/s, or reads per second
    latencies_us: Mapping[str, float] = field(
        default_factory=dict
    )  # the keys are the names in `_SHARES`; empty if the engine reports no latencies
    account: str = ""  # how the time was spent, according to the counters of the model's server


@dataclass(frozen=True)
class CheckRow:
    """A row of the table: a storage, a kind of request, the expected value and the measured values."""

    storage: str
    what: str
    unit: str
    model: float
    fio: float | None
    builtin: float | None
    account: str

    @property
    def difference(self) -> float:
        """Return the relative difference between the measured and the expected value.

        If both engines have measured, the larger difference counts.
        """
        return max((rate / self.model - 1 for rate in (self.fio, self.builtin) if rate is not None), key=abs)

    @property
    def differs(self) -> bool:
        """Return whether the difference is above the tolerance of 10 %."""
        return abs(self.difference) > TOLERANCE

    @property
    def why(self) -> str:
        """Return the reason for a difference above the tolerance, or an empty text for a smaller difference."""
        slower = self.difference > 0 if self.unit == "us" else self.difference < 0
        return "" if not self.differs else self.account if slower else "faster than its parameters allow"

    def facts(self) -> Node:
        """Return the row as a dictionary for JSON."""
        return {**asdict(self), "difference": self.difference, "differs": self.differs}


def median_row(rows: Sequence[CheckRow]) -> CheckRow:
    """Combine several measurements of the same kind of request into one row, with the median of each engine."""
    medians = replace(rows[0], fio=_median(row.fio for row in rows), builtin=_median(row.builtin for row in rows))
    return replace(medians, account=min(rows, key=lambda row: abs(row.difference - medians.difference)).account)


def _median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def points_to_measure(request: StorageRequest) -> list[RequestKind]:
    """Return the kinds of requests to measure on a storage; the first kind is a write, which makes the file."""
    random = [RequestKind("random_read", block, depth) for block in _BLOCKS for depth in _DEPTHS]
    return [RequestKind("write"), RequestKind("read"), *(random if request.model else [])]


def measure_storage(
    name: str, storage: StorageState, request: StorageRequest, report: Callable[[Wait], None], report_progress: Progress
) -> list[CheckRow]:
    """Measure a running storage, and return the rows of the table.

    While the storage is locked, `report` is called with the process that holds the lock. Raise EnvironmentFaultError if
    the storage belongs to another user, if its model injects faults, if it has too little space, or if an engine fails.
    """
    _require_own_folder(storage)
    _require_no_faults(name, storage, request)
    rows: list[CheckRow] = []
    with _hold_target(name, storage, request, report) as target:
        repeat_until_s = time.monotonic() + _REPEAT_S
        for index, point in enumerate(points := points_to_measure(request)):
            report_progress(name, index, len(points), str(point))
            measured = _measure_point(target, point)
            if (
                any(row.differs for row in measured) and time.monotonic() < repeat_until_s
            ):  # other programs may have disturbed the measurement
                repeated = (_measure_point(target, point), _measure_point(target, point))
                # The median of three measurements counts. To take the best measurement would bias the result.
                measured = [median_row(rows_of_engine) for rows_of_engine in zip(measured, *repeated, strict=True)]
            rows += measured
    return rows


def _require_own_folder(storage: StorageState) -> None:
    """Raise EnvironmentFaultError if the folder belongs to another user.

    Another user could replace the file of fio by a link.
    """
    if (owner := storage.root.stat().st_uid) != os.geteuid():
        raise EnvironmentFaultError(
            f"{storage.root} belongs to another user ({owner})", f"run the check as the owner: sudo -u '#{owner}' …"
        )


def _require_no_faults(name: str, storage: StorageState, request: StorageRequest) -> None:
    faults = (
        {key: value for key, value in ask_server(storage.model)["faults"].items() if value} if request.model else {}
    )
    if faults:
        values = ", ".join(f"{key} {value:g}" for key, value in faults.items())
        cure = "; ".join(f"echo {key} 0" for key in faults)
        raise EnvironmentFaultError(
            f"the model of {name} injects faults: {values}", f"as root: ({cure}) > {storage.model}/faults"
        )


@contextmanager
def _hold_target(
    name: str, storage: StorageState, request: StorageRequest, report: Callable[[Wait], None]
) -> Iterator[CheckedStorage]:
    """Hold the locks of a storage during the ``with`` block, and yield the storage with a new file.

    First remove the files of killed checks. At the end remove the new file.
    """
    root = storage.root.resolve()
    with locks.hold_storage("lock", locks.lock_path(root, root), {}, locks.device_locks([str(root)]), report):
        for file_name in files.names_in_folder(root):
            if file_name.startswith(_PREFIX):
                files.remove(root / file_name)
        file = root / f"{_PREFIX}{secrets.token_hex(8)}{files.TEMPORARY}"
        try:
            yield CheckedStorage(name, storage, request, file, _file_bytes(name, root, request))
        except EngineError as error:
            raise EnvironmentFaultError(f"{name}: {error}", "python -m campaign testbed status") from error
        finally:
            files.remove(file, missing_ok=True)


def _file_bytes(name: str, root: Path, request: StorageRequest) -> int:
    """Return the size of the measured file in bytes: a multiple of 16 MiB, at most half of the free space."""
    room_bytes, rate = files.free_bytes(root) // 2, request.speed.read_mb_per_s
    if room_bytes < _LEAST_BYTES:
        needs = f"a check needs {2 * _LEAST_BYTES / 1e6:.0f} MB"
        raise EnvironmentFaultError(
            f"{name} has {2 * room_bytes / 1e6:.0f} MB free, but {needs}", "free some space on this storage"
        )
    most_bytes = _MOST_BYTES if rate is None else min(_MOST_BYTES, int(rate * 1e6 * _FILE_S))
    return max(_LEAST_BYTES, min(room_bytes, most_bytes) // _LEAST_BYTES * _LEAST_BYTES)


def _measure_point(target: CheckedStorage, point: RequestKind) -> list[CheckRow]:
    """Measure a kind of request with the built-in engine, and with fio if fio is installed; return the rows.

    The built-in engine runs first and makes the file.
    """
    by_builtin = _measure_with_account(target, point, _measure_by_builtin)
    by_fio = _measure_with_account(target, point, _measure_by_fio) if shutil.which("fio") else None
    return [*_make_rows(target, point, by_fio, by_builtin)]


def _measure_with_account(
    target: CheckedStorage, point: RequestKind, engine: Callable[[CheckedStorage, RequestKind], MeasuredRate]
) -> MeasuredRate:
    if target.request.model is None:
        return engine(target, point)
    old_counters = ask_server(target.storage.model)
    measured = engine(target, point)
    return replace(
        measured, account=describe_time(target, point, measured.rate, old_counters, ask_server(target.storage.model))
    )


def _measure_by_builtin(target: CheckedStorage, point: RequestKind) -> MeasuredRate:
    if point.access == "write":
        files.remove(target.file, missing_ok=True)
    order = EngineOrder(point.access, target.file, target.file_bytes, point.block_bytes, direct=True)
    result = builtin.run_builtin(replace(order, threads=point.depth, seconds_max=_BUILTIN_S))
    return MeasuredRate((result.requests if point.random else result.moved_bytes / 1e6) / result.wall_s)


def _measure_by_fio(target: CheckedStorage, point: RequestKind) -> MeasuredRate:
    return parse_fio_answer(external.program_output(make_fio_command(target, point), target.file.parent, None), point)


def make_fio_command(target: CheckedStorage, point: RequestKind) -> list[str]:
    """Return fio's command line for a kind of request; fio must run in the folder of the existing file."""
    options = {
        "name": "check",
        "filename": target.file.name,
        "rw": _FIO_PATTERNS[point.access],
        "bs": point.block_bytes,
        "size": target.file_bytes,
        "ioengine": "libaio",
        "iodepth": point.depth,
        "direct": 1,
        "clocksource": "clock_gettime",  # with this clock, fio need not calibrate the processor's counter
        "lat_percentiles": 1,
        "output-format": "json",
    }
    if point.access == "write":
        options |= {"overwrite": 1, "end_fsync": 1}
    else:
        options |= {"allow_file_create": 0}
    if point.random:
        seconds = _READS / (target.rate(point) or _READS)
        options |= {"runtime": f"{1e3 * min(_MOST_S, max(_LEAST_S, seconds)):.0f}ms"}
    flags = ["--thread", *(["--time_based"] if point.random else [])]
    return ["fio", *(f"--{key}={value}" for key, value in options.items()), *flags]


def parse_fio_answer(answer: str, point: RequestKind) -> MeasuredRate:
    """Return the rate and the latencies in fio's JSON output; raise EngineError if the output is incomplete."""
    try:
        (job,) = next(document["jobs"] for document in external.json_objects(answer) if "jobs" in document)
        side = job["write" if point.access == "write" else "read"]
        percentiles = side["lat_ns"]["percentile"]
        latencies = {key: external.read_number(percentiles, f"{100 * share:f}") / 1e3 for key, share in _SHARES.items()}
        rate = external.read_number(side, "iops") if point.random else external.read_number(side, "bw_bytes") / 1e6
    except (StopIteration, LookupError, TypeError, ValueError) as error:
        raise EngineError("fio's answer is incomplete") from error
    return MeasuredRate(rate, latencies)


def describe_time(
    target: CheckedStorage, point: RequestKind, rate: float, before: ServerReport, after: ServerReport
) -> str:
    """Return a sentence that explains the time of an average request, using the counters of the model's server.

    The time of a random read has three parts: the model's time, the delay of a server that answers late, and the path
    between program and server (by Little's law). The server answers `path_us` earlier, to compensate for the path.
    """
    model, expected_rate = target.request.model, target.rate(point)
    requests = after["reads"] + after["writes"] - before["reads"] - before["writes"]
    if model is None or not expected_rate or not requests or not rate:
        return ""
    late_us = (after["late_s"] - before["late_s"]) / requests * 1e6
    if not point.random:
        idle_share = 1 - (after["busy_s"] - before["busy_s"]) * rate / (target.file_bytes / 1e6)
        answers = f"answers were {late_us:,.0f} us late"
        return f"this machine: the model got no request in {idle_share:.0%} of the time, and {answers}"
    path_us, server_us = model.parameters["path_us"], (after["queue_s"] - before["queue_s"]) / requests * 1e6
    model_us = server_us - late_us + path_us
    if model_us > point.depth / expected_rate * 1e6 * (1 + TOLERANCE):
        return f"the model itself took {model_us:,.0f} us"
    way_us = point.depth / rate * 1e6 - server_us - path_us
    return f"this machine: answers were {late_us:,.0f} us late, and the path took path_us {way_us:+,.0f} us"


def _make_rows(
    target: CheckedStorage, point: RequestKind, by_fio: MeasuredRate | None, by_builtin: MeasuredRate
) -> Iterator[CheckRow]:
    point_text = str(point)
    if model := target.rate(point):
        unit = "reads/s" if point.random else "MB/s"
        row = CheckRow(
            target.name, point_text, unit, model, by_fio.rate if by_fio else None, by_builtin.rate, by_builtin.account
        )
        worse = by_fio is not None and abs(by_fio.rate / model - 1) == abs(row.difference)
        yield replace(row, account=by_fio.account) if by_fio and worse else row
    if point.random and point.depth == 1 and by_fio:
        for label, share in _SHARES.items():
            if model := expected.read_us(target.request, point.block_bytes, target.file_bytes, share):
                yield CheckRow(
                    target.name, f"{point_text}, {label}", "us", model, by_fio.latencies_us[label], None, by_fio.account
                )


def format_rows(rows: Sequence[CheckRow]) -> list[str]:
    """Return the lines of the table, followed by one line per storage with the differences above the tolerance."""
    head = ("storage", "what", "model", "", "fio", "built-in", "difference", "")
    lines = console.format_table([head, *(_row_texts(row) for row in rows)], _NUMBER_COLUMNS)
    differences = defaultdict(list)
    for row in rows:
        if row.differs:
            differences[row.storage].append(f"{row.what} {row.difference:+.0%}")
    return [
        *lines,
        *(
            f"{name} differs from its model by more than {TOLERANCE:.0%}: {'; '.join(texts)}"
            for name, texts in differences.items()
        ),
    ]


def _row_texts(row: CheckRow) -> tuple[str, ...]:
    rates = ("-" if rate is None else _format_value(rate) for rate in (row.fio, row.builtin))
    return (row.storage, row.what, _format_value(row.model), row.unit, *rates, f"{row.difference:+.1%}", row.why)


def _format_value(value: float) -> str:
    return f"{value:,.1f}" if value < _WITHOUT_DECIMALS else f"{value:,.0f}"
