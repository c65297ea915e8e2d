"""What the runs of a cell share: the machine, its software, and what of its storages is emulated."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.storage import baseline_files, emulation
from jobs.observe.machine import describe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from campaign.cells.record import Record

# A cell's runs share these, or its median would mix.
_MACHINE = ("cpu", "cores", "kernel")


def node(settings: Mapping[str, Any], path: str, targets: Sequence[str]) -> dict[str, Any]:
    """Describe what runs of a cell share: this machine, what measures a baseline on it, what of it is emulated."""
    emulated = emulation.found(settings, path, targets)
    return {**this_machine(path), **baseline_files.engine(settings), "emulated": emulated}


@lru_cache
def this_machine(path: str) -> dict[str, Any]:
    """Describe this machine once, not for each cell: it asks git."""
    return describe(Path(path))


def difference(
    recorded: Record, data: Mapping[str, Any], here: Mapping[str, Any], *, shared: bool
) -> tuple[str, str, Any, Any] | None:
    """Find out what keeps earlier runs from being continued here: other data, another machine, another TensorFlow.

    Nodes of one kind may share a cell where they share the storage; a disk of one node is not that of another.

    Returns
    -------
    tuple
        What differs, in words; the key; what it was; what it is. None where nothing does.
    """
    software = recorded["provenance"].get("versions", {}), here["versions"]
    for what, keys, (before, now) in (
        ("other data", ("path", "checksum"), (recorded["dataset"], data)),
        ("another machine", _MACHINE if shared else ("host", *_MACHINE), (recorded["provenance"], here)),
        ("a storage that is another now", ("emulated",), (recorded["provenance"], here)),
        ("another engine", ("engine",), (recorded["provenance"], here)),
        ("other software", ("tensorflow",), software),
    ):
        for key in keys:
            if key in before and key in now and before[key] != now[key]:
                return what, key, before[key], now[key]
    return None
