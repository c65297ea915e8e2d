"""What the runs of a cell share: the machine, its software, and what of its storages is emulated."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from campaign.storage import baseline_files, emulation
from jobs.model.record import Data, Provenance, Record
from jobs.model.settings import Settings
from jobs.observe.conditions import observed
from jobs.observe.machine_facts import describe
from jobs.system.device import filesystem_of

# A cell's runs share these, or its median would mix.
_MACHINE = ("cpu", "cores", "kernel")
_UNSET = "unset"
_STORAGE = ("emulated", "filesystem", "target_filesystems")


def node(settings: Settings, path: str, targets: Sequence[str], copies: str | None = None) -> Provenance:
    """Describe what runs of a cell share: this machine, its engine of baselines, the file systems, what is emulated."""
    found: Provenance = {**this_machine(path), "emulated": emulation.found(settings, path, targets, copies)}
    read, saved = [Path(each) for each in (path, copies) if each], [Path(each) for each in targets if "://" not in each]
    found["conditions"] = observed(settings, read, saved)  # of this process; a run has its own
    targets = [*targets, copies] if copies else targets
    if engine := baseline_files.engine(settings):
        found["engine"] = engine
    folders = [path, *(each for each in targets if "://" not in each)]
    if all(Path(each).exists() for each in folders):  # not where a node lacks one, and its record says so
        # Looked up each time: another device may be mounted there meanwhile.
        found["filesystem"] = filesystem_of(Path(path))
        found["target_filesystems"] = [
            {"source": target, "fstype": "s3"} if "://" in target else filesystem_of(Path(target)) for target in targets
        ]
    return found


@lru_cache
def this_machine(path: str) -> Provenance:
    """Describe this machine once, not for each cell: it asks git."""
    return cast("Provenance", describe(Path(path)))


def difference(recorded: Record, data: Data, here: Provenance, *, shared: bool) -> tuple[str, str, Any, Any] | None:
    """Find out what keeps earlier runs from being continued here: other data, another machine, another TensorFlow.

    Nodes of one kind may share a cell where they share the storage; a disk of one node is not that of another. Returns
    what differs, in words; its dotted key; what it was; what it is. None where nothing does.
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
    """Return the first part that differs, by its dotted key, ``unset`` where one has it alone; else the whole."""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*before, *now]):
            if before.get(name) != now.get(name):
                return _first_part(f"{key}.{name}", before.get(name, _UNSET), now.get(name, _UNSET))
    return key, before, now
