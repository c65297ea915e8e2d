"""Measure the storages of a testbed, by fio and by the built-in engine, against what their parameters say."""

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
from jobs.benchmarks.engines.engine import Order
from jobs.errors import EngineError
from jobs.model.codes import Wait
from jobs.system import durable, files
from jobs.system.emulated import served

if TYPE_CHECKING:
    from campaign.console import Progress
    from campaign.testbed.spec import Wanted
    from campaign.testbed.state import Storage
    from jobs.model.settings import Node
    from jobs.system.emulated import Served

TOLERANCE = 0.1
_DEPTHS = (1, 2, 4, 8, 16, 32)
_BLOCKS = (4096, 112 << 10)  # bytes; the second is the paper's median image (Chien et al. 2018, IV)
_LEAST_BYTES, _MOST_BYTES = expected.SEQUENTIAL_BYTES, 32 * expected.SEQUENTIAL_BYTES
_FILE_S = 1.5  # in which the file is read from its beginning to its end, or less, where it has _MOST_BYTES
_BUILTIN_S, _LEAST_S, _MOST_S = 0.5, 0.5, 2.5
_READS = 400  # in which fio's time is long enough: of reads that wait for any part of a turn the median is within 4 %
_AGAIN_S = 22.0  # of a storage, in which what differs is measured twice more
_SHARES = {"median": 0.5, "95th percentile": 0.95}
_WORDS = {"write": "write", "read": "read", "random_read": "randread"}  # fio's
_PREFIX = ".testbed-check."  # of the file's name
_WHOLE = 1000  # from here on, figures are shown without decimals
_NUMBERS = (2, 4, 5, 6)  # columns


@dataclass(frozen=True)
class Point:
    """What a storage is asked for."""

    access: str  # write, read or random_read
    block_bytes: int = expected.SEQUENTIAL_BYTES
    depth: int = 1  # requests that are out at once

    @property
    def random(self) -> bool:
        """Whether its rate is reads a second, and not MB/s."""
        return self.access == "random_read"

    def __str__(self) -> str:
        """Return it in words."""
        return f"random read {self.block_bytes >> 10} KiB x{self.depth}" if self.random else f"sequential {self.access}"


@dataclass(frozen=True)
class Place:
    """A storage that is up, and the file that is made on it."""

    name: str
    storage: Storage
    wanted: Wanted
    file: Path
    file_bytes: int

    def rate(self, point: Point) -> float | None:
        """Return the MB/s, or the reads a second, that the storage gives by its parameters; None: they do not say."""
        if point.random:
            return expected.reads_per_s(self.wanted, point.block_bytes, point.depth, self.file_bytes)
        return expected.sequential_mb_per_s(self.wanted, point.access, self.file_bytes)


@dataclass(frozen=True)
class Measured:
    """What an engine did."""

    rate: float  # MB/s, or reads a second
    latencies_us: Mapping[str, float] = field(default_factory=dict)  # by `_SHARES`; empty: the engine does not say
    account: str = ""  # where the time went, by what the server says of the same requests


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    storage: str
    what: str
    unit: str
    model: float
    fio: float | None
    builtin: float | None
    account: str

    @property
    def difference(self) -> float:
        """By which share of the model's figure the measured one is larger: that of the engine that is farther off."""
        return max((each / self.model - 1 for each in (self.fio, self.builtin) if each is not None), key=abs)

    @property
    def differs(self) -> bool:
        """Whether that is more than is tolerated."""
        return abs(self.difference) > TOLERANCE

    @property
    def why(self) -> str:
        """What there is to say of a difference: where the time went, or that less of it went than must."""
        slower = self.difference > 0 if self.unit == "us" else self.difference < 0
        return "" if not self.differs else self.account if slower else "faster than its parameters allow"

    def facts(self) -> Node:
        """Return it for JSON."""
        return {**asdict(self), "difference": self.difference, "differs": self.differs}


def median(rows: Sequence[Row]) -> Row:
    """Return one line of several measurements: each engine's median, and where the time went nearest to the worse."""
    made = replace(rows[0], fio=_median(row.fio for row in rows), builtin=_median(row.builtin for row in rows))
    return replace(made, account=min(rows, key=lambda row: abs(row.difference - made.difference)).account)


