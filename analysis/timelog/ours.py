"""Read a stream of `jobs.observe.TimeLog`: a head, blocks of packed events, an end; all else is refused by line."""

import base64
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, BinaryIO, Literal, TypedDict, TypeVar

import numpy as np
from msgspec import Meta

from analysis.timelog.log import ACTIONS, MOST_EVENTS, PHASES, UNKNOWN, Events, Stream, misread
from jobs.model import reading
from jobs.model.values import Count, Line
from jobs.system import untrusted

SCHEMA = 1
EVENT = np.dtype([
    ("thread", "<u8"), ("start", "<i8"), ("taken", "<i8"), ("size", "<i8"), ("place", "<i4"), ("file", "<i4"),
    ("action", "u1"),
])  # fmt: skip
LONGEST_LINE = 1 << 24
# Nanoseconds of 73 years: sums of three stay within 64 bits.
LATEST_NS = 1 << 61
_Kind = TypeVar("_Kind")
UNFINISHED = "has no end: its process was killed, or goes on"
TAKE_IT = "--unfinished takes what is there"


def begins(line: bytes) -> bool:
    """Return whether this is the first line of such a stream."""
    return line.startswith(b'{"timelog":')


_Moment = Annotated[int, Meta(ge=0, lt=LATEST_NS)]
_Small = Annotated[int, Meta(ge=0, lt=1 << 31)]  # of a rank, a process, a place
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
    actions: list[Literal[ACTIONS]]  # type: ignore[valid-type] # those of this program
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


class Reader:
    """Reads one stream; `lines` are counted from 1."""

    def __init__(self, file: BinaryIO, name: str, *, unfinished: bool) -> None:
        self.name, self.unfinished, self.number = name, unfinished, 0
        self.files: list[str] = []
        self._places: list[list[int]] = []
        self._blocks: list[np.ndarray[Any, Any]] = []
        self._count = 0
        self._lines = self._read(file)
        self._head: Any = self._shaped(next(self._lines, b"{}"), _Head)
        if self._head["timelog"] > SCHEMA:
            raise self._odd("was written by a newer version", "analyse it with that")
        if self._head["phases"] != list(PHASES) or not self._head["rank"] < self._head["ranks"]:
            raise self._odd("is no head of a time log")
        self._written_ns = self._head["started_ns"]

    def stream(self) -> tuple[Stream, Events]:
        """Return who wrote it, and its events; times are of its own clock."""
        head, end = self._head, self._ended()
        offset_ns = head["realtime_ns"] - head["started_ns"]
        ended_ns = end["ended_ns"] if end else self._written_ns
        moved_ns = end["realtime_ns"] - end["ended_ns"] - offset_ns if end else None
        who = {key: head[key] for key in ("rank", "run", "ranks", "host", "clock")}
        times = {"start_ns": head["started_ns"], "end_ns": ended_ns, "clock_ns": offset_ns, "moved_ns": moved_ns}
        return Stream(identity=head["id"], process=head["pid"], **who, **times), self._table()

    def _ended(self) -> _End | None:
        """Take in all blocks; return the end, None where it is missing and need not be there."""
        for each in self._lines:
            if each.startswith(b'{"ended_ns"'):
                end = self._shaped(each, _End)
                if end["count"] != self._count or end["ended_ns"] < self._written_ns:
                    raise self._odd(f"ends {end['count']} events, and it has {self._count}")
                if next(self._lines, None) is not None:
                    raise self._odd("goes on after its end: two logs in one file")
                return end
            self._take(self._shaped(each, _Block))
        if not self.unfinished:
            raise misread(self.name, self.number, UNFINISHED, TAKE_IT)
        return None

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield whole lines; one that a process was killed in is left out where the log may be unfinished."""
        while each := file.readline(LONGEST_LINE + 1):
            self.number += 1
            if len(each) > LONGEST_LINE:
                raise self._odd(f"has more than {LONGEST_LINE} bytes")
            if not each.endswith(b"\n"):
                if self.unfinished:
                    return
                raise self._odd(f"is cut off; the log {UNFINISHED}", TAKE_IT)
            yield each

    def _shaped(self, text: bytes, kind: type[_Kind]) -> _Kind:
        try:
            value = untrusted.json_value(text, any_number=True)
        except untrusted.UntrustedError:
            raise self._odd("is no JSON") from None
        try:
            return reading.checked(value, kind)
        except untrusted.UntrustedError as error:
            raise self._odd(f"is damaged: {error}") from None

    def _take(self, block: Mapping[str, Any]) -> None:
        """Take in a block, which must fit to those before it."""
        try:
            events = np.frombuffer(base64.b64decode(block["events"], validate=True), EVENT)
        except ValueError:
            raise self._odd("has events that are cut off or damaged") from None
        if block["first"] != self._count:
            before = f"{self._count} were before it"
            raise self._odd(f"begins at event {block['first']}, and {before}: a block is missing, or there twice")
        if block["written_ns"] < self._written_ns:
            raise self._odd("was written before the one before it")
        self._written_ns = block["written_ns"]
        self._places += block["places"]
        self.files += block["files"]
        if max(self._count + len(events), len(self._places), len(self.files)) > MOST_EVENTS:
            raise self._odd(f"has more than {MOST_EVENTS} events, places or files", "give it in parts")
        for why, wrong in self._faults(events).items():
            if wrong.any():
                raise misread(self.name, self.number, f"event {self._count + int(wrong.argmax())} {why}")
        self._count += len(events)
        self._blocks.append(events)

    def _faults(self, events: np.ndarray[Any, Any]) -> Mapping[str, np.ndarray[Any, Any]]:
        start, taken = events["start"], events["taken"]
        return {
            "has no action": events["action"] >= len(self._head["actions"]),
            "is at no place": (events["place"] < 0) | (events["place"] >= len(self._places)),
            "is of no file": (events["file"] < 0) | (events["file"] > len(self.files)),
            "begins before its log": start < self._head["started_ns"],
            "ends before it begins": taken < 0,
            "ends after it was written": (start > self._written_ns) | (taken > self._written_ns - start),
        }

    def _table(self) -> Events:
        events = np.concatenate([np.empty(0, EVENT), *self._blocks])
        phase, epoch, step = np.array(self._places, dtype=np.int32).reshape(-1, 3)[events["place"]].T
        actions = np.array([ACTIONS.index(each) for each in self._head["actions"]], dtype=np.int16)[events["action"]]
        return Events(
            rank=np.full(len(events), self._head["rank"]),
            stream=np.zeros(len(events), dtype=np.int32),
            thread=np.unique(events["thread"], return_inverse=True)[1],
            action=actions,
            caller=actions,
            phase=phase,
            epoch=epoch,
            step=step,
            file=events["file"] - 1,
            start_ns=events["start"],
            end_ns=events["start"] + events["taken"],
            taken_ns=events["taken"],
            size_bytes=np.maximum(events["size"], UNKNOWN),
        )

    def _odd(self, why: str, hint: str = "") -> Exception:
        return misread(self.name, self.number, f"it {why}", hint)
