"""One cell as it lies on disk, made from its JSON: what was asked, where it ran, and the figures of every run."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from analysis.records.devices import device_of
from analysis.records.merit import STORAGE, Merit, merit_of
from analysis.records.settings import flatten
from analysis.records.versioned import UnreadableError, checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.records.settings import Facts

# Raw figures of a run in the order of the record; MB = 10^6 bytes, times in seconds.
FIGURES = (
    "wall_s", "startup_s", "load_s", "compute_s", "checkpoint_s", "other_s",
    "images", "images_asked", "image_errors", "bytes_read", "device_bytes", "resident_fraction",
    "images_per_s", "read_mb_per_s", "write_mb_per_s",
)  # fmt: skip
FIGURES_TOGETHER = frozenset(FIGURES)
NUMBERS = frozenset({int, float})
COUNTS = ("images", "images_asked", "image_errors", "bytes_read", "device_bytes")
# What a run says in words, where it says it.
WORDS = ("accelerator", "engine", "engine_version")
TEXTS = (*WORDS[:1], "emulated", *WORDS[1:], "trace_file", "source_only", "source_fast", "source_slow")
# What a record of before the setting means.
ACCELERATOR = {"name": "auto", "step_s": None}
CHECKPOINT = {"name": "none"}
# Seconds of each snapshot, of which a run has the median, as `snapshot_blocked_s`.
OF_SNAPSHOT = ("blocked_s", "write_s", "drain_s", "exposed_s", "durable_fast_s", "durable_slow_s")
# What the report shows of the machine; records of one machine share it.
OF_MACHINE = ("cpu", "cores", "memory_bytes", "quota_cores", "kernel", "python", "versions", "git", "mount", "device")


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
    started_utc: str
    checks: tuple[Check, ...]
    texts: Mapping[str, str]
    names: tuple[str, ...]
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
    folder
        It holds the traces of the runs.
    emulated
        The storages that were not the real thing, by their keys in the settings (`storage`, `checkpoint.fast`), with
        what bounded them.
    """

    cell: str
    benchmark: str
    benchmark_version: int
    merit: Merit
    settings: Facts
    data: str
    status: str
    reason: str
    host: str
    device: str
    tensorflow: str
    provenance: Mapping[str, Any]
    checks: tuple[Check, ...]
    runs: tuple[Run, ...]
    size: str
    site: str
    spread_limit: float | None
    looser_checks: str
    quota_cores: float | None
    folder: Path
    emulated: Mapping[str, Mapping[str, Any]]

    @property
    def measured(self) -> Iterator[Check]:
        """The checks of the measured runs."""
        return (check for run in self.runs if run.role == "measured" for check in run.checks)


def parse(value: Any, folder: Path = Path()) -> Record:
    """Return the record that a JSON value of schema 1, found in a folder, describes; unknown keys are no error."""
    try:
        return _record(checked(value), folder)
    except KeyError as error:
        why = f"lacks the key {error}"
        raise UnreadableError(why) from error
    except (AttributeError, TypeError, ValueError) as error:
        why = f"has a value of the wrong type ({error})"
        raise UnreadableError(why) from error


def _record(value: Mapping[str, Any], folder: Path) -> Record:
    cell, provenance, dataset = value["cell"], value.get("provenance") or {}, value.get("dataset") or {}
    limits = [check.get("limit") for check in value.get("checks") or () if check["rule"] == "spread"]
    campaign, merit = value.get("campaign") or {}, merit_of(cell)
    return Record(
        cell=_text(cell["id"]),
        benchmark=_text(cell["benchmark"]),
        benchmark_version=int(cell["benchmark_version"]),
        merit=Merit(*map(_text, merit)),
        settings=_settings(cell["settings"]),
        data=_data(dataset, merit.kind),
        status=_of_cell(_text(value["status"])),
        reason=str(value.get("reason") or ""),
        host=str(provenance.get("host") or ""),
        device=device_of(provenance),
        tensorflow=str((provenance.get("versions") or {}).get("tensorflow") or ""),
        provenance=_machine(provenance),
        checks=_checks(value),
        runs=tuple(map(_run, value["runs"])),
        size=str(campaign.get("size") or ""),
        site=str(campaign.get("site") or ""),
        spread_limit=_number("limit", limits[-1]) if limits else None,
        looser_checks=", ".join(map(_text, value.get("looser_checks") or ())),
        quota_cores=_number("quota_cores", provenance.get("quota_cores")),
        folder=folder,
        emulated={_text(key): dict(facts) for key, facts in (provenance.get("emulated") or {}).items()},
    )


