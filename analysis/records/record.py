"""One cell as it lies on disk, made from its JSON: what was asked, where it ran, and the figures of every run."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from analysis.records.judging import judged
from analysis.records.merit import BYTES_READ, BYTES_WRITTEN, STORAGE, Merit
from analysis.records.settings import flatten
from analysis.records.shared import Parts, parts, words
from analysis.records.shared_devices import BETWEEN, device_of
from analysis.text.plain import one_line
from analysis.traces.categories import REMEDIES, SPENT
from jobs.judging.bound import Bound
from jobs.judging.campaign_judge import CampaignJudge
from jobs.model.record import Record as Stored
from jobs.model.results import Snapshot

if TYPE_CHECKING:
    from analysis.records.settings import Facts

# Raw figures of a run in the order of the record; MB = 10^6 bytes, times in seconds.
COUNTS = ("images", "images_asked", "image_errors", "bytes_read", "device_bytes")
FIGURES = (
    "wall_s", "startup_s", "load_s", "compute_s", "checkpoint_s", "other_s", *COUNTS, "resident_fraction",
    "images_per_s", BYTES_READ, BYTES_WRITTEN,
)  # fmt: skip
FIGURES_TOGETHER = frozenset(FIGURES)
# What a run says in words, where it says it.
WORDS = ("accelerator", "engine", "engine_version")
# Seconds of each snapshot, of which a run has the median, as `snapshot_blocked_s`.
OF_SNAPSHOT = tuple(name for name in Snapshot.__annotations__ if name.endswith("_s"))
# Of a run that was profiled; a run has them as `posix_reads`, and its reads by size as `posix_read_size_0` and so on.
OF_PROFILE = (
    "files", "opens", "reads", "writes", "stream_writes", "bytes_read", "bytes_written", "read_mb_per_s", "read_s",
    "write_s", "meta_s", "sequential", "consecutive",
)  # fmt: skip
PROFILE_SIZES = 10  # bins
NUMBERS = frozenset({int, float})
TEXTS = (
    *WORDS[:1], "emulated", *WORDS[1:], "trace_file", "profile_file", "tensorflow_file", "source_only",
    "source_fast", "source_slow", "below_only", "below_fast", "below_slow",
)  # fmt: skip
# What the report shows of the machine; records of one machine share it.
OF_MACHINE = (
    "cpu", "cores", "memory_bytes", "quota_cores", "kernel", "python", "versions", "git", "mount", "device",
    "target_filesystems",
)  # fmt: skip


class Check(NamedTuple):
    """A rule, whether it was met (None: unverifiable), and the thresholds in force by name, `""` for a lone one."""

    rule: str
    passed: bool | None
    limits: tuple[tuple[str, float], ...]


class Run(NamedTuple):
    """One run without its arrays and long texts; its numbers by name, those of `FIGURES` and any that were added.

    A figure that is null is NaN.
    """

    run: int
    role: str
    status: str
    reason: str
    cause: str  # of the reason: the rule that was broken, or the code of the run's end
    started_utc: str
    checks: Parts[Check]
    texts: Mapping[str, str]
    names: Parts[str]
    numbers: array[float]

    @property
    def figures(self) -> dict[str, float]:
        """The numbers by name."""
        return dict(zip(self.names, self.numbers, strict=True))


@dataclass(frozen=True, slots=True)
class Record:
    """One cell as it lies on disk.

    Attributes
    ----------
    merit
        What its benchmark is there for.
    settings
        Under flat names (`dataset.name`).
    device, data
        What is mounted where the images lie; the bytes that were read (the checksum of the dataset, else its path).
        Both `""` where unknown.
    size, site
        The size that the campaign asked for (`smoke`, `paper` or `""`), and the name of its site.
    spread_limit
        The limit by which the cell's check `spread` was made.
    looser_checks
        The thresholds that let more pass than the site's own, in words.
    conditions
        What else can change the speed, of the runs that count: of the `process`, of the `machine`, and of `storages`
        by their names; empty where none is recorded.
    folder
        It holds the traces of the runs.
    profile_cost
        By how much profiles made runs longer, shares of the wall time (`median`, `min`, `max`, of so many `pairs` of
        runs); empty where it was not asked for.
    emulated
        The storages that were not the real thing, by their keys in the settings (`storage`, `checkpoint.fast`), with
        what bounded them.
    bound
        What bounds the cell, in a word and the numbers that decide; None for a baseline, or where nothing tells.
    """

    cell: str
    benchmark: str
    benchmark_version: int
    merit: Merit
    settings: Facts
    data: str
    status: str
    reason: str
    cause: str
    host: str
    device: str
    tensorflow: str
    provenance: Mapping[str, Any]
    checks: Parts[Check]
    runs: tuple[Run, ...]
    size: str
    site: str
    spread_limit: float | None
    looser_checks: str
    quota_cores: float | None
    conditions: Mapping[str, Mapping[str, Any]]
    folder: Path
    profile_cost: Mapping[str, float]
    emulated: Mapping[str, Mapping[str, Any]]
    bound: Bound | None = None


def load(path: Path, judge: CampaignJudge) -> Record:
    """Return the record in a file, judged; raises UnreadableError for one that cannot be read, judged or true."""
    value = judged(path, judge)
    return record_of(value, path.parent, judge.bound(value))


def record_of(value: Stored, folder: Path, bound: Bound | None = None) -> Record:
    """Return a judged record, found in a folder, with what bounds its cell."""
    cell, provenance, dataset, campaign = value["cell"], value["provenance"], value["dataset"], value["campaign"]
    merit = Merit(cell["kind"], cell["figure"], cell["unit"], cell["better"])
    limits = [check["limit"] for check in value.get("checks", ()) if check["rule"] == "spread"]
    counting = (run for run in value["runs"] if (run["role"], run["status"]) == ("measured", "valid"))
    return Record(
        cell=cell["id"],
        benchmark=cell["benchmark"],
        benchmark_version=cell["benchmark_version"],
        merit=merit,
        settings=flatten(cell["settings"]),
        data=_data(dataset, merit.kind),
        # A record does not say whether it is still being worked on.
        status="unfinished" if value["status"] == "running" else value["status"],
        reason=value.get("reason") or "",
        cause=value.get("cause") or "",
        host=one_line(provenance.get("host") or ""),
        device=one_line(device_of(provenance)),
        tensorflow=one_line(provenance.get("versions", {}).get("tensorflow") or ""),
        provenance=words({name: provenance.get(name) for name in OF_MACHINE}),
        checks=_checks(value),
        runs=tuple(map(_run, value["runs"])),
        size=one_line(campaign.get("size") or ""),
        site=one_line(campaign.get("site") or ""),
        spread_limit=limits[-1] if limits else None,
        looser_checks=one_line(", ".join(value.get("looser_checks", ()))),
        quota_cores=provenance.get("quota_cores"),
        conditions=words(next((run.get("conditions") or {} for run in counting), {})),
        folder=folder,
        profile_cost=cast("Mapping[str, float]", value.get("profile_cost", {})),
        emulated=provenance.get("emulated") or {},
        bound=bound,
    )


def _data(dataset: Mapping[str, Any], kind: str) -> str:
    """Name the bytes that were read; those of a storage's own file are random, and mean nothing."""
    place = "" if kind == STORAGE else dataset.get("path")
    return dataset.get("checksum") or place or ""


