"""The speeds of storages alone, as baselines measured them: the peaks that cold runs are compared with."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from jobs.judging import stopping
from jobs.model.record import ODD_FIGURES, Record
from jobs.model.results import Peak
from jobs.model.settings import Node

KIND = "storage"
"""The kind of the benchmark `baseline`, which measures a storage alone."""
READ, RANDOM = "read", "random_read"
BENCHMARK = "baseline"
"""The one benchmark of that kind; the ids of its cells begin with its name."""
AT_ONCE = 2
"""Requests in flight per reader: its own, and the read-ahead of the kernel."""


def is_of_baseline(cell: str) -> bool:
    """Return whether an id is that of a cell that measures a storage alone."""
    return cell.startswith(f"{BENCHMARK}-")


class Peaks:
    """The finished baselines among judged records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.baselines = [each for each in records if each["cell"]["kind"] == KIND and _is_done(each)]
        self._of_host: dict[object, list[Record]] = defaultdict(list)
        for each in self.baselines:
            self._of_host[each["provenance"].get("host")].append(each)

    def of(self, record: Record) -> Peak | None:
        """Return the peak of the storage that a record read from, on the same host; None if it is unknown.

        The peak is the baseline of random reads of the same data by as many readers; else that of a whole file read
        from start to end, which bounds a single reader only. The highest of several baselines (other engines or sizes)
        counts. The peak of an emulated storage is at most its limit, although the kernel lets short runs be faster.
        If a model serves the storage, the ceiling is calculated by the model, because other programs may have slowed
        the baseline down.
        """
        settings = record["cell"]["settings"]
        of_files = record["cell"]["data"] in ("images", "files") and record["cell"]["kind"] != "program"
        if not of_files or "staging" in settings:  # no peak is known for two storages at once
            return None
        modelled = _modelled(record)
        peaks = [peak for peak in (self._measured(record), modelled or throttled(record)) if peak]
        bounding = [peak for peak in peaks if peak["ceiling_mb_per_s"] is not None]
        least = min(bounding or peaks, key=lambda peak: float(peak["mb_per_s"]), default=None)
        if least and modelled:
            return least | {"ceiling_mb_per_s": modelled["ceiling_mb_per_s"], "reads": None}
        return least

    def readers(self, record: Record) -> dict[int, float]:
        """Return the median MB/s of random reads of the same data on the same storage, by the number of readers."""
        same = [each for each in self.baselines if reads_same(each, record) and bounds(each, record)]
        return {int(each["cell"]["settings"]["threads"]): _median(each) for each in sorted(same, key=_median)}

    def sequential(self, record: Record) -> float | None:
        """Return the MB/s of one reader of a whole file from start to end, or the limit of an emulated storage."""
        if bound := throttled(record):
            return bound["mb_per_s"]
        return max((_median(each) for each in self.baselines if fits(each, record, READ)), default=None)

    def elsewhere(self, record: Record) -> dict[str, tuple[Node, float]]:
        """Return settings and MB/s of other storages of the host, by name, for the same reads by as many readers."""
        threads, host = record["cell"]["settings"]["threads"], record["provenance"].get("host")
        others = [
            each
            for each in self._of_host[host]
            if reads_same(each, record)
            and each["cell"]["settings"]["threads"] == threads
            and not same_storage(each, record)
        ]
        storages = [(each["cell"]["settings"]["storage"], _median(each)) for each in sorted(others, key=_median)]
        return {node["name"]: (node, rate) for node, rate in storages}

    def _measured(self, record: Record) -> Peak | None:
        baselines = self._of_host[record["provenance"].get("host")]
        for access in (RANDOM, READ):
            bounded = access == RANDOM or record["cell"]["settings"]["threads"] == 1
            peaks = [_peak_of(each, bounded=bounded) for each in baselines if fits(each, record, access)]
            if peaks:
                return max(peaks, key=lambda peak: peak["mb_per_s"])
        return None


