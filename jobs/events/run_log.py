"""Combine the time logs of a run: events of all processes, offsets between the nodes' clocks, time per rank and action.

The offsets are calculated from barriers, because no rank leaves a barrier before all ranks have entered the barrier.
Let rank A enter at e_A and leave at x_A by the clock of A, and let rank B enter at e_B and leave at x_B by the clock of
B. Then the clock of B is ahead of the clock of A by at least e_B - x_A and by at most x_B - e_A. The bounds of all
barriers hold together. A barrier at which no rank has to wait gives the narrowest bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.events.intervals import Times, innermost_pieces, union, without_earlier
from jobs.events.table import Events, EventsError
from jobs.events.time_log import UNKNOWN

# Largest number of events in all files. An event takes about 250 bytes of memory, and 500 bytes while `time_budgets`
# processes the rank of the event.
MOST_EVENTS = 5_000_000


@dataclass(frozen=True)
class ProcessLog:
    """The time log of one process of a rank; times are in ns of the process's monotonic clock.

    `clock` names the clock; processes with the same name use the same clock. `clock_ns` is the Unix time at which the
    clock was zero. `moved_ns` is the drift of the time of day against the clock during the log, or None if the drift is
    unknown. `identity` is None for NERSC's logs, which contain only events.
    """

    rank: int
    start_ns: int
    end_ns: int
    identity: str | None = None
    run: str = ""
    ranks: int = 0
    host: str = ""
    process: int = UNKNOWN
    clock: str = ""
    clock_ns: int = 0
    moved_ns: int | None = None


@dataclass(frozen=True)
class RunLog:
    """All events of a run in Unix time, and the processes of the run; `skipped` lists the damaged rows.

    The column `kind` of the table has the action of an event. The table also has the columns `stream` (an index into
    `streams`), `caller` (a word), `phase`, `epoch`, `step` and `taken`. `taken` is the duration of an event, which
    differs from `end` - `start` in NERSC's logs.
    """

    events: Events
    streams: Sequence[ProcessLog]
    skipped: Sequence[str] = ()

    @property
    def actions(self) -> Sequence[str]:
        """Return the names of the actions."""
        return self.events.words["kind"]

    @property
    def is_ours(self) -> bool:
        """Return whether `jobs.events.TimeLog` wrote the logs, and not NERSC's TimeLogger."""
        return self.streams[0].identity is not None

    @property
    def ranks(self) -> list[int]:
        """Return all ranks in ascending order.

        The unknown rank (-1, in NERSC's logs) is left out if there is any other rank.
        """
        ranks = sorted({stream.rank for stream in self.streams})
        return [rank for rank in ranks if rank != UNKNOWN] or ranks


def damaged_line_error(name: str, line: int, why: str, hint: str = "") -> EventsError:
    """Return the exception for a damaged line of a log file."""
    return EventsError(f"{name}, line {line}: {why}", hint or "copy the file again from its origin")


@dataclass(frozen=True)
class ClockBounds:
    """The bounds of the time by which a clock is ahead of the first clock: from `low_ns` to `high_ns`.

    The bounds are None if the logs have no barrier. If barriers contradict each other, the clocks drifted apart during
    the run by `apart_ns`; the distance between the bounds is then also `apart_ns`.
    """

    low_ns: int | None = None
    high_ns: int | None = None
    apart_ns: int = 0

    @property
    def shift_ns(self) -> int:
        """Return the ns to subtract from the times of the clock.

        The result is 0 if 0 is within the bounds, and otherwise the bound that is nearest to 0.
        """
        if self.low_ns is None or self.high_ns is None:
            return 0
        return min(max(0, self.low_ns), self.high_ns)