def _run(run: Mapping[str, Any]) -> Run:
    """Return a run without its arrays and long texts; of what a later version adds, its numbers are kept."""
    figures = {name: it for name, it in run.items() if type(it) in NUMBERS}
    figures |= dict.fromkeys(FIGURES_TOGETHER.difference(figures).intersection(run), math.nan)
    if run.get("checkpoints"):
        figures |= _snapshots(run["checkpoints"])
    if run.get("profile"):
        figures |= _posix(run["profile"])
    if seen := run.get("tensorflow"):
        known = {name: seen[name] for name in ("steps_s", "waited_s") if name in seen}
        known |= {f"spent_{name}": it for name, it in seen.get("spent_s", {}).items() if name in SPENT}
        known |= {f"saves_{name}": it for name, it in seen.get("remedies_s", {}).items() if name in REMEDIES}
        figures |= {f"tensorflow_{name}": value for name, value in known.items()}
    number = figures.pop("run")
    names, numbers = parts(figures), array("d", figures.values())
    reason, started = run.get("reason") or "", run.get("started_utc") or ""
    return Run(
        number,
        run["role"],
        run["status"],
        reason,
        run.get("cause") or "",
        started,
        _checks(run),
        _texts(run),
        names,
        numbers,
    )


def _texts(run: Mapping[str, Any]) -> Mapping[str, str]:
    told = {name: run[name] for name in WORDS if run.get(name)}
    if file := (run.get("trace") or {}).get("file"):
        told["trace_file"] = file
    if file := (run.get("profile") or {}).get("file"):
        told["profile_file"] = file
    if file := (run.get("tensorflow") or {}).get("file"):
        told["tensorflow_file"] = file
    for target in run.get("targets") or ():
        sources = {"source": target["source"], "below": BETWEEN.join(target.get("below") or ())}
        told |= {f"{name}_{target['role']}": it for name, it in sources.items() if it}
    return words(told)


def _snapshots(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median of each time over the snapshots of a run; without those that did not come so far.

    `drain_exposed_s` is the most that any of them was copied after the end of training.
    """
    known = {name: [it for line in lines if (it := line.get(name)) is not None] for name in (*OF_SNAPSHOT, "bytes")}
    found = {f"snapshot_{name}": statistics.median(values) for name, values in known.items() if values}
    return found | ({"drain_exposed_s": max(known["exposed_s"])} if known["exposed_s"] else {})


def _posix(profile: Mapping[str, Any]) -> dict[str, float]:
    figures = {name: profile[name] for name in OF_PROFILE if profile.get(name) is not None}
    sizes = zip(range(PROFILE_SIZES), profile.get("read_sizes") or (), strict=False)
    figures |= {f"read_size_{place}": count for place, count in sizes}
    return {f"posix_{name}": value for name, value in figures.items()}


def _checks(value: Mapping[str, Any]) -> Parts[Check]:
    return parts(map(_check, value.get("checks") or ()))


def _check(check: Mapping[str, Any]) -> Check:
    limit: Any = check["limit"]
    if type(limit) is dict:
        limits = tuple(each for each in limit.items() if type(each[1]) in NUMBERS)
    else:
        limits = (("", limit),) if type(limit) in NUMBERS else ()
    return Check(check["rule"], check["passed"], limits)
