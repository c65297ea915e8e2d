"""Storages of different names that are one device: what differs between them is not the storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.text.plain import listed

BETWEEN = " "
"""Between the names of the devices below that of a side of a checkpoint target, in one text."""
# Of a cell: what names a storage, and what names the device that holds it, or those on which its image lies.
NAMED = (
    ("storage_name", "device"),
    ("target_storage", "target_device"),
    ("fast_storage", "fast_device"),
    ("target_storage", "target_below"),
    ("fast_storage", "fast_below"),
)


def one_device(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say of each device that has several names which; devices of two hosts are two."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for cell in cells:
        for name, device in NAMED:
            found = cell[device].split(BETWEEN) if isinstance(cell.get(device), str) else []
            for each in filter(None, found):
                places.setdefault((cell["host"], each), {})[cell[name]] = None
    several = [(device, names) for (_, device), names in places.items() if len(names) > 1]
    return list(dict.fromkeys(f"{listed(names)} are one device, {device}" for device, names in several))


def device_of(provenance: Mapping[str, Any]) -> str:
    """Return the kernel's counter of the whole device behind a dataset, as checkpoint targets name theirs.

    Where there is no such device, what is mounted; `""` for a word that many mounts share (tmpfs), or where neither is
    known.
    """
    device, mount = provenance.get("device"), provenance.get("mount")
    name = device.get("name") if isinstance(device, dict) else None
    source = str(mount.get("source") or "") if isinstance(mount, dict) else ""
    return f"dsk/{name}" if name else source if "/" in source else ""
