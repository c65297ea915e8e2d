"""A time log as the analysis has it: a row per event, the processes that wrote them, and whose words they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.errors import AnalysisError

Column = npt.NDArray[Any]

# Of our own logs, each before those that it is taken from where both go on in different threads: see `budget`.
ACTIONS = (
    "compute", "validate", "communicate", "checkpoint", "barrier", "read", "open", "load", "shuffle", "stage", "next",
    "wait", "step",
)  # fmt: skip
PHASES = ("none", "train", "validation")
COMPUTE = "compute"
UNKNOWN = -1
# Events of all files together: some 250 bytes each, and 500 while the budget of their rank is made.
MOST_EVENTS = 5_000_000


class Events(NamedTuple):
    """Columns with a place for each event; what is not known is `UNKNOWN`.

    Action, caller and file are places in the lists of their `Log`, phase in `PHASES`. Times are in ns.
    """

    rank: Column
    stream: Column
    thread: Column
    action: Column
    caller: Column
    phase: Column
    epoch: Column
    step: Column
    file: Column
    start_ns: Column
    end_ns: Column
    taken_ns: Column
    size_bytes: Column

    def at(self, places: Column | slice) -> Events:
        """Return some of them, by their places or a mask or a slice."""
        return Events(*(column[places] for column in self))

    def by(self, key: str) -> Iterator[tuple[int, Events]]:
        """Yield each value of a column with the events that have it, in their order."""
        column = getattr(self, key)
        order = np.argsort(column, kind="stable")
        values, first = np.unique(column[order], return_index=True)
        for value, places in zip(values.tolist(), np.split(order, first[1:]), strict=False):
            yield value, self.at(places)

    @property
    def number(self) -> int:
        """Return how many there are."""
        return len(self.rank)


@dataclass(frozen=True)
class Stream:
    """What one process of a rank logged, from start to end in ns: by its own clock, whose `clock_ns` is Unix time.

    Processes with the same `clock` share it; `moved_ns` is how far the time of day went from it meanwhile, None where
    that is not known. A stream of which nothing but events is known has `identity` None.
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
    """All events of a run, in Unix time, and what their numbers mean; `skipped` says which rows of files are none."""

    events: Events
    actions: Sequence[str]
    callers: Sequence[str]
    files: Sequence[str]
    streams: Sequence[Stream]
    skipped: Sequence[str] = ()

    @property
    def ours(self) -> bool:
        """Whether the words are those of our own logs."""
        return self.streams[0].identity is not None

    @property
    def ranks(self) -> list[int]:
        """All ranks; what no rank says of itself (-1, in NERSC's logs) counts as one only where there is no other."""
        found = sorted({stream.rank for stream in self.streams})
        return [rank for rank in found if rank != UNKNOWN] or found


def misread(name: str, line: int, why: str, hint: str = "") -> AnalysisError:
    """Return the error of a file that is not what it should be, at a line."""
    return AnalysisError(f"{name}, line {line}: {why}", hint or "copy it anew from where it was written")
