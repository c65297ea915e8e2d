"""Where a storage lies on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import EnvironmentFaultError

if TYPE_CHECKING:
    from collections.abc import Mapping


def storage_root(storage: Mapping[str, Any], key: str = "storage") -> Path:
    """Find the root folder of a storage, that of `key` in the configuration.

    A relative root belongs to the folder that the campaign is started from and is made. An absolute one must be
    there: a device that is not mounted must not be mistaken for the disk under its mount point.
    """
    root = Path(storage["root"]).expanduser()
    try:
        if not root.is_absolute():
            root = root.absolute()
            root.mkdir(parents=True, exist_ok=True)
        if not root.is_dir():
            raise EnvironmentFaultError(
                f"storage {storage['name']}: there is no folder {root}", f"mount it, or set {key}.root=…"
            )
    except OSError as error:
        raise EnvironmentFaultError(
            f"storage {storage['name']}: cannot use {root}: {error.strerror}", f"set {key}.root=… to another folder"
        ) from error
    return root
