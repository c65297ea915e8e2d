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

# All runs of a cell must have the same values of these keys. Otherwise the median would mix runs of different machines.
_MACHINE = ("cpu", "cores", "kernel")
_UNSET = "unset"
_STORAGE = ("emulated", "filesystem", "target_filesystems")


def node_provenance(settings: Settings, path: str, targets: Sequence[str], copies: str | None = None) -> Provenance:
    """Return the provenance of runs on this node: machine, engine of a baseline, file systems, emulated storages."""
    provenance: Provenance = {
        **machine_facts(path),
        "emulated": emulation.emulated_storages(settings, path, targets, copies),
    }
    read_folders = [Path(folder) for folder in (path, copies) if folder]
    target_folders = [Path(target) for target in targets if "://" not in target]
    # These are the conditions of this process; a run records the conditions of its own process.
    provenance["conditions"] = observe_conditions(settings, read_folders, target_folders)
    targets = [*targets, copies] if copies else targets
    if engine := baseline_files.engine_here(settings):
        provenance["engine"] = engine
    folders = [path, *(target for target in targets if "://" not in target)]
    # If a folder is missing, the run on this node fails and reports the missing folder.
    if all(Path(folder).exists() for folder in folders):
        # The file systems are not cached, because another device may be mounted on the folder later.
        provenance["filesystem"] = filesystem_of(Path(path))
        provenance["target_filesystems"] = [
            {"source": target, "fstype": "s3"} if "://" in target else filesystem_of(Path(target)) for target in targets
        ]
    return provenance


@lru_cache
def machine_facts(path: str) -> Provenance:
    """Return the description of this machine; the result is cached, because the function calls git."""
    return cast("Provenance", describe_node(Path(path)))


def provenance_difference(
    recorded: Record, data: Data, here: Provenance, *, shared: bool
) -> tuple[str, str, Any, Any] | None:
    """Return the first difference that forbids to continue a record's runs on this machine.

    The result has a phrase, the dotted key, the old and the new value. Return None if data, machine, storages, engine,
    TensorFlow and conditions are the same. If the storage is not `shared`, the host must be the same, too. On a shared
    storage, another node of the same kind may continue the runs.
    """
    software = recorded["provenance"].get("versions", {}), here["versions"]
    comparisons: tuple[tuple[str, tuple[str, ...], tuple[Mapping[str, object], Mapping[str, object]]], ...] = (
        ("other data", ("path", "checksum", "staged"), (recorded["dataset"], data)),
        ("another machine", _MACHINE if shared else ("host", *_MACHINE), (recorded["provenance"], here)),
        ("another storage", _STORAGE, (emulation.remove_expected_rates(recorded["provenance"]), here)),
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
    """Return the dotted key, the old and the new value of the first difference; a missing value is ``unset``."""
    if isinstance(old_value, list) and isinstance(new_value, list) and len(old_value) == len(new_value):
        old_value, new_value = dict(enumerate(old_value)), dict(enumerate(new_value))
    if isinstance(old_value, dict) and isinstance(new_value, dict):
        for name in dict.fromkeys([*old_value, *new_value]):
            if old_value.get(name) != new_value.get(name):
                return _first_part(f"{key}.{name}", old_value.get(name, _UNSET), new_value.get(name, _UNSET))
    return key, old_value, new_value
