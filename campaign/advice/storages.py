"""What the baselines of a campaign say of the storage of a cell, and of others."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from jobs.judging import peaks, stopping
from jobs.model.record import Record
from jobs.model.settings import Node


def of_readers(baselines: Sequence[Record], recorded: Record) -> dict[int, float]:
    """Return the median MB/s of random reads of the same data on the same storage, by the number of readers."""
    same = [each for each in baselines if peaks.reads_same(each, recorded) and peaks.bounds(each, recorded)]
    return {int(each["cell"]["settings"]["threads"]): _median(each) for each in sorted(same, key=_median)}


def sequential(baselines: Sequence[Record], recorded: Record) -> float | None:
    """Return the MB/s of a file that is read from end to end; of an emulated storage what it lets through."""
    if bound := peaks.throttled(recorded):
        return bound["mb_per_s"]
    whole = [each for each in baselines if peaks.fits(each, recorded, peaks.READ)]
    return max(map(_median, whole), default=None)


def elsewhere(baselines: Sequence[Record], recorded: Record) -> dict[str, tuple[Node, float]]:
    """Return settings and MB/s of other storages of the same host, by name: the same reads by as many readers."""
    threads, host = recorded["cell"]["settings"]["threads"], recorded["provenance"].get("host")
    others = [
        each
        for each in baselines
        if peaks.reads_same(each, recorded)
        and each["cell"]["settings"]["threads"] == threads
        and each["provenance"].get("host") == host
        and not peaks.same_storage(each, recorded)
    ]
    storages = [(each["cell"]["settings"]["storage"], _median(each)) for each in sorted(others, key=_median)]
    return {node["name"]: (node, rate) for node, rate in storages}


def _median(baseline: Record) -> float:
    return statistics.median(run["read_mb_per_s"] for run in stopping.measured(baseline, "valid"))