def _median(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return statistics.median(told) if told else None


def points(wanted: Wanted) -> list[Point]:
    """Return what a storage is asked for, in this order: the first makes the file."""
    random = [Point("random_read", block, depth) for block in _BLOCKS for depth in _DEPTHS]
    return [Point("write"), Point("read"), *(random if wanted.model else [])]


def measure(name: str, storage: Storage, wanted: Wanted, report: Callable[[Wait], None], show: Progress) -> list[Row]:
    """Measure a storage that is up; `report` is told who has it meanwhile, `show` how far it is.

    Raises EnvironmentFaultError where it is another user's, its model has faults, it has no room, or an engine fails.
    """
    _see_that_it_is_ours(storage)
    _see_that_it_behaves(name, storage, wanted)
    rows: list[Row] = []
    with _place(name, storage, wanted, report) as place:
        until = time.monotonic() + _AGAIN_S
        for done, point in enumerate(asked := points(wanted)):
            show(name, done, len(asked), str(point))
            found = _measured(place, point)
            if any(row.differs for row in found) and time.monotonic() < until:  # others may have had the machine
                again = (_measured(place, point), _measured(place, point))
                # Of three by each engine the middle: the last, or the best, would be picked by what it says.
                found = [median(each) for each in zip(found, *again, strict=True)]
            rows += found
    return rows


def _see_that_it_is_ours(storage: Storage) -> None:
    """Refuse the folder of another user: fio opens a file by its name, where that user may have put a link (root)."""
    if (owner := storage.root.stat().st_uid) != os.geteuid():
        raise EnvironmentFaultError(
            f"{storage.root} is another user's ({owner})", f"check it as its owner: sudo -u '#{owner}' …"
        )


def _see_that_it_behaves(name: str, storage: Storage, wanted: Wanted) -> None:
    faults = {key: value for key, value in served(storage.model)["faults"].items() if value} if wanted.model else {}
    if faults:
        given = ", ".join(f"{key} {value:g}" for key, value in faults.items())
        mended = "; ".join(f"echo {key} 0" for key in faults)
        raise EnvironmentFaultError(f"{name} has faults: {given}", f"as root: ({mended}) > {storage.model}/faults")


@contextmanager
def _place(name: str, storage: Storage, wanted: Wanted, report: Callable[[Wait], None]) -> Iterator[Place]:
    """Have a storage alone, and take away the file that is made on it, and those of checks that were killed."""
    root = storage.root.resolve()
    with locks.held("lock", locks.lock_path(root, root), {}, locks.device_locks([str(root)]), report):
        for left in files.names(root):
            if left.startswith(_PREFIX):
                files.remove(root / left)
        file = root / f"{_PREFIX}{secrets.token_hex(8)}{files.TEMPORARY}"
        try:
            yield Place(name, storage, wanted, file, _file_bytes(name, root, wanted))
        except EngineError as error:
            raise EnvironmentFaultError(f"{name}: {error}", "python -m campaign testbed status") from error
        finally:
            files.remove(file, missing_ok=True)


def _file_bytes(name: str, root: Path, wanted: Wanted) -> int:
    """Return the size of the file: whole requests, and at most half of what is free."""
    room, rate = durable.free_bytes(root) // 2, wanted.speed.read_mb_per_s
    if room < _LEAST_BYTES:
        needs = f"a check needs {2 * _LEAST_BYTES / 1e6:.0f} MB"
        raise EnvironmentFaultError(f"{name} has {2 * room / 1e6:.0f} MB free, and {needs}", "free some room there")
    most = _MOST_BYTES if rate is None else min(_MOST_BYTES, int(rate * 1e6 * _FILE_S))
    return max(_LEAST_BYTES, min(room, most) // _LEAST_BYTES * _LEAST_BYTES)


def _measured(place: Place, point: Point) -> list[Row]:
    """Measure by the built-in engine, which makes the file, and by fio, where it is installed."""
    ours = _accounted(place, point, _builtin)
    theirs = _accounted(place, point, _fio) if shutil.which("fio") else None
    return [*_rows(place, point, theirs, ours)]


def _accounted(place: Place, point: Point, engine: Callable[[Place, Point], Measured]) -> Measured:
    if place.wanted.model is None:
        return engine(place, point)
    before = served(place.storage.model)
    measured = engine(place, point)
    return replace(measured, account=account(place, point, measured.rate, before, served(place.storage.model)))


def _builtin(place: Place, point: Point) -> Measured:
    if point.access == "write":
        files.remove(place.file, missing_ok=True)
    order = Order(point.access, place.file, place.file_bytes, point.block_bytes, direct=True)
    done = builtin.run(replace(order, threads=point.depth, seconds_max=_BUILTIN_S))
    return Measured((done.requests if point.random else done.moved_bytes / 1e6) / done.wall_s)


def _fio(place: Place, point: Point) -> Measured:
    return fio_outcome(external.said(fio_command(place, point), place.file.parent, None), point)


def fio_command(place: Place, point: Point) -> list[str]:
    """Return fio's command line; the file is there, and is named relative to its folder."""
    words = {
        "name": "check",
        "filename": place.file.name,
        "rw": _WORDS[point.access],
        "bs": point.block_bytes,
        "size": place.file_bytes,
        "ioengine": "libaio",
        "iodepth": point.depth,
        "direct": 1,
        "clocksource": "clock_gettime",  # it need not find out first how fast the processor's counter runs
        "lat_percentiles": 1,
        "output-format": "json",
    }
    if point.access == "write":
        words |= {"overwrite": 1, "end_fsync": 1}
    else:
        words |= {"allow_file_create": 0}
    if point.random:
        seconds = _READS / (place.rate(point) or _READS)
        words |= {"runtime": f"{1e3 * min(_MOST_S, max(_LEAST_S, seconds)):.0f}ms"}
    flags = ["--thread", *(["--time_based"] if point.random else [])]
    return ["fio", *(f"--{key}={value}" for key, value in words.items()), *flags]


def fio_outcome(answer: str, point: Point) -> Measured:
    """Read fio's answer; raises EngineError where it is not whole."""
    try:
        (job,) = next(each["jobs"] for each in external.documents(answer) if "jobs" in each)
        side = job["write" if point.access == "write" else "read"]
        percentiles = side["lat_ns"]["percentile"]
        latencies = {key: external.number(percentiles, f"{100 * share:f}") / 1e3 for key, share in _SHARES.items()}
        rate = external.number(side, "iops") if point.random else external.number(side, "bw_bytes") / 1e6
    except (StopIteration, LookupError, TypeError, ValueError) as error:
        raise EngineError("fio gave no whole answer") from error
    return Measured(rate, latencies)


def account(place: Place, point: Point, rate: float, before: Served, after: Served) -> str:
    """Say where the time went, by the server's own account, as averages of its requests.

    A random read waits for the model, for a server that answers late, and on the way, by Little's law; `path_us` of the
    way are taken off each answer.
    """
    model, expects = place.wanted.model, place.rate(point)
    requests = after["reads"] + after["writes"] - before["reads"] - before["writes"]
    if model is None or not expects or not requests or not rate:
        return ""
    late_us = (after["late_s"] - before["late_s"]) / requests * 1e6
    if not point.random:
        idle = 1 - (after["busy_s"] - before["busy_s"]) * rate / (place.file_bytes / 1e6)
        return f"this machine: nothing was asked of the model in {idle:.0%} of the time, answers {late_us:,.0f} us late"
    early_us, server_us = model.parameters["path_us"], (after["queue_s"] - before["queue_s"]) / requests * 1e6
    model_us = server_us - late_us + early_us
    if model_us > point.depth / expects * 1e6 * (1 + TOLERANCE):
        return f"the model itself took {model_us:,.0f} us"
    way_us = point.depth / rate * 1e6 - server_us - early_us
    return f"this machine: answers {late_us:,.0f} us late, the way {way_us:+,.0f} us beyond path_us"


def _rows(place: Place, point: Point, theirs: Measured | None, ours: Measured) -> Iterator[Row]:
    said = str(point)
    if model := place.rate(point):
        unit = "reads/s" if point.random else "MB/s"
        row = Row(place.name, said, unit, model, theirs.rate if theirs else None, ours.rate, ours.account)
        worse = theirs is not None and abs(theirs.rate / model - 1) == abs(row.difference)
        yield replace(row, account=theirs.account) if theirs and worse else row
    if point.random and point.depth == 1 and theirs:
        for label, share in _SHARES.items():
            if model := expected.read_us(place.wanted, point.block_bytes, place.file_bytes, share):
                yield Row(place.name, f"{said}, {label}", "us", model, theirs.latencies_us[label], None, theirs.account)


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table, and below it by storage what differs."""
    head = ("storage", "what", "model", "", "fio", "built-in", "difference", "")
    lines = console.table([head, *(_texts(row) for row in rows)], _NUMBERS)
    off = defaultdict(list)
    for row in rows:
        if row.differs:
            off[row.storage].append(f"{row.what} {row.difference:+.0%}")
    return [
        *lines,
        *(f"{name} is more than {TOLERANCE:.0%} off its model: {'; '.join(what)}" for name, what in off.items()),
    ]


def _texts(row: Row) -> tuple[str, ...]:
    figures = ("-" if each is None else _figure(each) for each in (row.fio, row.builtin))
    return (row.storage, row.what, _figure(row.model), row.unit, *figures, f"{row.difference:+.1%}", row.why)


def _figure(value: float) -> str:
    return f"{value:,.1f}" if value < _WHOLE else f"{value:,.0f}"
