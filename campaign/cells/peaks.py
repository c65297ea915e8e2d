"""What storages give by themselves, as far as a campaign has measured it: the peaks that its runs are judged by."""

from __future__ import annotations

import statistics
from functools import cached_property
from pathlib import Path

from campaign.cells import record, stopping
from campaign.cells.contract import Record
from campaign.cells.folder import CampaignFolder
from jobs.benchmarks import registry
from jobs.figures import Peak
from jobs.settings import Node

_RANDOM = "random_read"


class Peaks:
    """The baselines of a campaign that are done, read once."""

    def __init__(self, folder: CampaignFolder) -> None:
        self._folder = folder

    def of(self, recorded: Record) -> Peak | None:
        """Find the peak of what a record read: that of the same host and storage; None where none is known.

        Random reads of the same data by as many readers, else the file that was read from end to end, which ``bounds``
        one reader only. Of several (another engine, another size) the highest: no run can be faster than what was once
        seen. But an emulated storage is as fast as its bound at most: the kernel lets short runs be faster.
        """
        settings = recorded["cell"]["settings"]
        if registry.of(settings).data != "images" or "staging" in settings:  # of two storages at once nothing is known
            return None
        peaks = [peak for peak in (self._seen(recorded), _emulated(recorded)) if peak]
        bounds = [peak for peak in peaks if peak["bounds"]]
        return min(bounds or peaks, key=lambda peak: float(peak["mb_per_s"]), default=None)

    def _seen(self, recorded: Record) -> Peak | None:
        for access in (_RANDOM, "read"):
            bounds = access == _RANDOM or recorded["cell"]["settings"]["threads"] == 1
            found = [self._peak(each, bounds=bounds) for each in self._baselines if _fits(each, recorded, access)]
            if found:
                return max(found, key=lambda peak: peak["mb_per_s"])
        return None

    def of_readers(self, recorded: Record) -> dict[int, float]:
        """Return the median MB/s of random reads of the same data on the same storage, by the number of readers."""
        found = [each for each in self._baselines if _reads_same(each, recorded) and _same_storage(each, recorded)]
        return {int(each["cell"]["settings"]["threads"]): _median(each) for each in sorted(found, key=_median)}

    def sequential(self, recorded: Record) -> float | None:
        """Return the MB/s of a file that is read from end to end; of an emulated storage what it lets through."""
        if bound := _emulated(recorded):
            return bound["mb_per_s"]
        return max((_median(each) for each in self._baselines if _fits(each, recorded, "read")), default=None)

    def elsewhere(self, recorded: Record) -> dict[str, tuple[Node, float]]:
        """Return settings and MB/s of other storages of the same host, by name: the same reads by as many readers."""
        threads, host = recorded["cell"]["settings"]["threads"], recorded["provenance"].get("host")
        found = [
            each
            for each in self._baselines
            if _reads_same(each, recorded)
            and each["cell"]["settings"]["threads"] == threads
            and each["provenance"].get("host") == host
            and not _same_storage(each, recorded)
        ]
        storages = [(each["cell"]["settings"]["storage"], _median(each)) for each in sorted(found, key=_median)]
        return {node["name"]: (node, rate) for node, rate in storages}

    @cached_property
    def stamps(self) -> dict[Path, record.Stamp | None]:
        """Stamps of the baselines' records, taken before any of them is read."""
        patterns = [f"{name}-*/record.json" for name in registry.names_of("bounds_others")]
        paths = sorted(path for pattern in patterns for path in self._folder.records.glob(pattern))
        return {path: record.stamp(path) for path in paths}

    @cached_property
    def _baselines(self) -> list[Record]:
        found = (record.read_or_fault(path)[0] for path in self.stamps)
        return [each for each in found if each is not None and each["status"] == "done"]

    @staticmethod
    def _peak(recorded: Record, *, bounds: bool) -> Peak:
        rates = [run["read_mb_per_s"] for run in stopping.measured(recorded, "valid")]
        return {"by": recorded["cell"]["id"], "mb_per_s": max(rates), "bounds": bounds}


def _emulated(recorded: Record) -> Peak | None:
    """Return what the kernel lets through of an emulated storage; None for a real one, or for one without a bound."""
    facts = (recorded["provenance"].get("emulated") or {}).get("storage") or {}
    most = facts.get("read_mb_per_s")
    return {"by": f"{facts['name']}, emulated", "mb_per_s": most, "bounds": True} if most else None


def _median(baseline: Record) -> float:
    return statistics.median(run["read_mb_per_s"] for run in stopping.measured(baseline, "valid"))


def _fits(baseline: Record, recorded: Record, access: str) -> bool:
    """Return whether a baseline of this access says what the storage of a record can give to it."""
    ours, theirs = recorded["cell"]["settings"], baseline["cell"]["settings"]
    if theirs["benchmark"]["access"] != access or not _same_storage(baseline, recorded):
        return False
    return access != _RANDOM or (ours["threads"] == theirs.get("threads") and _reads_same(baseline, recorded))


def _same_storage(baseline: Record, recorded: Record) -> bool:
    storages = [each["cell"]["settings"]["storage"] for each in (baseline, recorded)]
    return storages[0] == storages[1] and _place(baseline) == _place(recorded)


def _reads_same(baseline: Record, recorded: Record) -> bool:
    """Return whether a baseline reads blocks of the same data at random places."""
    ours, theirs = recorded["cell"]["settings"], baseline["cell"]["settings"]
    same = ours["dataset"] == theirs.get("dataset")
    same &= recorded["dataset"].get("checksum") == baseline["dataset"].get("checksum")
    return same and theirs["benchmark"]["access"] == _RANDOM


def _place(recorded: Record) -> tuple[object, ...]:
    """Return what a storage must be the same by, whatever its name: host, device, and how it is bounded if emulated."""
    provenance = recorded["provenance"]
    mount, emulated = provenance.get("mount"), provenance.get("emulated") or {}
    source = mount.get("source") if isinstance(mount, dict) else None
    return provenance.get("host"), source, emulated.get("storage")
