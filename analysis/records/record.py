"""Make a `Record` from the JSON record of a cell: settings, machine, storages, and the metrics of every run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.records.runs import (
    BETWEEN,
    STORAGE,
    Check,
    MainMetric,
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
    """Return the model of an emulated storage in words, or True if the storage has speed limits but no model."""
    model = facts.get("model")
    if not isinstance(model, dict) or not isinstance(model.get(KIND), str):
        return True
    parts = (f"{name} {_word(value)}" for name, value in sorted(model.items()) if name != KIND and _is_plain(value))
    return ", ".join([f"{facts.get('name', '')} is a {model[KIND]} model", *emulation_bounds(facts), *parts])


def emulation_bounds(facts: Mapping[str, Any]) -> list[str]:
    """Return the maximum speeds of an emulated storage in words."""
    return [f"{_word(facts[name])} {unit}" for name, unit in BOUNDS.items() if _is_number(facts.get(name))]


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or _is_number(value)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


# Pairs of columns of a cell: the name of a storage, and the devices that hold the files of this storage.
NAMED = (
    ("storage_name", "device"),
    ("target_storage", "target_device"),
    ("fast_storage", "fast_device"),
    ("target_storage", "target_below"),
    ("fast_storage", "fast_below"),
)


def sentences_on_shared_devices(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each device that cells name as several storages.

    Devices with one name on two hosts are two devices.
    """
    storages: dict[tuple[str, str], dict[str, None]] = {}
    for cell in cells:
        for name, device in NAMED:
            devices = cell[device].split(BETWEEN) if isinstance(cell.get(device), str) else []
            for device_name in filter(None, devices):
                storages.setdefault((cell["host"], device_name), {})[cell[name]] = None
    several = [(device, names) for (_, device), names in storages.items() if len(names) > 1]
    return list(dict.fromkeys(f"{join_values(names)} are one device, {device}" for device, names in several))


def device_of(provenance: Mapping[str, Any]) -> str:
    """Return the device that holds a dataset, as `dsk/<name>`: the form that checkpoint targets have too.

    If the record names no device, return the mount source. If the mount source has no `/`, return `""`, because mounts
    of different file systems can have such a source (`tmpfs`). If the record names no mount either, return `""`.
    """
    device, mount = provenance.get("device"), provenance.get("mount")
    name = device.get("name") if isinstance(device, dict) else None
    source = str(mount.get("source") or "") if isinstance(mount, dict) else ""
    return f"dsk/{name}" if name else source if "/" in source else ""


# The facts about a machine that the report shows. Records of one machine share one mapping with these facts.
OF_MACHINE = (
    "cpu", "cores", "memory_bytes", "quota_cores", "kernel", "python", "versions", "git", "mount", "device",
    "target_filesystems",
)  # fmt: skip


class Record(NamedTuple):
    """The record of one cell.

    Attributes
    ----------
    merit
        The kind and the main metric of the benchmark.
    settings
        The settings of the cell under flat names (`dataset.name`).
    device
        The device that holds the images, or `""` if the device is unknown.
    data
        The identity of the dataset: the checksum, or the path if the record has no checksum, or `""`.
    size
        The size that the user chose for the campaign: `smoke`, `paper` or `""`.
    site
        The name of the campaign's site.
    spread_limit
        The threshold of the check `spread` of this cell, or None if the record has no such check.
    looser_checks
        The check thresholds that are less strict than the thresholds of the site, in words.
    conditions
        The facts that can change the speed but are no settings, from the first valid measured run. The keys are
        `process`, `machine` and `storages`. The mapping is empty if the record has no conditions.
    folder
        The folder of the record, which also has the traces of the runs.
    emulated
        The emulated storages of the cell: maps a settings key (`storage`, `checkpoint.fast`) to the speed limits.
    bound
        The resource that limits the cell (one word), the resource's share of the time, and an explanation with numbers.
        The value is None for a baseline, or if the resource is unknown.
    """

    cell: str
    benchmark: str
    benchmark_version: int
    merit: MainMetric
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
    emulated: Mapping[str, Mapping[str, Any]]
    bound: tuple[str, float, str] | None = None


def record_of(value: Stored, folder: Path, bound: Bound | None = None) -> Record:
    """Return the `Record` made from a judged JSON record in `folder`, with the cell's limiting resource (`bound`)."""
    cell, provenance, dataset, campaign = value["cell"], value["provenance"], value["dataset"], value["campaign"]
    merit = MainMetric(*map(intern, (cell["kind"], cell["figure"], cell["unit"], cell["better"])))
    limits = [check["limit"] for check in value.get("checks", ()) if check["rule"] == "spread"]
    counting = (run for run in value["runs"] if (run["role"], run["status"]) == ("measured", "valid"))
    return Record(
        cell=cell["id"],
        benchmark=intern(cell["benchmark"]),
        benchmark_version=cell["benchmark_version"],
        merit=merit,
        settings=flatten(cell["settings"]),
        data=_data(dataset, merit.kind),
        # The record of a cell whose worker was killed also has the status "running".
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
        emulated=shared_mapping(provenance.get("emulated") or {}),
        bound=(bound.word, bound.share, intern(bound.because)) if bound else None,
    )


def _data(dataset: Mapping[str, Any], kind: str) -> str:
    """Return the identity of the dataset: its checksum, or its path if the record has no checksum.

    A storage benchmark reads no dataset but a file of random bytes, so its path does not count.
    """
    path = "" if kind == STORAGE else dataset.get("path")
    return intern(dataset.get("checksum") or path or "")


def _line(text: str | None) -> str:
    """Return a text on one line, interned, so that equal texts share one object in memory."""
    return intern(one_line(text or ""))