def _is_done(baseline: Record) -> bool:
    """Return whether a baseline is finished and has rates of reading."""
    with suppress(*ODD_FIGURES):
        rates = [run["read_mb_per_s"] > 0 for run in stopping.measured(baseline, "valid")]
        reads = baseline["cell"]["settings"]["benchmark"]["access"] in (READ, RANDOM)
        return baseline["status"] == "done" and reads and bool(rates)
    return False


def _median(baseline: Record) -> float:
    return statistics.median(run["read_mb_per_s"] for run in stopping.measured(baseline, "valid"))


def _peak_of(baseline: Record, *, bounded: bool) -> Peak:
    """Return the fastest run of a baseline."""
    fastest = max(stopping.measured(baseline, "valid"), key=lambda run: run["read_mb_per_s"])
    random = baseline["cell"]["settings"]["benchmark"]["access"] == RANDOM
    reads = fastest.get("requests") if random else None
    return _peak(baseline["cell"]["id"], fastest["read_mb_per_s"], reads, bounded=bounded)


def _peak(by: str, mb_per_s: float, reads: int | None = None, *, bounded: bool = True) -> Peak:
    """Return a peak; if the readers are `bounded`, its ceiling is `AT_ONCE` times its rate."""
    ceiling = AT_ONCE * mb_per_s if bounded else None
    return {"by": by, "mb_per_s": mb_per_s, "ceiling_mb_per_s": ceiling, "reads": reads}


def emulated(record: Record) -> Node:
    """Return the facts of an emulated storage that the data is on; empty for a real one."""
    return (record["provenance"].get("emulated") or {}).get("storage") or {}


def throttled(record: Record) -> Peak | None:
    """Return the limit of an emulated storage as a peak; None for a real one, or one without a limit."""
    facts = emulated(record)
    most = facts.get("read_mb_per_s")
    return _peak(f"{facts['name']}, emulated", most) if most else None


def _modelled(record: Record) -> Peak | None:
    """Return the peak of an emulated storage as the worker calculated it by the model; None if there is no model.

    The ceiling is the rate for twice as many readers, because a disk arm that chooses among more requests is faster.
    """
    facts = emulated(record)
    if not (expected := facts.get("expected")):
        return None
    by, most = f"{facts['name']}, emulated", expected["ceiling_mb_per_s"]
    return {"by": by, "mb_per_s": expected["mb_per_s"], "ceiling_mb_per_s": most, "reads": None}


def fits(baseline: Record, record: Record, access: str) -> bool:
    """Return whether a baseline of this access bounds the rate of a record."""
    settings, of_baseline = record["cell"]["settings"], baseline["cell"]["settings"]
    if of_baseline["benchmark"]["access"] != access or not bounds(baseline, record):
        return False
    return access != RANDOM or (settings["threads"] == of_baseline.get("threads") and reads_same(baseline, record))


def same_storage(baseline: Record, record: Record) -> bool:
    """Return whether both records are of the same storage on the same host."""
    storages = [each["cell"]["settings"]["storage"] for each in (baseline, record)]
    return storages[0] == storages[1] and _place(baseline) == _place(record)


def bounds(baseline: Record, record: Record) -> bool:
    """Return whether a baseline is of the same storage, under the conditions of the record."""
    conditions = [each["provenance"].get("conditions") for each in (baseline, record)]
    return conditions[0] == conditions[1] and same_storage(baseline, record)


def reads_same(baseline: Record, record: Record) -> bool:
    """Return whether a baseline reads blocks of the same data at random places."""
    settings, of_baseline = record["cell"]["settings"], baseline["cell"]["settings"]
    same = settings["dataset"] == of_baseline.get("dataset")
    same &= record["dataset"].get("checksum") == baseline["dataset"].get("checksum")
    return bool(same and of_baseline["benchmark"]["access"] == RANDOM)


def _place(record: Record) -> tuple[object, ...]:
    """Return the identity of a storage, whatever its name: host, device, and the limits of an emulated one."""
    provenance, facts = record["provenance"], emulated(record)
    mount = provenance.get("mount")
    source = mount.get("source") if isinstance(mount, dict) else None
    return provenance.get("host"), source, {key: value for key, value in facts.items() if key != "expected"}
