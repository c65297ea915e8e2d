"""The root folders of storages on this machine, and our own folders below them."""

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
_LOCAL = "local"  # of conf/storage
_NAME_LENGTH = 28  # of at most 32, "of_" before it included


def seen_by(path: str, storage: Node, rank: int) -> str:
    """Return the path under which a rank of a run sees a path below the root of a storage."""
    pattern = storage.get("node_root")
    if pattern is None or not Path(path).is_relative_to(root := Path(storage["root"]).resolve()):
        return path
    return str(Path(pattern.replace("{rank}", str(rank)), Path(path).relative_to(root)))


def require_seen(settings: Settings) -> None:
    """Raise EnvironmentFaultError if a rank of a run has no folder in which it sees its storage."""
    storage = settings["storage"]
    for rank in range(settings.get("nodes", 1)) if storage.get("node_root") else ():
        own = Path(seen_by(str(Path(storage["root"]).resolve()), storage, rank))
        if not own.is_dir():
            raise EnvironmentFaultError(
                f"storage {storage['name']}: there is no folder {own} for rank {rank}",
                f"as root: python -m campaign testbed up nodes={settings['nodes']}; or fewer nodes=…",
            )


def storage_of(folder: Path, site_roots: Mapping[str, str]) -> tuple[str, str]:
    """Return name and root of the storage that a folder lies on.

    This is a storage of the site (`site_roots`, by name); else ``local`` if the campaign's own folder lies on the same
    file system; else that file system, with its mount point as root and name. A missing folder counts as ``local``; its
    reader reports that it is missing.
    """
    folder, own_root = folder.resolve(), "data"
    device = device_number(folder)
    places = {name: Path(root).expanduser().resolve() for name, root in site_roots.items()}
    there = {name: root for name, root in places.items() if root.is_dir() and device_number(root) == device}
    around = [name for name, root in there.items() if folder.is_relative_to(root)]
    if around:
        name = max(around, key=lambda each: len(places[each].parts))
        return name, str(places[name])
    if not folder.exists() or device == device_number(Path(own_root)):
        return _LOCAL, own_root
    if there:
        return next((name, str(root)) for name, root in there.items())
    top = next(
        each for each in (folder, *folder.parents) if each.parent == each or device_number(each.parent) != device
    )
    name = re.sub(r"[^A-Za-z0-9]+", "_", top.name).strip("_")[:_NAME_LENGTH] or "root"
    return (f"of_{name}" if name == _LOCAL or name in site_roots else name), str(top)


def device_number(path: Path) -> int:
    """Return the device number of the file system that a path lies on, or will lie on when it is made."""
    path = path.resolve()
    return next(each for each in (path, *path.parents) if each.exists()).stat().st_dev


def storage_root(storage: Node, key: str = "storage", *, make: bool = True) -> Path:
    """Return the root folder of a storage (`key` in the configuration), with all links resolved.

    A relative root is below the folder that the campaign is started from and is made if `make`. An absolute one must
    exist: otherwise the disk under an empty mount point would be used.
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

    A folder that exists and is ours keeps its path.
    """
    if not (root.is_dir() and root.stat().st_mode & _OTHERS_WRITE) or is_ours(root / name):
        return root / name
    return root / f"tfio-{re.sub(r'[^A-Za-z0-9._-]', '_', files.user_name(os.geteuid()))}" / name


def is_ours(folder: Path) -> bool:
    """Return whether a folder exists that nobody else may write to."""
    try:
        return not files.distrust(folder)
    except OSError:
        return False


def own_folder(root: Path, name: str, key: str = "storage") -> Path:
    """Return a folder of ours (`own_path`) below a root (`key` in the configuration), made if it is missing.

    If the file system refuses to make it, the later writer reports the error.
    """
    ours = own_path(root, name)
    for folder in (*([ours.parent] if ours.parent != root else []), ours):
        try:
            files.make_folder(folder, exist_ok=True)
            fault = files.distrust(folder)
        except OSError:
            break
        if fault:
            raise EnvironmentFaultError(fault, f"{key}.root=… gives another place")
    return ours
