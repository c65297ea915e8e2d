"""Read the time logs of one run, and convert the times of all events to one clock.

The logs are written by `jobs.events.TimeLog` or by NERSC's TimeLogger. A log of `jobs.events.TimeLog`, called a stream,
has a head, blocks of packed events and an end. If a log is damaged, the error names the damaged line.
"""

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypedDict, TypeVar

import numpy as np
from msgspec import Meta

from jobs.events import nersc_logs
from jobs.events.run_log import MOST_EVENTS, ClockBounds, ProcessLog, RunLog, bounds_of_clocks, damaged_line_error
from jobs.events.table import Events, EventsError
from jobs.events.time_log import ACTIONS, PHASES, UNKNOWN
from jobs.model import reading
from jobs.model.reading import Count, Line
from jobs.system import untrusted

OURS, CSV, WORKBOOK = "ours", "csv", "workbook"
KINDS = "take files of jobs.events.TimeLog, NERSC's CSV with its header, or their workbooks"
MOST_BYTES = 1 << 32
SCHEMA = 1
EVENT = np.dtype([
    ("thread", "<u8"), ("start", "<i8"), ("taken", "<i8"), ("size", "<i8"), ("place", "<i4"), ("file", "<i4"),
    ("action", "u1"),
])  # fmt: skip
LONGEST_LINE = 1 << 24
# The limit is 73 years in nanoseconds, so that the sum of three times fits into 64 bits.
LATEST_NS = 1 << 61
_Kind = TypeVar("_Kind")
UNFINISHED = "has no end: its process was killed, or still runs"
TAKE_IT = "--unfinished reads the events that the log has"


def read_logs(paths: Sequence[Path], *, unfinished: bool = False) -> tuple[RunLog, Mapping[str, ClockBounds]]:
    """Return the events of all files on the clock of the lowest rank, and the offsets of all other clocks.

    Raises EventsError if a file is not a time log, if a file is damaged, or if the files belong to several runs.
    """
    streams, rows = Streams(), nersc_logs.NerscEvents()
    for path in paths:
        with _opened(path) as file:
            kind = _kind(file, str(path))
            if kind == OURS:
                streams.add_stream(StreamReader(file, str(path), unfinished=unfinished))
            elif kind == WORKBOOK:
                rows.workbook(file, str(path))
            else:
                rows.csv(file, str(path))
    if streams.streams and len(rows):
        message = "some files are time logs of jobs.events.TimeLog, and some files are NERSC's"
        raise EventsError(message, "give only the logs of one run")
    if streams.streams:
        return streams.log()
    if not len(rows):
        raise EventsError("there is no event in these files", KINDS)
    return RunLog(*rows.events(), rows.skipped), {}


def _opened(path: Path) -> BinaryIO:
    """Return an opened log file; a symbolic link is followed, because the user named the link."""
    try:
        return untrusted.open_bounded(Path(os.path.realpath(path)), MOST_BYTES)
    except untrusted.UntrustedError as error:
        raise EventsError(f"{path}: {error}", KINDS) from error


def _kind(file: BinaryIO, name: str) -> str:
    line = file.readline(nersc_logs.LONGEST_LINE)
    file.seek(0)
    for kind, matches in {OURS: _is_stream, WORKBOOK: nersc_logs.is_workbook, CSV: nersc_logs.column_names}.items():
        if matches(line):
            return kind
    raise EventsError(f"{name}, line 1: it is no time log", KINDS)


def _is_stream(line: bytes) -> bool:
    return line.startswith(b'{"timelog":')


_Moment = Annotated[int, Meta(ge=0, lt=LATEST_NS)]
_Small = Annotated[int, Meta(ge=0, lt=1 << 31)]  # number of a rank, a process or a place
_Known = Annotated[int, Meta(ge=UNKNOWN, lt=1 << 31)]
_Place = tuple[Annotated[int, Meta(ge=0, lt=len(PHASES))], _Known, _Known]  # phase, epoch and step


class _Head(TypedDict):
    timelog: Count
    id: Line
    run: str
    rank: _Small
    ranks: _Small
    host: Line
    pid: _Small
    clock: Line
    started_ns: _Moment
    realtime_ns: _Moment
    actions: list[Literal[ACTIONS]]  # type: ignore[valid-type] # the actions that the writing program knew
    phases: list[Literal[PHASES]]  # type: ignore[valid-type]


class _Block(TypedDict):
    written_ns: _Moment
    first: _Small
    places: list[_Place]
    files: list[str]
    events: str


class _End(TypedDict):
    ended_ns: _Moment
    realtime_ns: _Moment
    count: _Small


