"""Find the records of a campaign and read them; one that cannot be read is named and set aside."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.errors import AnalysisError
from analysis.records.devices import device_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = 1
FILE = "record.json"
# Raw figures of a run in the order of the record; MB = 10^6 bytes, times in seconds.
FIGURES = (
    "wall_s", "startup_s", "load_s", "compute_s", "checkpoint_s", "other_s",
    "images", "images_asked", "image_errors", "bytes_read", "device_bytes", "resident_fraction",
    "images_per_s", "read_mb_per_s", "write_mb_per_s",
)  # fmt: skip
# What a run tells in words, where it tells it.
TEXTS = (
    "accelerator", "emulated", "engine", "engine_version", "trace_file", "source_only", "source_fast", "source_slow",
)  # fmt: skip
BASELINE = "baseline"
# What a record of before the setting means.
ACCELERATOR = {"name": "auto", "step_s": None}
CHECKPOINT = {"name": "none"}
# Seconds of each snapshot, of which a run has the median, as `snapshot_blocked_s`.
OF_SNAPSHOT = ("blocked_s", "write_s", "drain_s", "exposed_s", "durable_fast_s", "durable_slow_s")
COUNTS = ("images", "images_asked", "image_errors", "bytes_read", "device_bytes")
RUN_AGAIN = "copy the file anew from where the campaign ran, or delete its folder and run the campaign again"


@dataclass(frozen=True)
class Record:
    """One cell as it lies on disk: what was asked, on what host, and every run's raw figures.

    `device` is what is mounted where the images lie, `data` names the bytes that were read (the checksum of the
    dataset, else its path), both `""` where unknown; `size` is the one the campaign asked for (`smoke`, `paper` or
    `""`), `site` the name of its site; `spread_limit` the site's tolerance, by which the cell's check `spread` was
    made; `folder` holds the traces of its runs; `emulated` gives, by their keys in the settings (`storage`,
    `checkpoint.fast`), the storages that were not the real thing, with what bounded them.
    """

    cell: str
    benchmark: str
    benchmark_version: int
    settings: Mapping[str, Any]
    data: str
    status: str
    reason: str
    host: str
    device: str
    tensorflow: str
    provenance: Mapping[str, Any]
    checks: tuple[Mapping[str, Any], ...]
    runs: tuple[Mapping[str, Any], ...]
    size: str
    site: str
    spread_limit: float | None
    folder: Path
    emulated: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Skipped:
    """A record that was not read, why, and what to do about it."""

    path: Path
    why: str
    cure: str


@dataclass(frozen=True)
class Found:
    """All that a folder holds, ordered by cell id; `home` is where figures and tables belong."""

    records: tuple[Record, ...]
    skipped: tuple[Skipped, ...]
    home: Path


class UnreadableError(Exception):
    """A record does not keep the contract; `cure` says what to do."""

    def __init__(self, why: str, cure: str = RUN_AGAIN) -> None:
        super().__init__(why)
        self.cure = cure


def read(folder: Path) -> Found:
    """Read every record of a campaign folder, a records folder or the folder of one record.

    Raises
    ------
    AnalysisError
        If there is no such folder, or no record in it.
    """
    paths, home = locate(folder)
    good: list[tuple[Path, Record]] = []
    skipped: list[Skipped] = []
    for path in paths:
        try:
            good.append((path, parse(load(path), path.parent)))
        except UnreadableError as error:  # noqa: PERF203 - one bad record must not stop the others
            skipped.append(Skipped(path, str(error), error.cure))
    records, copies = without_copies(good)
    return Found(records, tuple(skipped) + copies, home)


def locate(folder: Path) -> tuple[list[Path], Path]:
    """Return the paths of all records, sorted, and the folder that figures and tables belong to."""
    if folder.name == FILE and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        message = f"{folder} is not a folder"
        raise AnalysisError(message, "name a campaign folder, for example `python -m analysis results`")
    if (folder / FILE).is_file():
        return [folder / FILE], folder
    if paths := sorted(folder.glob(f"records/*/{FILE}")):
        return paths, folder
    if paths := sorted(folder.glob(f"*/{FILE}")):
        # `results/records` and `results` are the same campaign; its figures have one place.
        return paths, folder.absolute().parent if folder.absolute().name == "records" else folder
    message = f"no record in {folder}: neither records/<cell id>/{FILE} nor <cell id>/{FILE}"
    raise AnalysisError(message, "run a campaign first, or name the folder that holds its `records/`")


def without_copies(good: Sequence[tuple[Path, Record]]) -> tuple[tuple[Record, ...], tuple[Skipped, ...]]:
    """Keep one record of each cell, the one in the folder of its name, so that no run counts twice."""
    kept: dict[str, tuple[Path, Record]] = {}
    copies: list[Skipped] = []
    for path, record in sorted(good, key=lambda each: (each[0].parent.name != each[1].cell, each[0])):
        if record.cell in kept:
            why = f"the same cell as {kept[record.cell][0]}"
            copies.append(Skipped(path, why, "move the copy out of the records folder"))
        else:
            kept[record.cell] = (path, record)
    return tuple(kept[cell][1] for cell in sorted(kept)), tuple(copies)


def load(path: Path) -> Any:
    """Return the JSON value in a file."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        cure = "make the file readable for you"
        raise UnreadableError(error.strerror or type(error).__name__, cure) from error
    except (ValueError, RecursionError) as error:
        why = f"is not whole JSON ({error})"
        raise UnreadableError(why) from error


