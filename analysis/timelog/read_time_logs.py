"""Read the files of one run: which kind each is, what belongs together, and by which clock."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from analysis.errors import AnalysisError
from analysis.timelog import nersc_logs, ours
from analysis.timelog.clocks import Clock, clocks
from analysis.timelog.log import ACTIONS, MOST_EVENTS, Events, Log, Stream
from jobs.system import untrusted

OURS, CSV, WORKBOOK = "ours", "csv", "workbook"
KINDS = "take files of jobs.observe.TimeLog, NERSC's CSV with its header, or their workbooks"
MOST_BYTES = 1 << 32


def read(paths: Sequence[Path], *, unfinished: bool = False) -> tuple[Log, Mapping[str, Clock]]:
    """Return the events of all files, by the clock of the lowest rank, and how the others' clocks compare with it.

    Raises AnalysisError: a file is no time log, or damaged (with its line), or they are not of one run.
    """
    streams, rows = Streams(), nersc_logs.Rows()
    for path in paths:
        with _opened(path) as file:
            kind = _kind(file, str(path))
            if kind == OURS:
                streams.take(ours.Reader(file, str(path), unfinished=unfinished))
            elif kind == WORKBOOK:
                rows.workbook(file, str(path))
            else:
                rows.csv(file, str(path))
    if streams.found and len(rows):
        raise AnalysisError("some of these files are our time logs, and some are NERSC's", "give those of one run")
    if streams.found:
        return streams.log()
    if not len(rows):
        raise AnalysisError("there is no event in these files", KINDS)
    events, processes = rows.events()
    return Log(events, rows.words("action"), rows.words("caller"), [], processes, rows.skipped), {}


def _opened(path: Path) -> BinaryIO:
    """Open a log; the path is the user's word, also where it is a link."""
    try:
        return untrusted.opened(Path(os.path.realpath(path)), MOST_BYTES)
    except untrusted.UntrustedError as error:
        raise AnalysisError(f"{path}: {error}", KINDS) from error


def _kind(file: BinaryIO, name: str) -> str:
    line = file.readline(nersc_logs.LONGEST_LINE)
    file.seek(0)
    for kind, fits in {OURS: ours.begins, WORKBOOK: nersc_logs.begins, CSV: nersc_logs.heading}.items():
        if fits(line):
            return kind
    raise AnalysisError(f"{name}, line 1: it is no time log", KINDS)


class Streams:
    """Logs of ours, one after the other."""

    def __init__(self) -> None:
        self.found: list[Stream] = []
        self._names: list[str] = []
        self._parts: list[Events] = []
        self._files: list[str] = []

    def take(self, reader: ours.Reader) -> None:
        """Take in one more. Raises AnalysisError: it is damaged, there already, or of another run."""
        stream, events = reader.stream()
        if any(stream.identity == other.identity for other in self.found):
            raise AnalysisError(f"{reader.name}, line 1: this log is among the files already", "give each once")
        for key in ("run", "ranks") if self.found else ():
            here, there = getattr(stream, key), getattr(self.found[0], key)
            if here != there:
                why = f"{reader.name}, line 1: its {key} is {here!r}, and that of the first file {there!r}"
                raise AnalysisError(why, "give the logs of one run")
        file = np.where(events.file < 0, events.file, events.file + len(self._files))
        self._parts.append(events._replace(file=file, stream=events.stream + len(self.found)))
        self._files += reader.files
        self._names.append(reader.name)
        # A clock that has no name is shared with nobody.
        self.found.append(stream if stream.clock else replace(stream, clock=stream.identity or ""))
        if sum(part.number for part in self._parts) > MOST_EVENTS:
            raise AnalysisError(f"up to {reader.name} there are more than {MOST_EVENTS} events", "give fewer ranks")

    def log(self) -> tuple[Log, Mapping[str, Clock]]:
        """Return all of them by one clock. Raises AnalysisError: they look as if they were of two runs."""
        if not self.found[0].run:
            self._must_be_one_run()
        events = Events(*(np.concatenate(columns) for columns in zip(*self._parts, strict=True)))
        events, streams, found = _by_one_clock(events, self.found)
        return Log(events, ACTIONS, ACTIONS, self._files, streams), found

    def _must_be_one_run(self) -> None:
        """Of a run without a name, refuse a process that began when all others of its rank had ended."""
        unix_ns, ended_ns = _unix_ns(self.found), dict[int, int]()
        began_ns = [stream.start_ns + unix_ns[stream.clock] for stream in self.found]
        for place in np.argsort(began_ns, kind="stable").tolist():
            stream = self.found[place]
            if began_ns[place] > ended_ns.get(stream.rank, began_ns[place]):
                why = f"{self._names[place]}: it begins after the other logs of rank {stream.rank} have ended"
                cure = "give the logs of one run; if they are, its script names it: TimeLog(…, run=NAME)"
                raise AnalysisError(f"{why}, and no run is named", cure)
            end_ns = stream.end_ns + unix_ns[stream.clock]
            ended_ns[stream.rank] = max(end_ns, ended_ns.get(stream.rank, end_ns))


def _unix_ns(streams: Sequence[Stream]) -> Mapping[str, int]:
    """Return the Unix time of each clock's zero: processes that share a clock have its first time of day."""
    unix_ns: dict[str, int] = {}
    for stream in streams:
        unix_ns.setdefault(stream.clock, stream.clock_ns)
    return unix_ns


def _by_one_clock(events: Events, streams: Sequence[Stream]) -> tuple[Events, list[Stream], Mapping[str, Clock]]:
    """Return all times as Unix time of the first clock."""
    unix_ns = _unix_ns(streams)
    barriers = events.at(events.action == ACTIONS.index("barrier"))
    found = clocks(streams, _later(barriers, [unix_ns[stream.clock] for stream in streams]))
    offsets = [unix_ns[stream.clock] - found[stream.clock].shift_ns for stream in streams]
    moved = [
        replace(stream, start_ns=stream.start_ns + offset, end_ns=stream.end_ns + offset)
        for stream, offset in zip(streams, offsets, strict=True)
    ]
    return _later(events, offsets), moved, found


def _later(events: Events, offsets_ns: Sequence[int]) -> Events:
    """Return events moved by the offset of their stream."""
    added = np.array(offsets_ns, dtype=np.int64)[events.stream]
    return events._replace(start_ns=events.start_ns + added, end_ns=events.end_ns + added)
