"""The provenance of a cell's runs: the machine, its software, its file systems and emulated storages."""

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


def node(settings: Settings, path: str, targets: Sequence[str], copies: str | None = None) -> Provenance:
    """Return the provenance of runs here: machine, engine of a baseline, file systems, emulated storages."""
    provenance: Provenance = {
        **this_machine(path),
        "emulated": emulation.emulated_storages(settings, path, targets, copies),
    }
    read, saved = [Path(each) for each in (path, copies) if each], [Path(each) for each in targets if "://" not in each]
    provenance["conditions"] = observe_conditions(settings, read, saved)  # of this process; a run records its own
    targets = [*targets, copies] if copies else targets
    if engine := baseline_files.engine(settings):
        provenance["engine"] = engine
    folders = [path, *(each for each in targets if "://" not in each)]
    if all(Path(each).exists() for each in folders):  # if a node lacks a folder, its record says so
        # Not cached: another device may be mounted there meanwhile.
        provenance["filesystem"] = filesystem_of(Path(path))
        provenance["target_filesystems"] = [
            {"source": target, "fstype": "s3"} if "://" in target else filesystem_of(Path(target)) for target in targets
        ]
    return provenance


@lru_cache
def this_machine(path: str) -> Provenance:
    """Return the description of this machine; cached, because it calls git."""
    return cast("Provenance", describe_node(Path(path)))


def difference(recorded: Record, data: Data, here: Provenance, *, shared: bool) -> tuple[str, str, Any, Any] | None:
    """Return the first difference that forbids continuing earlier runs here: words, dotted key, old value, new value.

    None if there is none. Compared are data, machine, storages, engine, TensorFlow, conditions. Nodes of one kind may
    continue each other's runs if they share the storage (`shared`); otherwise the host must be the same.
    """
    software = recorded["provenance"].get("versions", {}), here["versions"]
    compared: tuple[tuple[str, tuple[str, ...], tuple[Mapping[str, object], Mapping[str, object]]], ...] = (
        ("other data", ("path", "checksum", "staged"), (recorded["dataset"], data)),
        ("another machine", _MACHINE if shared else ("host", *_MACHINE), (recorded["provenance"], here)),
        ("a storage that is another now", _STORAGE, (emulation.as_found(recorded["provenance"]), here)),
        ("another engine", ("engine",), (recorded["provenance"], here)),
        ("other software", ("tensorflow",), software),
        ("a machine under other conditions", ("conditions",), (recorded["provenance"], here)),
    )
    for what, keys, (before, now) in compared:
        for key in keys:
            if key not in before or key not in now or before[key] == now[key]:
                continue
            if key != "path" or os.path.realpath(str(before[key])) != os.path.realpath(str(now[key])):
                return what, *_first_part(key, before[key], now[key])
    return None


def _first_part(key: str, before: Any, now: Any) -> tuple[str, Any, Any]:
    """Return dotted key, old and new value of the first differing part; ``unset`` if only one side has it."""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*before, *now]):
            if before.get(name) != now.get(name):
                return _first_part(f"{key}.{name}", before.get(name, _UNSET), now.get(name, _UNSET))
    return key, before, now
