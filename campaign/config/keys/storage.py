"""The group ``storage``, and what a site says of its storages: keys and what can be meant by them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from campaign.errors import UsageError, refuse
from jobs.benchmarks.registry import benchmarks
from jobs.model.conduct import Flat
from jobs.model.settings import key
from jobs.objects.address import TIMEOUT_S, is_endpoint, is_prefix, is_region, shown

# lfs-setstripe(1): at most 2000 OSTs, -1 for all; a stripe of less than 4 GiB.
_RANK = "{rank}"
_STRIPES, _MIB = (-1, 2000), (1, 4095)
_BUCKET = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Keys that act on files alone, and the value with which they do nothing.
_FILES_ALONE = (
    ("storage.shared", True, "leave it away: every node sees the same store"),
    ("nodes", 1, "nodes=1, for what a store's disk gave is counted for all clients together, and not by rank"),
    ("staging", "none", "staging=none: it copies files"),
    ("profile.posix", "none", "profile.posix=none, profile.every=null: its calls are on sockets"),
    ("benchmark.stage", None, "leave it away: it copies files"),
)


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


Engine = Enum("Engine", {"threads": "threads", "async": "async"})
Engine.__doc__ = "How objects are read: a get in each call of the map, or by one event loop ahead of them."


class Kind(Enum):
    """Whether a storage holds files below a root, or objects in a bucket."""

    posix = "posix"
    s3 = "s3"


@dataclass
class ObjectStorage:
    """Group ``storage``, choice ``s3``."""

    name: str = MISSING
    kind: Kind = MISSING
    endpoint: str | None = MISSING
    bucket: str | None = MISSING
    prefix: str = MISSING
    region: str = MISSING
    engine: Engine = MISSING
    concurrency: int | None = key(MISSING, 1, 1024)
    timeout_s: float = key(MISSING, *TIMEOUT_S)
    retries: int = key(MISSING, 0, 10_000)
    backoff_s: float = key(MISSING, 0.05, 600)
    checksum: bool = MISSING
    device: str | None = MISSING
    shared: bool = MISSING
    exclusive: Exclusive = MISSING
    license: str | None = MISSING


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
    kind: Kind | None = None
    endpoint: str | None = None
    bucket: str | None = None
    prefix: str | None = None
    region: str | None = None
    device: str | None = None


def no_root(place: str, what: str, values: Flat) -> UsageError:
    """Say that a storage is nowhere; `place` is its key in the configuration."""
    name, site = values[f"{place}.name"], values["site.name"]
    return UsageError(
        f"{what} has no root here",
        f"{place}.root=…, or site=… with a file that gives storages.{name}.root (site={site} does not)",
    )


def check(values: Flat) -> None:
    """Refuse a storage that is nowhere, or is kept free by a licence that has no name."""
    name, of_objects = values["storage.name"], "storage.endpoint" in values
    if values.get(f"site.storages.{name}.kind") not in (None, "s3" if of_objects else "posix"):
        other = "site" if of_objects else "s3"
        raise UsageError(f"the site says another kind of {name}", f"storage={other} storage.name={name}")
    if of_objects:
        if values["storage.kind"] != "s3":
            raise UsageError(
                f"storage.kind={values['storage.kind']} does not fit storage=s3", "storage=site, or ssd, …"
            )
        refuse(_of_objects(values))
    elif values["storage.root"] is None:
        raise no_root("storage", f"storage={name}", values)
    else:
        _of_ranks(values["storage.root"], values["storage.node_root"])
    if values["storage.exclusive"] == "license" and values["storage.license"] is None:
        raise UsageError(
            f"storage.exclusive=license: storage={name} has no licence here",
            "storage.license=… (`scontrol show licenses` lists what the site has), or storage.exclusive=lock",
        )
    if values.get("storage.stripe_count") == 0:
        raise UsageError("storage.stripe_count=0 is the file system's own default", "write storage.stripe_count=null")


def _of_objects(values: Flat) -> Iterator[tuple[str, str]]:
    """Yield why an object store is nowhere, or what it cannot do, each with its cure."""
    for word, example in (("endpoint", "https://s3.example.org"), ("bucket", "NAME")):
        if values[f"storage.{word}"] is None:
            why = f"storage={values['storage.name']} has no {word}"
            yield why, f"storage.{word}={example}, or site=… with a file that gives it"
    if values["storage.endpoint"] is not None:
        yield from of_endpoint("storage.endpoint", values)
    if not _BUCKET.fullmatch(values["storage.bucket"] or "any"):
        yield f"storage.bucket={values['storage.bucket']!r} is no bucket", "3 to 63 of a-z, 0-9, '.', '-'"
    if not is_region(values["storage.region"]):
        yield f"storage.region={values['storage.region']!r} is no region", "storage.region=us-east-1, say"
    prefix = values["storage.prefix"]
    if not is_prefix(prefix.strip("/")):
        yield f"storage.prefix={prefix!r} is no prefix of keys", "words between slashes: tests/of-mine"
    if values["storage.engine"] == "threads" and values["storage.concurrency"] is not None:
        why = (
            f"storage.concurrency={values['storage.concurrency']}: the engine threads has threads=… requests in flight"
        )
        yield why, "storage.engine=async, or leave storage.concurrency away"
    yield from _of_files_alone(values)


def _of_files_alone(values: Flat) -> Iterator[tuple[str, str]]:
    """Yield what has no meaning on objects, each with its cure."""
    if values["cache"] == "warm":
        yield (
            "cache=warm: what the servers of an object store have in memory can be neither filled nor seen from here",
            "cache=cold proves its bytes by the servers' disk; cache=as_is claims nothing",
        )
    if benchmarks()[values["benchmark.name"]].data == "hdf5" and values["reader"] != "offsets":
        why = f"reader={values['reader']} with an object store: HDF5's library reads files"
        yield why, "reader=offsets, which gets ranges of the objects"
    if values.get("benchmark.control") == "metadata":
        why = "benchmark.control=metadata opens files, and objects are not opened"
        yield why, "benchmark.control=none,no_io,no_compute"
    for word, only, hint in _FILES_ALONE:
        if values.get(word, only) != only:
            yield f"{word}={values[word]} with an object store", hint


def of_endpoint(key: str, values: Flat) -> Iterator[tuple[str, str]]:
    """Yield that an address is none, or has a password in it, which would stand in every record; with the cure."""
    if not is_endpoint(text := values[key]):
        yield (
            f"{key}={shown(text)!r} is no address of an object store",
            "https://HOST or http://HOST:PORT alone; credentials come from the environment",
        )


def _of_ranks(root: str, node_root: str | None) -> None:
    """Refuse a place of ranks that is one for all of them, or depends on the folder that somebody is in."""
    if node_root is not None and not (_RANK in node_root and node_root.startswith("/") and root.startswith("/")):
        raise UsageError(
            f"storage.node_root={node_root} with storage.root={root} is not a folder for each rank",
            f"write both from / on, and {_RANK} where the folders differ: storage.node_root='/mnt/node{_RANK}/data'",
        )
