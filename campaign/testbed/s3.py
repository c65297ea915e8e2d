"""The object store of a testbed: a Ceph gateway, and the files by which a campaign finds it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import ceph_steps
from campaign.testbed.ceph import BUCKET, DAEMONS, REGION, Ceph, Shape
from campaign.testbed.spec import GB
from campaign.testbed.steps import Call, run
from jobs.system import durable, files
from jobs.system.device import mount_of

if TYPE_CHECKING:
    from campaign.testbed.steps import Step
    from jobs.model.settings import Node

FOLDER = "s3"
SITE = "twin_s3"


@dataclass(frozen=True)
class Store:
    """What is asked for: the storage of the testbed that has the objects, or None: the disk beneath; its size."""

    on: str | None = None
    size_bytes: int = 6 * GB
    cached: bool = False  # whether its OSD may answer from memory

    def shape(self, folder: Path) -> Shape:
        """Return it as the gateway is made; on the disk beneath it has a loop device, which counts what is read."""
        disk = folder / (self.on or FOLDER)
        return Shape(str(disk), self.size_bytes, loop=self.on is None, cached=self.cached)


def gateway(folder: Path) -> Ceph:
    """Return the gateway of a testbed, whether it is there or not."""
    return Ceph(folder / FOLDER)


def up(folder: Path, store: Store, owner: tuple[int, int]) -> None:
    """Make the store, or start what is not running of it; the storage that it lies on is up."""
    shape, made = store.shape(folder), gateway(folder)
    if store.on and mount_of(folder / store.on).point != str((folder / store.on).resolve()):
        raise UsageError(
            f"s3_on={store.on}: it is not up here", f"testbed up storages=[{store.on}] s3=true s3_on={store.on}"
        )
    if (promised := _promised(made, shape)) > (free := durable.free_bytes(folder / (store.on or ""))):
        raise EnvironmentFaultError(
            f"s3 needs {promised / GB:.1f} GB, and {free / GB:.1f} GB are free in {shape.disk}",
            "ask for less: s3_size_gb=…",
        )
    ceph_steps.up(made, shape, owner)
    for step in _listed(folder):
        step.do()


def steps(folder: Path, store: Store, owner: tuple[int, int]) -> list[Step]:
    """Return what `up` does; nothing where it is up."""
    found = [*ceph_steps.steps(gateway(folder), store.shape(folder), owner), *_listed(folder)]
    return [] if (state(folder) or {}).get("state") == "up" else found


def _listed(folder: Path) -> list[Step]:
    """Return how campaigns come to find the store."""
    site = _site(folder)
    return [
        run("mkdir", "-p", "-m", "755", site.parent),
        Call(f"# write {site}: the store's address and device", lambda: files.write(site, _site_text(gateway(folder)))),
    ]


def down(folder: Path, *, keep: bool) -> None:
    """End the store and remove what is ours of it; with `keep` its objects stay for the next `up`."""
    made = gateway(folder)
    if made.facts and keep:
        made.stop()
        return
    if made.facts:
        files.remove(_site(folder), missing_ok=True)
        made.remove()
    for each in (_site(folder).parent, made.folder):
        with suppress(OSError):  # what is in it then is not ours, and is named by what comes next
            files.remove_empty(each)


def promised_beneath(folder: Path, store: Store | None) -> int:
    """Return the bytes that the store asked for, or else the one that is there, may still take of the disk beneath."""
    made = gateway(folder)
    if store:
        return _promised(made, store.shape(folder)) if store.on is None else 0
    facts = made.facts
    return int(facts["size_bytes"]) - made.allocated_bytes if facts.get("loop") else 0


def state(folder: Path) -> Node | None:
    """Return what there is to say of the store, for everybody; None where there is none."""
    made = gateway(folder)
    if not (facts := made.facts):
        return None
    up = facts["made"] and made.answers()
    room = made.room() if up else None
    return {
        "state": "up" if up else "down",
        "endpoint": made.endpoint,
        "bucket": BUCKET,
        "size_bytes": facts["size_bytes"],
        "used_bytes": room and room.used_bytes,  # None: not known to this user
        "quota_bytes": room and room.most_bytes,
        "device": _device(made),
        "disk": facts["disk"],
        "credentials": str(made.credentials_file),
        "site": str(_site(folder)),
    }


def processes(folder: Path) -> set[int]:
    """Return the processes of the store."""
    made = gateway(folder)
    return {pid for daemon in DAEMONS if (pid := made.pid(daemon))}


def see_that_nobody_uses(folder: Path) -> None:
    """Refuse where a process that is not the store's is connected to its gateway."""
    made = gateway(folder)
    ours = processes(folder) | {os.getpid()}
    for each in psutil.net_connections("tcp") if made.pid("gateway") else ():
        there = each.status == psutil.CONN_ESTABLISHED and each.raddr == ("127.0.0.1", made.facts["port"])
        if there and each.pid and each.pid not in ours:
            raise EnvironmentFaultError(
                f"s3 is busy: process {each.pid} is connected to {made.endpoint}",
                "end it (a campaign: Ctrl-C), then give the same command again",
            )


def _promised(made: Ceph, shape: Shape) -> int:
    """Return by how much its sparse file may still grow."""
    return shape.size_bytes - made.allocated_bytes


def _device(made: Ceph) -> str | None:
    """Return where its objects lie: its loop device, or a folder of the emulated storage, which is marked as such."""
    return made.device if made.facts["loop"] else str(made.facts["disk"])


def _site(folder: Path) -> Path:
    return folder / FOLDER / "site" / f"{SITE}.yaml"


def _site_text(made: Ceph) -> str:
    said = {"kind": "s3", "endpoint": made.endpoint, "bucket": BUCKET, "region": REGION, "device": _device(made)}
    return (
        f"# The storages of the testbed and its object store, of which `testbed down` removes this file, too.\n"
        f"defaults: [twin, _self_]\nname: {SITE}\nstorages: {json.dumps({'s3': said})}\n"
    )
