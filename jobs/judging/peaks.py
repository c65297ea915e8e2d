"""Find the peak speed of a storage from baselines. A cold run that is faster than the peak is suspicious."""

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
"""The kind of the benchmark `baseline`, which measures a storage without a training."""
READ, RANDOM = "read", "random_read"
BENCHMARK = "baseline"
"""The only benchmark of the kind `KIND`; the ids of its cells begin with this name."""
AT_ONCE = 2
"""Requests in flight per reader: the request of the reader, and the read-ahead of the kernel."""


def is_baseline_id(cell: str) -> bool:
    """Return whether a cell id is the id of a baseline."""
    return cell.startswith(f"{BENCHMARK}-")


class Peaks:
    """The peak speeds of storages, from the finished baselines among judged records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.baselines = [record for record in records if record["cell"]["kind"] == KIND and _is_done(record)]
        self._by_host: dict[object, list[Record]] = defaultdict(list)
        for baseline in self.baselines:
            self._by_host[baseline["provenance"].get("host")].append(baseline)

    def peak_of(self, record: Record) -> Peak | None:
        """Return the peak speed of the storage that the runs of a record read from, or None if the peak is unknown.

        Only baselines of the same host count. The peak is the rate of the baseline that reads the same data at random
        places with as many readers. If there is no such baseline, the peak is the rate of a baseline that reads a whole
        file from start to end; this rate is a limit only for a single reader. If there are several baselines (other
        engines or sizes), the highest rate counts.

        The peak of an emulated storage is at most the limit of the emulation, although the kernel lets short runs
        exceed the limit. If a model emulates the storage, the model calculates the ceiling, because other programs may
        have slowed down the baseline.
        """
        settings = record["cell"]["settings"]
        reads_files = record["cell"]["data"] in ("images", "files") and record["cell"]["kind"] != "program"
        if not reads_files or "staging" in settings:  # with staging, a run reads from two storages; no peak is known
            return None
        modelled = _modelled(record)
        peaks = [peak for peak in (self._measured(record), modelled or emulated_limit(record)) if peak]
        bounding = [peak for peak in peaks if peak["ceiling_mb_per_s"] is not None]
        lowest = min(bounding or peaks, key=lambda peak: float(peak["mb_per_s"]), default=None)
        if lowest and modelled:
            return lowest | {"ceiling_mb_per_s": modelled["ceiling_mb_per_s"], "reads": None}
        return lowest

    def rates_by_reader_count(self, record: Record) -> dict[int, float]:
        """Return, for each number of readers, the median MB/s of random reads of the same data on the same storage."""
        baselines = [
            baseline
            for baseline in self.baselines
            if reads_same_data(baseline, record) and same_storage_and_conditions(baseline, record)
        ]
        by_rate = sorted(baselines, key=_median)
        return {int(baseline["cell"]["settings"]["threads"]): _median(baseline) for baseline in by_rate}

    def _measured(self, record: Record) -> Peak | None:
        baselines = self._by_host[record["provenance"].get("host")]
        for access in (RANDOM, READ):
            is_bounded = access == RANDOM or record["cell"]["settings"]["threads"] == 1
            peaks = [
                _peak_of(baseline, bounded=is_bounded)
                for baseline in baselines
                if bounds_rate(baseline, record, access)
            ]
            if peaks:
                return max(peaks, key=lambda peak: peak["mb_per_s"])
        return None


def _is_done(baseline: Record) -> bool:
    """Return whether a baseline is done and has read rates."""
    with suppress(*ODD_FIGURES):
        rates = [run["read_mb_per_s"] > 0 for run in stopping.measured_runs(baseline, "valid")]
        reads = baseline["cell"]["settings"]["benchmark"]["access"] in (READ, RANDOM)
        return baseline["status"] == "done" and reads and bool(rates)
    return False


def _median(baseline: Record) -> float:
    return statistics.median(run["read_mb_per_s"] for run in stopping.measured_runs(baseline, "valid"))


def _peak_of(baseline: Record, *, bounded: bool) -> Peak:
    """Return the peak speed from the fastest run of a baseline."""
    fastest = max(stopping.measured_runs(baseline, "valid"), key=lambda run: run["read_mb_per_s"])
    is_random = baseline["cell"]["settings"]["benchmark"]["access"] == RANDOM
    reads = fastest.get("requests") if is_random else None
    return _peak(baseline["cell"]["id"], fastest["read_mb_per_s"], reads, bounded=bounded)


def _peak(by: str, mb_per_s: float, reads: int | None = None, *, bounded: bool = True) -> Peak:
    """Return a peak; with `bounded`, the peak has a ceiling of `AT_ONCE` times the rate."""
    ceiling = AT_ONCE * mb_per_s if bounded else None
    return {"by": by, "mb_per_s": mb_per_s, "ceiling_mb_per_s": ceiling, "reads": reads}


def emulation_facts(record: Record) -> Node:
    """Return the facts about the emulated storage that holds the data, or an empty mapping for a real storage."""
    return (record["provenance"].get("emulated") or {}).get("storage") or {}


def emulated_limit(record: Record) -> Peak | None:
    """Return the limit of an emulated storage as a peak, or None for a real storage or without a limit."""
    facts = emulation_facts(record)
    limit = facts.get("read_mb_per_s")
    return _peak(f"{facts['name']}, emulated", limit) if limit else None


def _modelled(record: Record) -> Peak | None:
    """Return the peak that the worker calculated with the model of an emulated storage, or None without a model.

    The ceiling is the rate for twice as many readers, because a disk arm that can choose among more requests is faster.
    """
    facts = emulation_facts(record)
    if not (expected := facts.get("expected")):
        return None
    by, ceiling = f"{facts['name']}, emulated", expected["ceiling_mb_per_s"]
    return {"by": by, "mb_per_s": expected["mb_per_s"], "ceiling_mb_per_s": ceiling, "reads": None}


def bounds_rate(baseline: Record, record: Record, access: str) -> bool:
    """Return whether the baseline measured the highest possible rate of the record's runs with this access pattern."""
    settings, baseline_settings = record["cell"]["settings"], baseline["cell"]["settings"]
    if baseline_settings["benchmark"]["access"] != access or not same_storage_and_conditions(baseline, record):
        return False
    return access != RANDOM or (
        settings["threads"] == baseline_settings.get("threads") and reads_same_data(baseline, record)
    )