class StreamReader:
    """Reads one stream (a file that `jobs.events.TimeLog` wrote)."""

    def __init__(self, file: BinaryIO, name: str, *, unfinished: bool) -> None:
        self.name, self.unfinished, self.number = name, unfinished, 0
        self.files: list[str] = []
        self._places: list[list[int]] = []
        self._blocks: list[np.ndarray[Any, Any]] = []
        self._count = 0
        self._lines = self._read(file)
        self._head: Any = self._value(next(self._lines, b"{}"), _Head)
        if self._head["timelog"] > SCHEMA:
            raise self._error("was written by a newer version", "read the log with the newer version")
        if self._head["phases"] != list(PHASES) or not self._head["rank"] < self._head["ranks"]:
            raise self._error("is no head of a time log")
        self._written_ns = self._head["started_ns"]

    def stream(self) -> tuple[ProcessLog, Events]:
        """Return the description and the events of the process that wrote the log.

        Times are given by the clock of this process.
        """
        head, end = self._head, self._read_end()
        offset_ns = head["realtime_ns"] - head["started_ns"]
        ended_ns = end["ended_ns"] if end else self._written_ns
        drift_ns = end["realtime_ns"] - end["ended_ns"] - offset_ns if end else None
        facts = {key: head[key] for key in ("rank", "run", "ranks", "host", "clock")}
        times = {"start_ns": head["started_ns"], "end_ns": ended_ns, "clock_ns": offset_ns, "moved_ns": drift_ns}
        return ProcessLog(identity=head["id"], process=head["pid"], **facts, **times), self._table()

    def _read_end(self) -> _End | None:
        """Read all blocks and return the end of the log, or None if the log has no end and may be unfinished."""
        for line in self._lines:
            if line.startswith(b'{"ended_ns"'):
                end = self._value(line, _End)
                if end["count"] != self._count or end["ended_ns"] < self._written_ns:
                    raise self._error(f"announces {end['count']} events, but the log has {self._count}")
                if next(self._lines, None) is not None:
                    raise self._error("goes on after its end: two logs in one file")
                return end
            self._add_block(self._value(line, _Block))
        if not self.unfinished:
            raise damaged_line_error(self.name, self.number, UNFINISHED, TAKE_IT)
        return None

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the complete lines. An incomplete last line is an error if the log must be finished."""
        while line := file.readline(LONGEST_LINE + 1):
            self.number += 1
            if len(line) > LONGEST_LINE:
                raise self._error(f"has more than {LONGEST_LINE} bytes")
            if not line.endswith(b"\n"):
                if self.unfinished:
                    return
                raise self._error(f"is cut off; the log {UNFINISHED}", TAKE_IT)
            yield line

    def _value(self, text: bytes, kind: type[_Kind]) -> _Kind:
        try:
            value = untrusted.json_value(text, any_number=True)
        except untrusted.UntrustedError:
            raise self._error("is no JSON") from None
        try:
            return reading.check_value(value, kind)
        except untrusted.UntrustedError as error:
            raise self._error(f"is damaged: {error}") from None

    def _add_block(self, block: Mapping[str, Any]) -> None:
        """Add the events of a block; raise EventsError if the block does not continue the previous block."""
        try:
            events = np.frombuffer(base64.b64decode(block["events"], validate=True), EVENT)
        except ValueError:
            raise self._error("has events that are cut off or damaged") from None
        if block["first"] != self._count:
            earlier = f"{self._count} were before it"
            raise self._error(f"begins at event {block['first']}, and {earlier}: a block is missing, or occurs twice")
        if block["written_ns"] < self._written_ns:
            raise self._error("was written earlier than the previous one")
        self._written_ns = block["written_ns"]
        self._places += block["places"]
        self.files += block["files"]
        if max(self._count + len(events), len(self._places), len(self.files)) > MOST_EVENTS:
            raise self._error(f"has more than {MOST_EVENTS} events, places or files", "give the log in parts")
        for fault, is_faulty in self._faults(events).items():
            if is_faulty.any():
                raise damaged_line_error(
                    self.name, self.number, f"event {self._count + int(is_faulty.argmax())} {fault}"
                )
        self._count += len(events)
        self._blocks.append(events)

    def _faults(self, events: np.ndarray[Any, Any]) -> Mapping[str, np.ndarray[Any, Any]]:
        start, duration = events["start"], events["taken"]
        return {
            "has no action": events["action"] >= len(self._head["actions"]),
            "has no place": (events["place"] < 0) | (events["place"] >= len(self._places)),
            "has no file": (events["file"] < 0) | (events["file"] > len(self.files)),
            "begins before its log": start < self._head["started_ns"],
            "ends before it begins": duration < 0,
            "ends after it was written": (start > self._written_ns) | (duration > self._written_ns - start),
        }

    def _table(self) -> Events:
        events = np.concatenate([np.empty(0, EVENT), *self._blocks])
        phase, epoch, step = np.array(self._places, dtype=np.int32).reshape(-1, 3)[events["place"]].T
        actions = np.array([ACTIONS.index(action) for action in self._head["actions"]], dtype=np.int16)[
            events["action"]
        ]
        return Events(
            {},
            start=events["start"],
            end=events["start"] + events["taken"],
            kind=actions,
            thread=np.unique(events["thread"], return_inverse=True)[1],
            rank=np.full(len(events), self._head["rank"]),
            file=events["file"] - 1,
            bytes=np.maximum(events["size"], UNKNOWN),
            stream=np.zeros(len(events), dtype=np.int32),
            caller=actions,
            phase=phase,
            epoch=epoch,
            step=step,
            taken=events["taken"],
        )

    def _error(self, fault: str, hint: str = "") -> Exception:
        return damaged_line_error(self.name, self.number, f"it {fault}", hint)


class Streams:
    """Collects the streams of one run, which are added one after the other."""

    def __init__(self) -> None:
        self.streams: list[ProcessLog] = []
        self._names: list[str] = []
        self._parts: list[Events] = []
        self._files: list[str] = []

    def add_stream(self, reader: StreamReader) -> None:
        """Add one stream; raise EventsError if the stream is damaged, was added before, or belongs to another run."""
        stream, events = reader.stream()
        if any(stream.identity == other.identity for other in self.streams):
            raise EventsError(f"{reader.name}, line 1: this log was given twice", "give each once")
        for key in ("run", "ranks") if self.streams else ():
            value, first_value = getattr(stream, key), getattr(self.streams[0], key)
            if value != first_value:
                message = f"{reader.name}, line 1: its {key} is {value!r}, and that of the first file {first_value!r}"
                raise EventsError(message, "give the logs of one run")
        file = events["file"]
        numbers = {
            "file": np.where(file < 0, file, file + len(self._files)),
            "stream": events["stream"] + len(self.streams),
        }
        self._parts.append(events.with_columns(numbers))
        self._files += reader.files
        self._names.append(reader.name)
        # A clock without a name gets a unique name, because no other process may use this clock.
        self.streams.append(stream if stream.clock else replace(stream, clock=stream.identity or ""))
        if sum(map(len, self._parts)) > MOST_EVENTS:
            raise EventsError(f"up to {reader.name} there are more than {MOST_EVENTS} events", "give fewer ranks")

    def log(self) -> tuple[RunLog, Mapping[str, ClockBounds]]:
        """Return the events of all streams on one clock, and the bounds of the offsets of all clocks.

        Raises EventsError if the streams seem to belong to two runs.
        """
        if not self.streams[0].run:
            self._require_one_run()
        words = {"kind": ACTIONS, "caller": ACTIONS, "phase": PHASES, "file": self._files}
        names = self._parts[0].columns
        events = Events(words, **{name: np.concatenate([part[name] for part in self._parts]) for name in names})
        events, streams, clock_bounds = _to_one_clock(events, self.streams)
        return RunLog(events, streams), clock_bounds

    def _require_one_run(self) -> None:
        """Raise EventsError if a process began after all other processes of its rank had ended.

        If the run has no name, such processes probably belong to two runs.
        """
        unix_ns, ended_ns = _unix_ns(self.streams), dict[int, int]()
        began_ns = [stream.start_ns + unix_ns[stream.clock] for stream in self.streams]
        for index in np.argsort(began_ns, kind="stable").tolist():
            stream = self.streams[index]
            if began_ns[index] > ended_ns.get(stream.rank, began_ns[index]):
                reason = f"{self._names[index]}: it begins after the other logs of rank {stream.rank} have ended"
                cure = "give only the logs of one run; if this is one run, name it in the script: TimeLog(…, run=NAME)"
                raise EventsError(f"{reason}, and no run is named", cure)
            end_ns = stream.end_ns + unix_ns[stream.clock]
            ended_ns[stream.rank] = max(end_ns, ended_ns.get(stream.rank, end_ns))


def _unix_ns(streams: Sequence[ProcessLog]) -> Mapping[str, int]:
    """Return the Unix time in ns at which each clock was zero.

    If several processes use the same clock, the value of the first process is taken.
    """
    unix_ns: dict[str, int] = {}
    for stream in streams:
        unix_ns.setdefault(stream.clock, stream.clock_ns)
    return unix_ns


def _to_one_clock(
    events: Events, streams: Sequence[ProcessLog]
) -> tuple[Events, list[ProcessLog], Mapping[str, ClockBounds]]:
    """Return the events and the streams with Unix times of the first clock, and the bounds of all clocks."""
    unix_ns = _unix_ns(streams)
    barriers = events.with_words("kind", "barrier")
    clock_bounds = bounds_of_clocks(streams, _shift(barriers, [unix_ns[stream.clock] for stream in streams]))
    offsets = [unix_ns[stream.clock] - clock_bounds[stream.clock].shift_ns for stream in streams]
    shifted_streams = [
        replace(stream, start_ns=stream.start_ns + offset, end_ns=stream.end_ns + offset)
        for stream, offset in zip(streams, offsets, strict=True)
    ]
    return _shift(events, offsets), shifted_streams, clock_bounds


def _shift(events: Events, offsets_ns: Sequence[int]) -> Events:
    """Return the events with shifted times; `offsets_ns` has the shift for each stream."""
    shift_ns = np.array(offsets_ns, dtype=np.int64)[events["stream"]]
    return events.with_columns({edge: events[edge] + shift_ns for edge in ("start", "end")})
