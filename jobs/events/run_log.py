"""The time logs of a run: events of all processes, offsets between the nodes' clocks, time per rank and action.

No rank leaves a barrier before all have entered it. So if rank A enters at e_A and leaves at x_A by its own clock, and
B likewise, then B's clock is ahead of A's by at least e_B - x_A and at most x_B - e_A, over all barriers. A barrier at
which nobody has to wait gives the closest bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.events.intervals import Times, innermost, shared_out, union
from jobs.events.table import Events, EventsError
from jobs.events.time_log import UNKNOWN

# Events of all files together: some 250 bytes each, and 500 while the budget of their rank is made.
MOST_EVENTS = 5_000_000


@dataclass(frozen=True)
class Stream:
    """The log of one process of a rank; times are ns of its own clock, `clock_ns` is the Unix time of the clock's zero.

    Processes with the same `clock` share it; `moved_ns` is the drift of the time of day against it during the log, None
    if unknown. `identity` is None if only the events are known (NERSC's logs).
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
class Log:
    """All events of a run, in Unix time, and its processes; `skipped` lists the rows of files that are no events.

    The kind of an event is its action. Additional columns of the table: `stream` (an index into `streams`), `caller`
    (a word), `phase`, `epoch`, `step`, and `taken`, the duration, which in NERSC's logs is not `end` - `start`.
    """

    events: Events
    streams: Sequence[Stream]
    skipped: Sequence[str] = ()

    @property
    def actions(self) -> Sequence[str]:
        """Return the words of the actions."""
        return self.events.words["kind"]

    @property
    def ours(self) -> bool:
        """Return whether these are our own logs, not NERSC's."""
        return self.streams[0].identity is not None

    @property
    def ranks(self) -> list[int]:
        """Return all ranks; the unknown rank (-1, in NERSC's logs) is left out unless it is the only one."""
        ranks = sorted({stream.rank for stream in self.streams})
        return [rank for rank in ranks if rank != UNKNOWN] or ranks


def misread(name: str, line: int, why: str, hint: str = "") -> EventsError:
    """Return the error for a wrong line of a file."""
    return EventsError(f"{name}, line {line}: {why}", hint or "copy it anew from where it was written")


@dataclass(frozen=True)
class Clock:
    """The bounds, in ns, by how much a clock is ahead of the first one (`low_ns` to `high_ns`); None without a barrier.

    If barriers contradict each other, the clocks drifted apart during the run by `apart_ns`, which is also the distance
    of the bounds.
    """

    low_ns: int | None = None
    high_ns: int | None = None
    apart_ns: int = 0

    @property
    def shift_ns(self) -> int:
        """Return the ns that times are moved back by: 0 if the bounds allow it, otherwise the bound nearest to 0."""
        if self.low_ns is None or self.high_ns is None:
            return 0
        return min(max(0, self.low_ns), self.high_ns)


def clocks(streams: Sequence[Stream], barriers: Events) -> Mapping[str, Clock]:
    """Return the clock of each name in the streams, compared with the clock of the lowest rank.

    `barriers`: events of barriers of all ranks, in Unix time.
    """
    first = min(streams, key=lambda stream: stream.rank).clock
    passed = {name: _passed(name, streams, barriers) for name in dict.fromkeys(stream.clock for stream in streams)}
    return {name: Clock(0, 0) if name == first else _bounded(*passed[first], *each) for name, each in passed.items()}


def _passed(name: str, streams: Sequence[Stream], barriers: Events) -> tuple[Times, Times]:
    """Return two times per barrier, for the ranks with this clock: the last one's entry and the first one's exit."""
    barriers_of_streams = [own for place, own in barriers.by("stream") if streams[place].clock == name]
    count = min((len(own) for own in barriers_of_streams), default=0)
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    entered = np.max([np.sort(own["start"])[:count] for own in barriers_of_streams], axis=0)
    return entered, np.min([np.sort(own["end"])[:count] for own in barriers_of_streams], axis=0)


def _bounded(entered: Times, left: Times, others_entered: Times, others_left: Times) -> Clock:
    count = min(len(entered), len(others_entered))
    if not count:
        return Clock()
    low = int((others_entered[:count] - left[:count]).max())
    high = int((others_left[:count] - entered[:count]).min())
    return Clock(min(low, high), max(low, high), max(0, low - high))


UNACCOUNTED = "unaccounted"


@dataclass(frozen=True)
class Budget:
    """The time of one rank by action, in ns; `spent_ns` includes `UNACCOUNTED` and adds up to `end_ns` - `start_ns`.

    Each moment counts for the innermost event of a thread; if threads or processes differ, for the action that comes
    first in `ACTIONS` of the time log: reading during computing costs no time. In NERSC's logs the action with the
    shorter events comes first, because it is the inner one.
    """

    rank: int
    start_ns: int
    end_ns: int
    spent_ns: Mapping[str, int]


def budgets(log: Log, ranks: Sequence[int]) -> Iterator[Budget]:
    """Yield the time budget of each of these ranks."""
    order, events = _order(log), dict(log.events.by("rank"))
    for rank in ranks:
        own = [stream for stream in log.streams if stream.rank == rank]
        start_ns, end_ns = min(each.start_ns for each in own), max(each.end_ns for each in own)
        spent = _spent(events[rank], order) if rank in events else {}
        action_ns = {log.actions[code]: time_ns for code, time_ns in spent.items()}
        yield Budget(rank, start_ns, end_ns, {**action_ns, UNACCOUNTED: end_ns - start_ns - sum(action_ns.values())})


def _order(log: Log) -> Sequence[int]:
    """Return the codes of the actions by priority: a moment in several actions counts for the first of them."""
    if log.ours:
        return range(len(log.actions))
    means = {code: float(own["taken"].mean()) for code, own in log.events.by("kind")}
    return sorted(means, key=means.__getitem__)


def _spent(events: Events, order: Sequence[int]) -> Mapping[int, int]:
    """Return the time of each action that has events, in ns."""
    pieces = [
        np.empty((3, 0), np.int64),
        *(_pieces(own) for _, each in events.by("stream") for _, own in each.by("thread")),
    ]
    action, start, end = np.concatenate(pieces, axis=1)
    codes = [code for code in order if code in action]
    spans = shared_out([union(start[action == code], end[action == code]) for code in codes])
    return {code: each.length for code, each in zip(codes, spans, strict=True)}


def _pieces(events: Events) -> Times:
    place, start, end = innermost(events["start"], events["end"])
    return np.array([events["kind"][place], start, end])
