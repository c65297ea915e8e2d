"""The record of one cell, made from its JSON: its settings, machine, storages, and the metrics of every run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from analysis.records.runs import (
    BETWEEN,
    STORAGE,
    Check,
    Merit,
    Runs,
    SharedTuple,
    shared_mapping,
    shorten_checks,
    shorten_runs,
)
from analysis.records.settings import flatten
from analysis.text import join_values, one_line
from jobs.judging.bound import Bound
from jobs.model.record import Record as Stored

if TYPE_CHECKING:
    from analysis.records.settings import Facts


BOUNDS = {
    "read_mb_per_s": "MB/s read",
    "write_mb_per_s": "MB/s written",
    "read_iops": "reads/s",
    "write_iops": "writes/s",
}
KIND = "kind"


def emulation_mark(facts: Mapping[str, Any]) -> str | bool:
    """Return the model of an emulated storage in words; True if it has only speed limits."""
    model = facts.get("model")
    if not isinstance(model, dict) or not isinstance(model.get(KIND), str):
        return True
    parts = (f"{name} {_word(it)}" for name, it in sorted(model.items()) if name != KIND and _is_plain(it))
    return ", ".join([f"{facts.get('name', '')} is a {model[KIND]} model", *emulation_bounds(facts), *parts])


def emulation_bounds(facts: Mapping[str, Any]) -> list[str]:
    """Return the maximum speeds of an emulated storage in words."""
    return [f"{_word(facts[each])} {unit}" for each, unit in BOUNDS.items() if _is_number(facts.get(each))]


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or _is_number(value)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


# Pairs of fields of a cell: the name of a storage, and the device (or the devices below an image) that holds it.
NAMED = (
    ("storage_name", "device"),
    ("target_storage", "target_device"),
    ("fast_storage", "fast_device"),
    ("target_storage", "target_below"),
    ("fast_storage", "fast_below"),
)


def one_device(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each device that has several names; devices of two hosts count as two."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for cell in cells:
        for name, device in NAMED:
            devices = cell[device].split(BETWEEN) if isinstance(cell.get(device), str) else []
            for each in filter(None, devices):
                places.setdefault((cell["host"], each), {})[cell[name]] = None
    several = [(device, names) for (_, device), names in places.items() if len(names) > 1]
    return list(dict.fromkeys(f"{join_values(names)} are one device, {device}" for device, names in several))


def device_of(provenance: Mapping[str, Any]) -> str:
    """Return the name of the kernel's counter of the whole device that holds a dataset, as checkpoint targets have it.

    Without such a device, return the mounted source; `""` if many mounts share that word (tmpfs), or if neither is
    known.
    """
    device, mount = provenance.get("device"), provenance.get("mount")
    name = device.get("name") if isinstance(device, dict) else None
    source = str(mount.get("source") or "") if isinstance(mount, dict) else ""
    return f"dsk/{name}" if name else source if "/" in source else ""


# What the report shows of the machine; records of one machine share it.
OF_MACHINE = (
    "cpu", "cores", "memory_bytes", "quota_cores", "kernel", "python", "versions", "git", "mount", "device",
    "target_filesystems",
)  # fmt: skip


class Record(NamedTuple):
    """The record of one cell.

    Attributes
    ----------
    merit
        The kind and the main metric of its benchmark.
    settings
        Under flat names (`dataset.name`).
    device, data
        The device that holds the images; the identity of the data read (the checksum of the dataset, else its path).
        Both are `""` if unknown.
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
        What bounds the cell: a word, the share of the time and the numbers that decide, in words; None for a baseline,
        or where nothing tells.
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
    checks: SharedTuple[Check]
    runs: Runs
    size: str
    site: str
    spread_limit: float | None
    looser_checks: str
    quota_cores: float | None
    conditions: Mapping[str, Mapping[str, Any]]
    folder: Path
    profile_cost: Mapping[str, float]
    emulated: Mapping[str, Mapping[str, Any]]
    bound: tuple[str, float, str] | None = None


def record_of(value: Stored, folder: Path, bound: Bound | None = None) -> Record:
    """Return the `Record` of a judged record from `folder`, with the limit of its speed (`bound`)."""
    cell, provenance, dataset, campaign = value["cell"], value["provenance"], value["dataset"], value["campaign"]
    merit = Merit(*map(intern, (cell["kind"], cell["figure"], cell["unit"], cell["better"])))
    limits = [check["limit"] for check in value.get("checks", ()) if check["rule"] == "spread"]
    counting = (run for run in value["runs"] if (run["role"], run["status"]) == ("measured", "valid"))
    return Record(
        cell=cell["id"],
        benchmark=intern(cell["benchmark"]),
        benchmark_version=cell["benchmark_version"],
        merit=merit,
        settings=flatten(cell["settings"]),
        data=_data(dataset, merit.kind),
        # A record does not show whether a worker is still busy with it.
        status="unfinished" if value["status"] == "running" else value["status"],
        reason=value.get("reason") or "",
        cause=value.get("cause") or "",
        host=_line(provenance.get("host")),
        device=_line(device_of(provenance)),
        tensorflow=_line(provenance.get("versions", {}).get("tensorflow")),
        provenance=shared_mapping({name: provenance.get(name) for name in OF_MACHINE}),
        checks=shorten_checks(value),
        runs=shorten_runs(value["runs"]),
        size=_line(campaign.get("size")),
        site=_line(campaign.get("site")),
        spread_limit=limits[-1] if limits else None,
        looser_checks=_line(", ".join(value.get("looser_checks", ()))),
        quota_cores=provenance.get("quota_cores"),
        conditions=shared_mapping(next((run.get("conditions") or {} for run in counting), {})),
        folder=folder,
        profile_cost=shared_mapping(cast("Mapping[str, float]", value.get("profile_cost", {}))),
        emulated=shared_mapping(provenance.get("emulated") or {}),
        bound=(bound.word, bound.share, intern(bound.words)) if bound else None,
    )


def _data(dataset: Mapping[str, Any], kind: str) -> str:
    """Return the identity of the data read; `""` for a storage benchmark, whose own file holds random bytes."""
    path = "" if kind == STORAGE else dataset.get("path")
    return intern(dataset.get("checksum") or path or "")


def _line(text: str | None) -> str:
    """Return a text as one line; equal texts share one object."""
    return intern(one_line(text or ""))
