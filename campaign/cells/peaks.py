"""What storages give by themselves, as far as a campaign has measured it: the peaks that its runs are judged by."""

from __future__ import annotations

import json
import math
import statistics
from functools import cache, cached_property
from pathlib import Path

from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.testbed import expected
from campaign.testbed.spec import Wanted
from jobs.benchmarks import registry
from jobs.judging import stopping
from jobs.model.record import Record
from jobs.model.results import Peak
from jobs.model.settings import Node

_RANDOM = "random_read"
# Requests of a reader that are out: its own, and what the kernel reads ahead of it.
_AT_ONCE = 2


class Peaks:
    """The baselines of a campaign that are done, read once."""

    def __init__(self, folder: CampaignFolder) -> None:
        self._folder = folder

    def of(self, recorded: Record) -> Peak | None:
        """Find the peak of what a record read: that of the same host and storage; None where none is known.

        Random reads of the same data by as many readers, else the file that was read from end to end, which says
        nothing of several readers. Of several (another engine, another size) the highest. But an emulated storage is as
        fast as its bound at most: the kernel lets short runs be faster; and where a model serves it, the model's
        arithmetic is the ceiling: a baseline may have been slowed down by what else this machine did.
        """
        settings = recorded["cell"]["settings"]
        if registry.of(settings).data != "images" or "staging" in settings:  # of two storages at once nothing is known
            return None
        modelled = _modelled(recorded)
        peaks = [peak for peak in (self._seen(recorded), modelled or _throttled(recorded)) if peak]
        bounds = [peak for peak in peaks if peak["ceiling_mb_per_s"] is not None]
        least = min(bounds or peaks, key=lambda peak: float(peak["mb_per_s"]), default=None)
        if least and modelled:
            return least | {"ceiling_mb_per_s": modelled["ceiling_mb_per_s"], "reads": None}
        return least

    def _seen(self, recorded: Record) -> Peak | None:
        for access in (_RANDOM, "read"):
            bounds = access == _RANDOM or recorded["cell"]["settings"]["threads"] == 1
            found = [_seen_of(each, bounds=bounds) for each in self._baselines if _fits(each, recorded, access)]
            if found:
                return max(found, key=lambda peak: peak["mb_per_s"])
        return None

    def of_readers(self, recorded: Record) -> dict[int, float]:
        """Return the median MB/s of random reads of the same data on the same storage, by the number of readers."""
        found = [each for each in self._baselines if _reads_same(each, recorded) and _bounds(each, recorded)]
        return {int(each["cell"]["settings"]["threads"]): _median(each) for each in sorted(found, key=_median)}

    def sequential(self, recorded: Record) -> float | None:
        """Return the MB/s of a file that is read from end to end; of an emulated storage what it lets through."""
        if bound := _throttled(recorded):
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


def _seen_of(baseline: Record, *, bounds: bool) -> Peak:
    """Return the fastest run of a baseline."""
    fastest = max(stopping.measured(baseline, "valid"), key=lambda run: run["read_mb_per_s"])
    random = baseline["cell"]["settings"]["benchmark"]["access"] == _RANDOM
    reads = fastest.get("requests") if random else None
    return _peak(baseline["cell"]["id"], fastest["read_mb_per_s"], reads, bounds=bounds)


def _peak(by: str, mb_per_s: float, reads: int | None = None, *, bounds: bool = True) -> Peak:
    """Return a peak; its ceiling, where it `bounds` the readers, is as many times as high as requests may be out."""
    return {"by": by, "mb_per_s": mb_per_s, "ceiling_mb_per_s": _AT_ONCE * mb_per_s if bounds else None, "reads": reads}


def _emulated(recorded: Record) -> Node:
    """Return what an emulated storage says of itself; nothing of a real one."""
    return (recorded["provenance"].get("emulated") or {}).get("storage") or {}


def _throttled(recorded: Record) -> Peak | None:
    """Return what the kernel lets through of an emulated storage; None for a real one, or for one without a bound."""
    facts = _emulated(recorded)
    most = facts.get("read_mb_per_s")
    return _peak(f"{facts['name']}, emulated", most) if most else None


def _modelled(recorded: Record) -> Peak | None:
    """Return what the model of an emulated storage gives to as many readers of the data; None without a model.

    Its ceiling is what it gives to twice as many: an arm that chooses among more requests is faster.
    """
    facts, data, threads = _emulated(recorded), recorded["dataset"], recorded["cell"]["settings"]["threads"]
    if not facts.get("model") or not data.get("files") or not data.get("bytes"):
        return None
    mb_per_s, ceiling = (
        _model_mb_per_s(json.dumps(facts, sort_keys=True), data["bytes"], data["files"], depth)
        for depth in (threads, _AT_ONCE * threads)
    )
    return {"by": f"{facts['name']}, emulated", "mb_per_s": mb_per_s, "ceiling_mb_per_s": ceiling, "reads": None}


@cache
def _model_mb_per_s(facts: str, data_bytes: int, files: int, depth: int) -> float:
    """Return the MB/s of files in shuffled order, `depth` of them at once, by a model's arithmetic; `facts` as JSON."""
    size = max(1, data_bytes // files)
    reads_per_s = expected.reads_per_s(Wanted.of(json.loads(facts), None), size, depth, data_bytes)
    return (reads_per_s or math.inf) * size / 1e6


def _median(baseline: Record) -> float:
    return statistics.median(run["read_mb_per_s"] for run in stopping.measured(baseline, "valid"))


def _fits(baseline: Record, recorded: Record, access: str) -> bool:
    """Return whether a baseline of this access says what the storage of a record can give to it."""
    ours, theirs = recorded["cell"]["settings"], baseline["cell"]["settings"]
    if theirs["benchmark"]["access"] != access or not _bounds(baseline, recorded):
        return False
    return access != _RANDOM or (ours["threads"] == theirs.get("threads") and _reads_same(baseline, recorded))


def _same_storage(baseline: Record, recorded: Record) -> bool:
    storages = [each["cell"]["settings"]["storage"] for each in (baseline, recorded)]
    return storages[0] == storages[1] and _place(baseline) == _place(recorded)


def _bounds(baseline: Record, recorded: Record) -> bool:
    """Return whether a baseline is of the same storage, under the conditions of the record."""
    ours, theirs = (each["provenance"].get("conditions") for each in (recorded, baseline))
    return ours == theirs and _same_storage(baseline, recorded)


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
