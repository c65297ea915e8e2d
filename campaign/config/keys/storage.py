"""The group ``storage``, and what a site says of its storages: keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from omegaconf import MISSING

from campaign.errors import UsageError
from jobs.settings import key

if TYPE_CHECKING:
    from campaign.cells.contract import Flat
# lfs-setstripe(1): at most 2000 OSTs, -1 for all; a stripe of less than 4 GiB.
_RANK = "{rank}"
_STRIPES, _MIB = (-1, 2000), (1, 4095)


class Exclusive(Enum):
    """How jobs are kept from using a storage at once."""

    license = "license"
    singleton = "singleton"
    lock = "lock"
    none = "none"


@dataclass
class Storage:
    """Group ``storage``."""

    name: str = MISSING
    root: str | None = MISSING
    shared: bool = MISSING
    exclusive: Exclusive = MISSING
    license: str | None = MISSING
    stripe_count: int | None = key(MISSING, *_STRIPES)
    stripe_size_mib: int | None = key(MISSING, *_MIB)
    node_root: str | None = MISSING


@dataclass
class SiteStorage:
    """What a site says of one of its storages; None: nothing."""

    root: str | None = None
    shared: bool | None = None
    exclusive: Exclusive | None = None
    license: str | None = None
    stripe_count: int | None = key(None, *_STRIPES)
    stripe_size_mib: int | None = key(None, *_MIB)
    node_root: str | None = None


def no_root(place: str, what: str, values: Flat) -> UsageError:
    """Say that a storage is nowhere; `place` is its key in the configuration."""
    name, site = values[f"{place}.name"], values["site.name"]
    return UsageError(
        f"{what} has no root here",
        f"{place}.root=…, or site=… with a file that gives storages.{name}.root (site={site} does not)",
    )


def check(values: Flat) -> None:
    """Refuse a storage that is nowhere, or is kept free by a licence that has no name."""
    name = values["storage.name"]
    if values["storage.root"] is None:
        raise no_root("storage", f"storage={name}", values)
    _of_ranks(values["storage.root"], values["storage.node_root"])
    if values["storage.exclusive"] == "license" and values["storage.license"] is None:
        raise UsageError(
            f"storage.exclusive=license: storage={name} has no licence here",
            "storage.license=… (`scontrol show licenses` lists what the site has), or storage.exclusive=lock",
        )
    if values["storage.stripe_count"] == 0:
        raise UsageError("storage.stripe_count=0 is the file system's own default", "write storage.stripe_count=null")


def _of_ranks(root: str, node_root: str | None) -> None:
    """Refuse a place of ranks that is one for all of them, or depends on the folder that somebody is in."""
    if node_root is not None and not (_RANK in node_root and node_root.startswith("/") and root.startswith("/")):
        raise UsageError(
            f"storage.node_root={node_root} with storage.root={root} is not a folder for each rank",
            f"write both from / on, and {_RANK} where the folders differ: storage.node_root='/mnt/node{_RANK}/data'",
        )
