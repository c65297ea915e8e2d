"""Find the root folders of storages on this machine, and our own folders below them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from campaign.errors import EnvironmentFaultError
from jobs.model.settings import Node, Settings
from jobs.system import files

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCAL = "local"  # a choice of conf/storage
_NAME_LENGTH = 28  # characters; with "of_" before it the name stays below the limit of 32


def path_on_rank(path: str, storage: Node, rank: int) -> str:
    """Return the path under which a rank of a run sees a path below the root of a storage."""
    pattern = storage.get("node_root")
    if pattern is None or not Path(path).is_relative_to(root := Path(storage["root"]).resolve()):
        return path
    return str(Path(pattern.replace("{rank}", str(rank)), Path(path).relative_to(root)))


def require_folder_on_ranks(settings: Settings) -> None:
    """Raise EnvironmentFaultError if a rank of a run has no folder in which it sees its storage."""
    storage = settings["storage"]
    for rank in range(settings.get("nodes", 1)) if storage.get("node_root") else ():
        folder = Path(path_on_rank(str(Path(storage["root"]).resolve()), storage, rank))
        if not folder.is_dir():
            raise EnvironmentFaultError(
                f"storage {storage['name']}: there is no folder {folder} for rank {rank}",
                f"as root: python -m campaign testbed up nodes={settings['nodes']}; or fewer nodes=…",
            )


def storage_of_folder(folder: Path, site_roots: Mapping[str, str]) -> tuple[str, str]:
    """Return name and root of the storage that has a folder.

    It is a storage of the site (`site_roots`, by name) on the same file system; else ``local`` if the folder ``data``
    is on the same file system; else that file system, with its mount point as root and name. A missing folder counts as
    ``local``; whoever reads it reports that it is missing.
    """
    folder, own_root = folder.resolve(), "data"
    device = device_number(folder)
    roots = {name: Path(root).expanduser().resolve() for name, root in site_roots.items()}
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
    """Return the device number of the file system of a path; if the path does not exist, of its nearest parent."""
    path = path.resolve()
    return next(parent for parent in (path, *path.parents) if parent.exists()).stat().st_dev


def storage_root(storage: Node, key: str = "storage", *, make: bool = True) -> Path:
    """Return the root folder of a storage (`key` in the configuration), with all links resolved.

    A relative root is below the current folder and is created if `make`. An absolute root must exist: creating it would
    use the disk below an empty mount point.
    """
    root = Path(storage["root"]).expanduser()
    try:
        if not root.is_absolute():
            root = root.resolve()
            if not make and not root.exists():
                return root
            files.make_folder(root, exist_ok=True, parents=True)
        if not root.is_dir():
            raise EnvironmentFaultError(
                f"storage {storage['name']}: there is no folder {root}", f"mount it, or set {key}.root=…"
            )
    except OSError as error:
        raise EnvironmentFaultError(
            f"storage {storage['name']}: cannot use {root}: {error.strerror}", f"set {key}.root=… to another folder"
        ) from error
    return root.resolve()


def own_path(root: Path, name: str) -> Path:
    """Return the path of a folder of ours below a root; if others may write to the root, below a folder of this user.

    A folder of ours that exists already keeps its path.
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
    """Return a folder of ours (`own_path`) below a root (`key` in the configuration); it is created if missing.

    If the file system refuses that, the process that writes to it later reports the error.
    """
    ours = own_path(root, name)
    for folder in (*([ours.parent] if ours.parent != root else []), ours):
        try:
            files.make_folder(folder, exist_ok=True)
            fault = files.reason_to_distrust(folder)
        except OSError:
            break
        if fault:
            raise EnvironmentFaultError(fault, f"{key}.root=… gives another place")
    return ours
