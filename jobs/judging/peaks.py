"""What storages give by themselves, as far as baselines have measured it: the peaks that runs are judged by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from jobs.judging import stopping
from jobs.judging.judge import ODD_FIGURES
from jobs.model.record import Record
from jobs.model.results import Peak
from jobs.model.settings import Node

KIND = "storage"
"""The kind of a benchmark that measures a storage by itself: of a baseline."""
READ, RANDOM = "read", "random_read"
AT_ONCE = 2
"""Requests of a reader that are out: its own, and what the kernel reads ahead of it."""


class Peaks:
    """Baselines that are done, among judged records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.baselines = [each for each in records if each["cell"]["kind"] == KIND and _is_done(each)]
        self._of_host: dict[object, list[Record]] = defaultdict(list)
        for each in self.baselines:
            self._of_host[each["provenance"].get("host")].append(each)

    def of(self, record: Record) -> Peak | None:
        """Return the peak of what a record read: that of the same host and storage; None where none is known.

        Random reads of the same data by as many readers, else the file that was read from end to end, which says
        nothing of several readers. Of several (another engine, another size) the highest. But an emulated storage is as
        fast as its bound at most: the kernel lets short runs be faster; and where a model serves it, the model's
        arithmetic is the ceiling: a baseline may have been slowed down by what else this machine did.
        """
        settings = record["cell"]["settings"]
        if record["cell"]["data"] != "images" or "staging" in settings:  # of two storages at once nothing is known
            return None
        modelled = _modelled(record)
        peaks = [peak for peak in (self._measured(record), modelled or throttled(record)) if peak]
        bounding = [peak for peak in peaks if peak["ceiling_mb_per_s"] is not None]
        least = min(bounding or peaks, key=lambda peak: float(peak["mb_per_s"]), default=None)
        if least and modelled:
            return least | {"ceiling_mb_per_s": modelled["ceiling_mb_per_s"], "reads": None}
        return least

    def _measured(self, record: Record) -> Peak | None:
        baselines = self._of_host[record["provenance"].get("host")]
        for access in (RANDOM, READ):
            bounded = access == RANDOM or record["cell"]["settings"]["threads"] == 1
            peaks = [_peak_of(each, bounded=bounded) for each in baselines if fits(each, record, access)]
            if peaks:
                return max(peaks, key=lambda peak: peak["mb_per_s"])
        return None


def _is_done(baseline: Record) -> bool:
    """Return whether a baseline is done and has what others are judged by."""
    with suppress(*ODD_FIGURES):
        rates = [run["read_mb_per_s"] > 0 for run in stopping.measured(baseline, "valid")]
        reads = baseline["cell"]["settings"]["benchmark"]["access"] in (READ, RANDOM)
        return baseline["status"] == "done" and reads and bool(rates)
    return False


def _peak_of(baseline: Record, *, bounded: bool) -> Peak:
    """Return the fastest run of a baseline."""
    fastest = max(stopping.measured(baseline, "valid"), key=lambda run: run["read_mb_per_s"])
    random = baseline["cell"]["settings"]["benchmark"]["access"] == RANDOM
    reads = fastest.get("requests") if random else None
    return _peak(baseline["cell"]["id"], fastest["read_mb_per_s"], reads, bounded=bounded)


def _peak(by: str, mb_per_s: float, reads: int | None = None, *, bounded: bool = True) -> Peak:
    """Return a peak; its ceiling, where the readers are `bounded`, is as many times as high as requests may be out."""
    ceiling = AT_ONCE * mb_per_s if bounded else None
    return {"by": by, "mb_per_s": mb_per_s, "ceiling_mb_per_s": ceiling, "reads": reads}


def _emulated(record: Record) -> Node:
    """Return what an emulated storage says of itself; nothing of a real one."""
    return (record["provenance"].get("emulated") or {}).get("storage") or {}


def throttled(record: Record) -> Peak | None:
    """Return what the kernel lets through of an emulated storage; None for a real one, or for one without a bound."""
    facts = _emulated(record)
    most = facts.get("read_mb_per_s")
    return _peak(f"{facts['name']}, emulated", most) if most else None


def _modelled(record: Record) -> Peak | None:
    """Return what the model of an emulated storage gives by the worker's calculation; None without a model.

    Its ceiling is what it gives to twice as many readers: an arm that chooses among more requests is faster.
    """
    facts = _emulated(record)
    if not (expected := facts.get("expected")):
        return None
    by, most = f"{facts['name']}, emulated", expected["ceiling_mb_per_s"]
    return {"by": by, "mb_per_s": expected["mb_per_s"], "ceiling_mb_per_s": most, "reads": None}


def fits(baseline: Record, record: Record, access: str) -> bool:
    """Return whether a baseline of this access says what the storage of a record can give to it."""
    settings, of_baseline = record["cell"]["settings"], baseline["cell"]["settings"]
    if of_baseline["benchmark"]["access"] != access or not bounds(baseline, record):
        return False
    return access != RANDOM or (settings["threads"] == of_baseline.get("threads") and reads_same(baseline, record))


def same_storage(baseline: Record, record: Record) -> bool:
    """Return whether both are of one storage on one host."""
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
    """Return what a storage must be the same by, whatever its name: host, device, and how it is bounded if emulated."""
    provenance, facts = record["provenance"], _emulated(record)
    mount = provenance.get("mount")
    source = mount.get("source") if isinstance(mount, dict) else None
    return provenance.get("host"), source, {key: value for key, value in facts.items() if key != "expected"}