def _settings(settings: Mapping[str, Any]) -> Facts:
    """Return the settings; an accelerator left to itself and no checkpoint are the same whether named or not."""
    named = dict(settings)
    for group, neutral in (("accelerator", ACCELERATOR), ("checkpoint", CHECKPOINT)):
        said = named.get(group)
        if said is None or isinstance(said, dict):
            named[group] = {**neutral, **(said or {})}
    return flatten(named)


def _data(dataset: Mapping[str, Any], kind: str) -> str:
    """Name the bytes that were read; those of a storage's own file are random, and mean nothing."""
    place = "" if kind == STORAGE else dataset.get("path")
    return str(dataset.get("checksum") or place or "")


def _of_cell(status: str) -> str:
    """Say ``unfinished`` of what was begun: a record does not say whether it is still being worked on."""
    return "unfinished" if status == "running" else status


def _run(run: Mapping[str, Any]) -> Run:
    """Return a run without its arrays and long texts, after proving that its figures are numbers."""
    # Later versions may add keys of any shape; of those, numbers are kept.
    figures = {name: it for name, it in run.items() if type(it) in NUMBERS and math.isfinite(it)}
    figures |= {name: _number(name, run[name]) for name in FIGURES_TOGETHER.difference(figures).intersection(run)}
    for name in COUNTS:
        if not isinstance(run.get(name), (int, type(None))):
            message = f"{name} is {run[name]!r}"
            raise TypeError(message)
    if run.get("checkpoints"):
        figures |= _snapshots(run["checkpoints"])
    number = int(run["run"])
    figures.pop("run", None)
    role, status = _text(run["role"]), _text(run["status"])
    reason, started = str(run.get("reason") or ""), str(run.get("started_utc") or "")
    names = _shared(tuple(figures))
    numbers = array("d", [math.nan if it is None else it for it in figures.values()])
    return Run(number, role, status, reason, started, _checks(run), _texts(run), names, numbers)


def _texts(run: Mapping[str, Any]) -> Mapping[str, str]:
    told = {name: run[name] for name in WORDS if run.get(name)}
    if file := (run.get("trace") or {}).get("file"):
        told["trace_file"] = file
    told |= {f"source_{target['role']}": it for target in run.get("targets") or () if (it := target["source"])}
    known = {name: _text(text) for name, text in told.items()}
    return _TEXTS.setdefault(repr(known), known)


def _snapshots(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median of each time over the snapshots of a run; without those that did not come so far.

    `drain_exposed_s` is the most that any of them was copied after the end of training.
    """
    found: dict[str, float] = {}
    for name in OF_SNAPSHOT:
        values = [_number(name, line[name]) for line in lines]
        if known := [value for value in values if value is not None]:
            found[f"snapshot_{name}"] = statistics.median(known)
    if sizes := [size for line in lines if (size := _number("bytes", line.get("bytes"))) is not None]:
        found["snapshot_bytes"] = statistics.median(sizes)
    if beyond := [line["exposed_s"] for line in lines if line["exposed_s"] is not None]:
        found["drain_exposed_s"] = max(beyond)
    return found


def _checks(value: Mapping[str, Any]) -> tuple[Check, ...]:
    return _shared(tuple(map(_check, value.get("checks") or ())))


def _check(check: Mapping[str, Any]) -> Check:
    rule, passed, limit = _text(check["rule"]), check["passed"], check.get("limit")
    if not isinstance(passed, (bool, type(None))):
        message = f"the check {rule!r} passed is {passed!r}"
        raise TypeError(message)
    many = limit.items() if isinstance(limit, dict) else [("", limit)]
    return Check(rule, passed, tuple((str(name), each) for name, each in many if isinstance(each, (int, float))))


def _machine(provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {name: provenance.get(name) for name in OF_MACHINE}
    return _MACHINES.setdefault(repr(known), known)


def _shared(value: Kept) -> Kept:
    """Return one object for all equal ones: most runs have the same keys and the same checks."""
    known: Kept = _KNOWN.setdefault(value, value)
    return known


Kept = TypeVar("Kept", bound=Hashable)
_KNOWN: dict[Any, Any] = {}
_TEXTS: dict[str, Mapping[str, str]] = {}
_MACHINES: dict[str, Mapping[str, Any]] = {}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        message = f"{value!r} is not text"
        raise TypeError(message)
    return value


def _number(name: str, value: Any) -> float | int | None:
    """Return a finite figure; NaN would silently drop out of a median."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        message = f"{name} is {value!r}"
        raise ValueError(message)
    return value