def bounds_of_clocks(streams: Sequence[ProcessLog], barriers: Events) -> Mapping[str, ClockBounds]:
    """Return, for the name of each clock, the bounds of its offset from the clock of the lowest rank.

    `barriers` contains the barrier events of all ranks, in Unix time.
    """
    first = min(streams, key=lambda stream: stream.rank).clock
    passages = {
        name: _barrier_passages(name, streams, barriers) for name in dict.fromkeys(stream.clock for stream in streams)
    }
    return {
        name: ClockBounds(0, 0) if name == first else _clock_bounds(*passages[first], *own)
        for name, own in passages.items()
    }


def _barrier_passages(name: str, streams: Sequence[ProcessLog], barriers: Events) -> tuple[Times, Times]:
    """Return, for each barrier, the time of the last entry and of the first exit among the ranks that use a clock."""
    barriers_of_streams = [part for index, part in barriers.grouped_by("stream") if streams[index].clock == name]
    count = min((len(part) for part in barriers_of_streams), default=0)
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    entries = np.max([np.sort(part["start"])[:count] for part in barriers_of_streams], axis=0)
    return entries, np.min([np.sort(part["end"])[:count] for part in barriers_of_streams], axis=0)


def _clock_bounds(entries: Times, exits: Times, other_entries: Times, other_exits: Times) -> ClockBounds:
    count = min(len(entries), len(other_entries))
    if not count:
        return ClockBounds()
    low = int((other_entries[:count] - exits[:count]).max())
    high = int((other_exits[:count] - entries[:count]).min())
    return ClockBounds(min(low, high), max(low, high), max(0, low - high))


UNACCOUNTED = "unaccounted"


@dataclass(frozen=True)
class TimeBudget:
    """The time of one rank, divided by action, in ns.

    The values of `spent_ns` (including `UNACCOUNTED`) add up to the whole time of the rank. A moment of a thread counts
    for the innermost event of the thread. If threads or processes have different actions at the same moment, only the
    action that is earlier in `jobs.events.time_log.ACTIONS` counts. So reading in parallel to computing takes no time.
    In NERSC's logs, the action with the shorter events counts, because shorter events are the inner events.
    """

    rank: int
    start_ns: int
    end_ns: int
    spent_ns: Mapping[str, int]


def time_budgets(log: RunLog, ranks: Sequence[int]) -> Iterator[TimeBudget]:
    """Yield the time budget of each rank in `ranks`."""
    order, events = _priorities(log), dict(log.events.grouped_by("rank"))
    for rank in ranks:
        own_streams = [stream for stream in log.streams if stream.rank == rank]
        start_ns, end_ns = min(stream.start_ns for stream in own_streams), max(stream.end_ns for stream in own_streams)
        time_by_code = _time_by_action(events[rank], order) if rank in events else {}
        action_ns = {log.actions[code]: time_ns for code, time_ns in time_by_code.items()}
        yield TimeBudget(
            rank, start_ns, end_ns, {**action_ns, UNACCOUNTED: end_ns - start_ns - sum(action_ns.values())}
        )


def _priorities(log: RunLog) -> Sequence[int]:
    """Return the codes of the actions in order of priority, with the highest priority first."""
    if log.is_ours:
        return range(len(log.actions))
    means = {code: float(part["taken"].mean()) for code, part in log.events.grouped_by("kind")}
    return sorted(means, key=means.__getitem__)


def _time_by_action(events: Events, order: Sequence[int]) -> Mapping[int, int]:
    """Return the time in ns of each action that has events."""
    pieces = [
        np.empty((3, 0), np.int64),
        *(
            _innermost_pieces(part)
            for _, stream in events.grouped_by("stream")
            for _, part in stream.grouped_by("thread")
        ),
    ]
    action, start, end = np.concatenate(pieces, axis=1)
    codes = [code for code in order if code in action]
    spans = without_earlier([union(start[action == code], end[action == code]) for code in codes])
    return {code: span.length for code, span in zip(codes, spans, strict=True)}


def _innermost_pieces(events: Events) -> Times:
    index, start, end = innermost_pieces(events["start"], events["end"])
    return np.array([events["kind"][index], start, end])