def same_storage(baseline: Record, record: Record) -> bool:
    """Return whether a baseline and a record were measured on the same storage of the same host."""
    storages = [measured["cell"]["settings"]["storage"] for measured in (baseline, record)]
    return storages[0] == storages[1] and _storage_identity(baseline) == _storage_identity(record)


def same_storage_and_conditions(baseline: Record, record: Record) -> bool:
    """Return whether a baseline and a record have the same storage and the same conditions."""
    conditions = [measured["provenance"].get("conditions") for measured in (baseline, record)]
    return conditions[0] == conditions[1] and same_storage(baseline, record)


def reads_same_data(baseline: Record, record: Record) -> bool:
    """Return whether a baseline reads blocks at random places of the data that the record's runs read."""
    settings, baseline_settings = record["cell"]["settings"], baseline["cell"]["settings"]
    is_same = settings["dataset"] == baseline_settings.get("dataset")
    is_same &= record["dataset"].get("checksum") == baseline["dataset"].get("checksum")
    return bool(is_same and baseline_settings["benchmark"]["access"] == RANDOM)


def _storage_identity(record: Record) -> tuple[object, ...]:
    """Return the identity of a storage, independent of its name: host, device, and facts of the emulation, if any."""
    provenance, facts = record["provenance"], emulation_facts(record)
    mount = provenance.get("mount")
    source = mount.get("source") if isinstance(mount, dict) else None
    return provenance.get("host"), source, {key: value for key, value in facts.items() if key != "expected"}
