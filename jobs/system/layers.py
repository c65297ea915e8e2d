"""What lies below the device of a file system: files of loop devices, memory, the lowest device.

A loop device shows the block layer's counters and an empty page cache while its file lies in memory. What is behind a
virtual disk, an array or a server is not seen from here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jobs.system.device import (
    Device,
    backing_file,
    device_of,
    devices_behind,
    lowest_behind,
    mount_of,
    reads_past_cache,
    together,
)
from jobs.system.emulated import emulated

_MEMORY_TYPES = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_MEMORY_DEVICES = ("ram", "zram")  # drivers brd and zram


@dataclass(frozen=True)
class Layers:
    """What lies below a folder's device."""

    # Files of loop devices that lie on a disk and can be opened: their pages in memory are ours, too.
    files: tuple[Path, ...] = ()
    in_memory: tuple[str, ...] = ()  # what of it lies in memory, in words; empty where nothing does
    hidden: tuple[Path, ...] = ()  # files of loop devices that this user cannot look at
    # The lowest devices below that of the file system, counted as one: what is cold is fetched from them.
    lowest: Device | None = None
    emulated: bool = False  # the file system only emulates a storage; then the rest stays empty


def layers(*folders: Path) -> Layers:
    """Look at what is below folders; the lowest devices of several count as one, where all have one.

    Nothing for an emulated storage: that memory may serve it is known, and said; its bounds are what counts.
    """
    found = [_layers(folder) for folder in folders]
    if len(found) == 1:
        return found[0]
    lowest = together([each.lowest or device_of(folder) for each, folder in zip(found, folders, strict=True)])
    return Layers(
        files=tuple(dict.fromkeys(file for each in found for file in each.files)),
        in_memory=tuple(dict.fromkeys(words for each in found for words in each.in_memory)),
        hidden=tuple(dict.fromkeys(file for each in found for file in each.hidden)),
        lowest=lowest if any(each.lowest for each in found) else None,
        emulated=any(each.emulated for each in found),
    )


def own_cache(folder: Path) -> bool:
    """Return whether what is read through this file system is in no other page cache of this machine.

    The kernel keeps pages by file, and files by file system: a device that is mounted by itself has a cache of its own,
    also where another one shows the same file, if no loop device below it reads through the cache of that file.
    """
    chain = devices_behind(folder)
    loops = [device for device in chain if backing_file(device)]
    return bool(chain) and all(reads_past_cache(device) for device in loops)


def _layers(folder: Path) -> Layers:
    if emulated(folder):
        return Layers(emulated=True)
    chain = devices_behind(folder)
    files: list[Path] = []
    hidden: list[Path] = []
    in_memory = [f"{each.name} is memory" for each in chain if each.name.rstrip("0123456789") in _MEMORY_DEVICES]
    for device in chain:
        file = backing_file(device)
        if file is None:
            continue
        if not os.access(file, os.R_OK) or not file.is_file():
            hidden.append(file)
            continue
        fstype = mount_of(file).fstype
        if fstype in _MEMORY_TYPES:
            in_memory.append(f"{device.name} has its backing file {file} in memory ({fstype})")
        elif device_of(file) is not None:
            files.append(file)
    return Layers(tuple(files), tuple(in_memory), tuple(hidden), lowest_behind(folder))