def parse(value: Any, folder: Path = Path()) -> Record:
    """Return the record that a JSON value of schema 1, found in a folder, describes; unknown keys are no error."""
    try:
        schema = value["schema"]
        if not isinstance(schema, int) or schema < 1:
            why = f"has the schema {schema!r}, which is not a number from 1"
            raise UnreadableError(why)
        if schema > SCHEMA:
            why = f"is of schema {schema}; this program knows schema {SCHEMA}"
            raise UnreadableError(why, "analyse it with the newer tfio-campaign that wrote it")
        return _record(value, folder)
    except KeyError as error:
        why = f"lacks the key {error}"
        raise UnreadableError(why) from error
    except (AttributeError, TypeError, ValueError) as error:
        why = f"has a value of the wrong type ({error})"
        raise UnreadableError(why) from error


def _record(value: Mapping[str, Any], folder: Path) -> Record:
    cell, provenance, dataset = value["cell"], value.get("provenance") or {}, value.get("dataset") or {}
    limits = [check.get("limit") for check in value.get("checks") or () if check["rule"] == "spread"]
    return Record(
        cell=_text(cell["id"]),
        benchmark=_text(cell["benchmark"]),
        benchmark_version=int(cell["benchmark_version"]),
        settings=_settings(cell["settings"]),
        data=_data(dataset, _text(cell["benchmark"])),
        status=_of_cell(_text(value["status"])),
        reason=str(value.get("reason") or ""),
        host=str(provenance.get("host") or ""),
        device=device_of(provenance),
        tensorflow=str((provenance.get("versions") or {}).get("tensorflow") or ""),
        provenance=dict(provenance),
        checks=tuple(_check(check) for check in value.get("checks") or ()),
        runs=tuple(_run(run) for run in value["runs"]),
        size=str((value.get("campaign") or {}).get("size") or ""),
        site=str((value.get("campaign") or {}).get("site") or ""),
        spread_limit=_number("limit", limits[-1]) if limits else None,
        folder=folder,
        emulated={_text(key): dict(facts) for key, facts in (provenance.get("emulated") or {}).items()},
    )


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings; an accelerator left to itself and no checkpoint are the same whether named or not."""
    named = dict(settings)
    for group, neutral in (("accelerator", ACCELERATOR), ("checkpoint", CHECKPOINT)):
        said = named.get(group)
        if said is None or isinstance(said, dict):
            named[group] = {**neutral, **(said or {})}
    return named


def _data(dataset: Mapping[str, Any], benchmark: str) -> str:
    """Name the bytes that were read; those of a baseline's own file are random, and mean nothing."""
    place = "" if benchmark == BASELINE else dataset.get("path")
    return str(dataset.get("checksum") or place or "")


def _of_cell(status: str) -> str:
    """Say ``unfinished`` of what was begun: whether somebody is at work on it, a record cannot tell."""
    return "unfinished" if status == "running" else status


def _run(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run without its arrays and long texts, after proving that its figures are numbers."""
    kept: dict[str, Any] = {
        "run": int(run["run"]),
        "role": _text(run["role"]),
        "status": _text(run["status"]),
        "reason": str(run.get("reason") or ""),
        "started_utc": str(run.get("started_utc") or ""),
        "checks": tuple(_check(check) for check in run.get("checks") or ()),
    }
    texts = {name: run.get(name) for name in ("accelerator", "engine", "engine_version")}
    texts |= {"trace_file": (run.get("trace") or {}).get("file")}
    texts |= {f"source_{target['role']}": target["source"] for target in run.get("targets") or ()}
    kept |= {name: _text(text) for name, text in texts.items() if text}
    kept |= _snapshots(run.get("checkpoints") or ())
    for name in COUNTS:
        if not isinstance(run.get(name), (int, type(None))):
            message = f"{name} is {run[name]!r}"
            raise TypeError(message)
    # Later versions may add keys of any shape; of those, numbers are kept.
    added = {name: it for name, it in run.items() if type(it) in (int, float) and math.isfinite(it)}
    return {**added, **kept, **{name: _number(name, run[name]) for name in FIGURES if name in run}}


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


def _check(check: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(check["passed"], (bool, type(None))):
        message = f"the check {check['rule']!r} passed is {check['passed']!r}"
        raise TypeError(message)
    return {"rule": _text(check["rule"]), "passed": check["passed"]}


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
