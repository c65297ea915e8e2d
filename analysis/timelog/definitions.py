"""How long something took: each definition by its name, for any set of events.

``sum_per_rank``    all durations, divided by the number of ranks (NERSC's HEPCNNB)
``union_per_rank``  of each rank the time in which at least one such event went on: mean and most over the ranks
``union_all``       the time in which such an event went on anywhere
``union_epochs``    `union_all` of each epoch, -1 among 0, added (NERSC's CDB: "merged intervals")
``exposed``         as `union_per_rank`, without the time in which the rank computes: what it waited for
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from analysis.errors import AnalysisError
from analysis.timelog.intervals import Spans, length_by, union, without
from analysis.timelog.log import COMPUTE, PHASES, UNKNOWN, Events, Log

NS = 1e9
PERCENTILES = (50, 95, 99)
MOST_EPOCHS = 1000
NONE = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


class Definitions:
    """All definitions for a log; `compute` is the action that others are exposed by.

    Where the words are not ours, and it is not named, nothing is known to be exposed. Raises AnalysisError: there is no
    such action.
    """

    def __init__(self, log: Log, compute: str | None = None) -> None:
        if compute is not None and compute not in log.actions:
            raise AnalysisError(f"there is no action {compute!r}", f"take one of: {', '.join(log.actions)}")
        self._log, self.known = log, log.ours or compute is not None
        code = log.actions.index(compute or COMPUTE) if self.known else UNKNOWN
        self._computes = spans_of_ranks(log.events.at(log.events.action == code))
        self._wall_ns = max(each.end_ns for each in log.streams) - min(each.start_ns for each in log.streams)

    def of_actions(self, events: Events, rank: int | None = None) -> dict[str, dict[str, Any]]:
        """Return the figures of each action among the events, ``by`` phase (and its epochs), epoch and rank, too.

        The events are of all ranks, or of one rank alone.
        """
        ranks = frozenset(self._log.ranks if rank is None else [rank])
        found = {}
        for code, own in events.by("action"):
            phases = {
                PHASES[phase]: self.figures(part, ranks) | {"epoch": self._epochs(part, ranks)}
                for phase, part in own.by("phase")
            }
            each_rank = {str(one): self.figures(part, {one}) for one, part in own.by("rank")}
            by = {"phase": phases, "epoch": self._epochs(own, ranks), "rank": each_rank}
            found[self._log.actions[code]] = self.figures(own, ranks) | {"by": by}
        return found

    def _epochs(self, events: Events, ranks: Collection[int]) -> dict[str, Any]:
        parts = itertools.islice(events.by("epoch"), MOST_EPOCHS)
        return {str(epoch): self.figures(part, ranks) for epoch, part in parts}

    def figures(self, events: Events, ranks: Collection[int]) -> dict[str, Any]:
        """Return what is known of some events, None for what is not: times in s, rates in bytes a second."""
        spans = {rank: each for rank, each in spans_of_ranks(events).items() if rank in ranks}
        exposed = [without(each, self._computes.get(rank, NONE)) for rank, each in spans.items()]
        total_ns = float(events.taken_ns.sum(dtype=float))
        all_ns = union(events.start_ns, events.end_ns).length
        epoch = np.maximum(events.epoch, 0).astype(np.int64)
        parts = np.percentile(events.taken_ns, PERCENTILES, method="inverted_cdf") / NS
        size = int(events.size_bytes.sum(dtype=float)) if (events.size_bytes >= 0).all() else None
        times_ns = {"union_all": all_ns, "sum": total_ns, "wall": self._wall_ns}
        return {
            "count": events.number,
            "sum_per_rank": total_ns / len(ranks) / NS,
            "union_per_rank": _over_ranks(spans.values(), len(ranks)),
            "union_all": all_ns / NS,
            "union_epochs": length_by(epoch, events.start_ns, events.end_ns) / NS,
            "exposed": _over_ranks(exposed, len(ranks)) if self.known else None,
            **{f"p{part}": float(value) for part, value in zip(PERCENTILES, parts, strict=True)},
            "bytes": size,
            "bytes_per_s": {
                name: None if size is None or not time_ns else size * NS / time_ns for name, time_ns in times_ns.items()
            },
        }


def spans_of_ranks(events: Events) -> Mapping[int, Spans]:
    """Return the union of each rank's events."""
    return {rank: union(own.start_ns, own.end_ns) for rank, own in events.by("rank")}


def _over_ranks(spans: Iterable[Spans], ranks: int) -> dict[str, float]:
    """Return mean and maximum over so many ranks; those without spans are left out of these."""
    lengths = [each.length for each in spans]
    return {"mean": sum(lengths) / ranks / NS, "max": max(lengths, default=0) / NS}
