"""Find the root folders of storages on this machine, and the campaign's own folders below a root."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from campaign.cells.cell import Cell
from campaign.errors import EnvironmentFaultError, UsageError
from jobs.model.settings import Node, Settings
from jobs.system import files
from jobs.system.device import IN_MEMORY, Mount, mount_of

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCAL = "local"  # name of the storage in conf/storage/local.yaml
_NAME_LENGTH = 28  # characters; with the prefix "of_" the name stays below the limit of 32


def path_on_rank(path: str, storage: Node, rank: int) -> str:
    """Return the path that a rank of a run uses for a path below the root of a storage (``storage.node_root``)."""
    pattern = storage.get("node_root")
    if pattern is None or not Path(path).is_relative_to(root := Path(storage["root"]).resolve()):
        return path
    return str(Path(pattern.replace("{rank}", str(rank)), Path(path).relative_to(root)))


def require_folder_on_ranks(settings: Settings) -> None:
    """Raise EnvironmentFaultError if the folder through which a rank uses the storage is missing."""
    storage = settings["storage"]
    for rank in range(settings.get("nodes", 1)) if storage.get("node_root") else ():
        folder = Path(path_on_rank(str(Path(storage["root"]).resolve()), storage, rank))
        if not folder.is_dir():
            raise EnvironmentFaultError(
                f"storage {storage['name']}: there is no folder {folder} for rank {rank}",
                f"as root, run `python -m campaign testbed up nodes={settings['nodes']}`; or set a smaller nodes=…",
            )


def missing_root(cells: Iterable[Cell]) -> UsageError | None:
    """Return the error for the first storage without a root that a cell reads or saves to, or None."""
    for settings in (cell.settings for cell in cells):
        saved = settings.get("checkpoint", {})
        storages = {"storage": settings["storage"], "checkpoint": saved}
        storages |= {f"checkpoint.{side}": saved[side] for side in ("fast", "slow") if side in saved}
        for key, storage in storages.items():
            if "root" in storage and storage["root"] is None:
                return UsageError(f"{key}={storage['name']} has no root here", f"add {key}.root=/PATH/OF/YOURS")
    return None


def mounted_folder(name: str, mounts: Iterable[Mount], user: str) -> Path | None:
    """Return the user's folder on the mounted file system of a type, such as ``lustre``, if exactly one is writable.

    The user's folder is the mount point, or the folder USER in it or in one of its folders.
    """
    points = (Path(mount.point) for mount in mounts if mount.fstype == name)
    places = [place for point in points for place in (point, point / user, *point.glob(f"*/{user}"))]
    writable = [place for place in places if place.is_dir() and os.access(place, os.W_OK)]
    return writable[0] if len(writable) == 1 else None


def storage_of_folder(folder: Path, site_roots: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and the root of the storage that has a folder.

    If the root of a storage of the site (`site_roots`, by name) contains the folder, the innermost such storage is
    returned. Else, if the folder ``data`` is on the same file system, the storage is ``local``. Else a storage of the
    site on the same file system is returned. If there is none, the storage is the file system itself: its mount point
    gives the root and the name. A missing folder counts as ``local``, because the reader of the folder reports the
    error.
    """
    folder, own_root = files.resolve_links(folder), "data"
    device = device_number(folder)
    roots = {name: files.resolve_links(root) for name, root in site_roots.items()}
    roots_on_device = {name: root for name, root in roots.items() if root.is_dir() and device_number(root) == device}
    names_around = [name for name, root in roots_on_device.items() if folder.is_relative_to(root)]
    if names_around:
        name = max(names_around, key=lambda name: len(roots[name].parts))
        return name, str(roots[name])
    if not folder.exists() or device == device_number(Path(own_root)):
        return _LOCAL, own_root
    if roots_on_device:
        return next((name, str(root)) for name, root in roots_on_device.items())
    mount_point = next(
        path for path in (folder, *folder.parents) if path.parent == path or device_number(path.parent) != device
    )
    name = re.sub(r"[^A-Za-z0-9]+", "_", mount_point.name).strip("_")[:_NAME_LENGTH] or "root"
    return (f"of_{name}" if name == _LOCAL or name in site_roots else name), str(mount_point)


def device_number(path: Path) -> int:
    """Return the device number of the file system of a path; for a missing path, use the nearest existing parent."""
    path = files.resolve_links(path)
    return next(parent for parent in (path, *path.parents) if parent.exists()).stat().st_dev


def require_not_in_memory(path: Path) -> None:
    """Raise EnvironmentFaultError if a path lies on a file system in memory, because it can never be read cold."""
    mount = mount_of(path)
    if mount.fstype in IN_MEMORY:
        why = f"{path} lies in memory ({mount.fstype}), so its files can never be read from a device"
        raise EnvironmentFaultError(why, "name files or a folder on a disk or a network file system")


def storage_root(storage: Node, key: str = "storage", *, make: bool = True) -> Path:
    """Return the root folder of a storage (`key` in the configuration), with all links resolved.

    A relative root is below the current folder, and is created if `make` is true. An absolute root must exist. To
    create an absolute root would be wrong, because the folder could be below a mount point whose storage is not
    mounted.
    """
    root = Path(storage["root"]).expanduser()
    try:
        if not root.is_absolute():
            root = files.resolve_links(root)
            if not make and not root.exists():
                return root
            files.make_folder(root, exist_ok=True, parents=True)
        if not root.is_dir():
            raise EnvironmentFaultError(
                f"storage {storage['name']}: there is no folder {root}", f"mount the storage, or set {key}.root=…"
            )
    except OSError as error:
        raise EnvironmentFaultError(
            f"storage {storage['name']}: cannot use {root}: {error.strerror}", f"set {key}.root=… to another folder"
        ) from error
    return root.resolve()


def own_path(root: Path, name: str) -> Path:
    """Return the path of the campaign's own folder `name` below a root.

    If other users may write to the root, the path is below a folder for this user (``tfio-USER``). A folder that exists
    already and that only this user may write to keeps its path.
    """
    if not (root.is_dir() and root.stat().st_mode & _OTHERS_WRITE) or is_ours(root / name):
        return root / name
    return root / f"tfio-{re.sub(r'[^A-Za-z0-9._-]', '_', files.user_name(os.geteuid()))}" / name


def is_ours(folder: Path) -> bool:
    """Return whether a folder exists and no other user may write to it."""
    try:
        return not files.reason_to_distrust(folder)
    except OSError:
        return False


def own_folder(root: Path, name: str, key: str = "storage") -> Path:
    """Create the campaign's own folder (`own_path`) below a root if it is missing, and return its path.

    `key` is the key of the storage in the configuration. If the file system refuses to create the folder, the process
    that writes to the folder later reports the error.
    """
    ours = own_path(root, name)
    for folder in (*([ours.parent] if ours.parent != root else []), ours):
        try:
            files.make_folder(folder, exist_ok=True)
            fault = files.reason_to_distrust(folder)
        except OSError:
            break
        if fault:
            raise EnvironmentFaultError(fault, f"set {key}.root=… to another folder")
    return ours
