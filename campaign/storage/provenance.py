"""Describe where a cell's runs were measured: the machine, its software, its file systems and emulated storages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from campaign.storage import baseline_files, emulation
from jobs.model.record import Data, Provenance, Record
from jobs.model.settings import Settings
from jobs.observe.conditions import describe_node, observe_conditions
from jobs.system.device import filesystem_of

# All runs of a cell must have these in common: otherwise its median would mix machines.
_MACHINE = ("cpu", "cores", "kernel")
_UNSET = "unset"
_STORAGE = ("emulated", "filesystem", "target_filesystems")


def node_provenance(settings: Settings, path: str, targets: Sequence[str], copies: str | None = None) -> Provenance:
    """Return the provenance of runs here: machine, engine of a baseline, file systems, emulated storages."""
    provenance: Provenance = {
        **machine_facts(path),
        "emulated": emulation.emulated_storages(settings, path, targets, copies),
    }
    read_folders = [Path(folder) for folder in (path, copies) if folder]
    target_folders = [Path(target) for target in targets if "://" not in target]
    # Of this process; a run records its own conditions.
    provenance["conditions"] = observe_conditions(settings, read_folders, target_folders)
    targets = [*targets, copies] if copies else targets
    if engine := baseline_files.engine_here(settings):
        provenance["engine"] = engine
    folders = [path, *(target for target in targets if "://" not in target)]
    if all(Path(folder).exists() for folder in folders):  # else the run on this node fails with that reason
        # Not cached, because another device may be mounted there later.
        provenance["filesystem"] = filesystem_of(Path(path))
        provenance["target_filesystems"] = [
            {"source": target, "fstype": "s3"} if "://" in target else filesystem_of(Path(target)) for target in targets
        ]
    return provenance


@lru_cache
def machine_facts(path: str) -> Provenance:
    """Return the description of this machine; cached, because it calls git."""
    return cast("Provenance", describe_node(Path(path)))


def provenance_difference(
    recorded: Record, data: Data, here: Provenance, *, shared: bool
) -> tuple[str, str, Any, Any] | None:
    """Return the first difference that forbids continuing a record's runs here: words, dotted key, old and new value.

    None if there is no difference in data, machine, storages, engine, TensorFlow or conditions. The host must be the
    same, too, unless the storage is `shared`: then nodes of one kind may continue each other's runs.
    """
    software = recorded["provenance"].get("versions", {}), here["versions"]
    comparisons: tuple[tuple[str, tuple[str, ...], tuple[Mapping[str, object], Mapping[str, object]]], ...] = (
        ("other data", ("path", "checksum", "staged"), (recorded["dataset"], data)),
        ("another machine", _MACHINE if shared else ("host", *_MACHINE), (recorded["provenance"], here)),
        ("a storage that is another now", _STORAGE, (emulation.remove_expected_rates(recorded["provenance"]), here)),
        ("another engine", ("engine",), (recorded["provenance"], here)),
        ("other software", ("tensorflow",), software),
        ("a machine under other conditions", ("conditions",), (recorded["provenance"], here)),
    )
    for what, keys, (recorded_part, present_part) in comparisons:
        for key in keys:
            if key not in recorded_part or key not in present_part or recorded_part[key] == present_part[key]:
                continue
            if key != "path" or os.path.realpath(str(recorded_part[key])) != os.path.realpath(str(present_part[key])):
                return what, *_first_part(key, recorded_part[key], present_part[key])
    return None


def _first_part(key: str, old_value: Any, new_value: Any) -> tuple[str, Any, Any]:
    """Return dotted key, old and new value of the first part that differs; ``unset`` stands for a missing value."""
    if isinstance(old_value, list) and isinstance(new_value, list) and len(old_value) == len(new_value):
        old_value, new_value = dict(enumerate(old_value)), dict(enumerate(new_value))
    if isinstance(old_value, dict) and isinstance(new_value, dict):
        for name in dict.fromkeys([*old_value, *new_value]):
            if old_value.get(name) != new_value.get(name):
                return _first_part(f"{key}.{name}", old_value.get(name, _UNSET), new_value.get(name, _UNSET))
    return key, old_value, new_value
