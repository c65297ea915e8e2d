"""Read a stream of `jobs.observe.TimeLog`: a head, blocks of packed events, an end; all else is refused by line."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from analysis.records.shape import Check, MisfitError, count, each_of, keyed, line, one_of, text
from analysis.timelog.log import ACTIONS, MOST_EVENTS, PHASES, UNKNOWN, Events, Stream, misread
from jobs.system import untrusted

SCHEMA = 1
EVENT = np.dtype([
    ("thread", "<u8"), ("start", "<i8"), ("taken", "<i8"), ("size", "<i8"), ("place", "<i4"), ("file", "<i4"),
    ("action", "u1"),
])  # fmt: skip
LONGEST_LINE = 1 << 24
# Nanoseconds of 73 years: sums of three stay within 64 bits.
LATEST_NS = 1 << 61
UNFINISHED = "has no end: its process was killed, or goes on"
TAKE_IT = "--unfinished takes what is there"


def begins(line: bytes) -> bool:
    """Return whether this is the first line of such a stream."""
    return line.startswith(b'{"timelog":')


def _whole(end: int, what: str) -> Check:
    def check(value: Any) -> None:
        if type(value) is not int or not 0 <= value < end:
            raise MisfitError(value, what)

    return check


def place(value: Any) -> None:
    """Take phase, epoch and step."""
    if type(value) is not list or [type(each) for each in value] != [int, int, int]:
        raise MisfitError(value, "three whole numbers")
    if not (0 <= value[0] < len(PHASES) and all(UNKNOWN <= each < 1 << 31 for each in value)):
        raise MisfitError(value, "a phase, an epoch and a step")


moment = _whole(LATEST_NS, "a time in ns")
small = _whole(1 << 31, "a number from 0 to 2^31")  # of a rank, a process, a place
_HEAD = keyed({
    "timelog": count, "id": line, "run": text, "rank": small, "ranks": small, "host": line, "pid": small,
    "clock": line, "started_ns": moment, "realtime_ns": moment, "actions": each_of(one_of(*ACTIONS)),
    "phases": each_of(one_of(*PHASES)),
})  # fmt: skip
_BLOCK = keyed({"written_ns": moment, "first": small, "places": each_of(place), "files": each_of(text), "events": text})
_END = keyed({"ended_ns": moment, "realtime_ns": moment, "count": small})


class Reader:
    """Reads one stream; `lines` are counted from 1."""

    def __init__(self, file: BinaryIO, name: str, *, unfinished: bool) -> None:
        self.name, self.unfinished, self.number = name, unfinished, 0
        self.files: list[str] = []
        self._places: list[list[int]] = []
        self._blocks: list[np.ndarray[Any, Any]] = []
        self._count = 0
        self._lines = self._read(file)
        self._head = self._shaped(next(self._lines, b"{}"), _HEAD)
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

    def _ended(self) -> Mapping[str, Any] | None:
        """Take in all blocks; return the end, None where it is missing and need not be there."""
        for each in self._lines:
            if each.startswith(b'{"ended_ns"'):
                end = self._shaped(each, _END)
                if end["count"] != self._count or end["ended_ns"] < self._written_ns:
                    raise self._odd(f"ends {end['count']} events, and it has {self._count}")
                if next(self._lines, None) is not None:
                    raise self._odd("goes on after its end: two logs in one file")
                return end
            self._take(self._shaped(each, _BLOCK))
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

    def _shaped(self, text: bytes, shape: Check) -> Mapping[str, Any]:
        try:
            value: Mapping[str, Any] = untrusted.json_value(text, any_number=True)
            shape(value)
        except MisfitError as error:
            raise self._odd(str(error)) from None
        except untrusted.UntrustedError:
            raise self._odd("is no JSON") from None
        return value

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
