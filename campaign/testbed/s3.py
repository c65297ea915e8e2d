"""Make and remove the object store of a testbed: a Ceph gateway, and the site file with the gateway's address."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed.ceph import (
    BUCKET,
    DAEMONS,
    IMAGE,
    LOOP_OF,
    PROGRAMS,
    REGION,
    USER,
    Ceph,
    GatewaySettings,
    find_free_ports,
    format_settings,
    make_keyring,
    missing_for_gateway,
)
from campaign.testbed.spec import GB
from campaign.testbed.steps import CallStep, WriteStep, program_step
from jobs.system import files
from jobs.system.device import mount_of

if TYPE_CHECKING:
    from campaign.testbed.steps import Step
    from jobs.model.settings import Node

FOLDER = "s3"
SITE = "twin_s3"
# Ceph delays all writes and removals if 0.95 of its disk is in use. An empty Ceph disk already uses 0.3 GB. Removed
# objects still occupy space for some seconds.
_QUOTA_SHARE, _OWN_BYTES = 0.85, 300_000_000
_LONGEST_SOCKET = 107  # largest number of bytes in the path of a unix socket, unix(7)


def quota_bytes(shape: GatewaySettings) -> int:
    """Return the quota of the bucket in bytes (whole MiB), so that the disk never becomes full."""
    return round(_QUOTA_SHARE * (shape.size_bytes - _OWN_BYTES)) >> 20 << 20


def bring_up_gateway(gateway: Ceph, shape: GatewaySettings, owner: tuple[int, int] | None = None) -> None:
    """Make the missing parts of a gateway and start its daemons.

    `owner` (user id and group id) will own the file with the credentials.
    """
    if reason := missing_for_gateway():
        raise EnvironmentFaultError(f"S3 needs Ceph: {reason}", "install the missing package, or leave out s3=true")
    for step in gateway_steps(gateway, shape, owner):
        step.do()


def gateway_steps(gateway: Ceph, shape: GatewaySettings, owner: tuple[int, int] | None = None) -> list[Step]:
    """Return the steps that bring a gateway up, either in an empty folder or from the gateway's present state."""
    facts = gateway.facts
    if facts.get("made") and {**facts, **asdict(shape)} != facts:
        raise UsageError("the present gateway was made with other settings", "testbed down removes the gateway")
    if facts.get("made"):
        disk = _disk_steps(gateway, shape, attached=bool(gateway.device))
        return [*disk, *(_start_step(gateway, daemon) for daemon in DAEMONS)]
    steps = _creation_steps(gateway, shape, owner)
    return [CallStep(f"# remove the incomplete gateway {gateway.folder}", gateway.remove), *steps] if facts else steps


def _creation_steps(gateway: Ceph, shape: GatewaySettings, owner: tuple[int, int] | None) -> list[Step]:
    """Return the steps that make an empty Ceph cluster with a user and a bucket; afterwards all daemons run."""
    if len(os.fsencode(gateway.socket_of("gateway"))) > _LONGEST_SOCKET:
        raise UsageError(
            f"the path {gateway.folder} is too long for a unix socket", "choose a folder with a shorter path: --folder"
        )
    private, conf, image = gateway.private, gateway.conf, Path(shape.disk) / IMAGE
    fsid, osd, (mon_port, port) = uuid.uuid4(), uuid.uuid4(), find_free_ports(2)
    facts = {**asdict(shape), "mon_port": mon_port, "port": port}
    text = format_settings(private, DAEMONS.values(), cached=shape.cached, fsid=fsid, mon_port=mon_port, port=port)
    # The key mon_host in ceph.conf is not enough, because Ceph would ignore the port in it.
    address = ("--addv", "a", f"[v2:127.0.0.1:{mon_port}]", "--set-min-mon-release", "pacific")
    user = f"radosgw-admin -c {conf} user create --uid {USER} --display-name {USER}"
    quota = ("--quota-scope=bucket", "--bucket", BUCKET, f"--max-size={quota_bytes(shape)}")
    return [
        program_step("mkdir", "-p", "-m", "755", gateway.folder),
        _note_facts(gateway, {**facts, "made": False}),
        program_step("mkdir", "-m", "700", private, private / "osd", private / "gateway"),
        CallStep(f"# write {private}/keyring: new keys", lambda: files.write_text(private / "keyring", make_keyring())),
        CallStep(f"# write {conf}: ports {mon_port} and {port}, and more", lambda: files.write_text(Path(conf), text)),
        program_step("monmaptool", "--create", "--fsid", fsid, *address, private / "monmap"),
        program_step("ceph-mon", "-c", conf, "--mkfs", "-i", "a", "--monmap", private / "monmap"),
        _start_step(gateway, "mon"),
        CallStep(
            f"# write {image}: a sparse file of {shape.size_bytes} bytes",
            lambda: _make_sparse_file(image, shape.size_bytes),
        ),
        *_disk_steps(gateway, shape),
        program_step("ceph", "-c", conf, "osd", "new", osd),
        program_step("ceph-osd", "-c", conf, "-i", 0, "--mkfs", "--osd-uuid", osd),
        _start_step(gateway, "osd"),
        _start_step(gateway, "gateway"),
        CallStep(f"{user}  # its keys go to {gateway.credentials_file}", lambda: _add_user(gateway, owner)),
        CallStep(f"# put http://127.0.0.1:{port}/{BUCKET}: the bucket", gateway.make_bucket),
        program_step("radosgw-admin", "-c", conf, "quota", "enable", *quota),
        _note_facts(gateway, {**facts, "made": True}),
    ]


def _note_facts(gateway: Ceph, facts: dict[str, object]) -> Step:
    return WriteStep(gateway.folder / "gateway.json", json.dumps(facts), ours=True)


def _disk_steps(gateway: Ceph, shape: GatewaySettings, *, attached: bool = False) -> list[Step]:
    """Return the steps that give the OSD its disk, which is the sparse file or the loop device of this file."""
    image = Path(shape.disk) / IMAGE
    disk = f'"$({shlex.join((*LOOP_OF, str(image)))})"' if shape.loop else image
    link: Step = CallStep(f"ln -sfn {disk} {gateway.private}/osd/block", gateway.link)
    return [program_step("losetup", "--find", "--direct-io=on", image), link] if shape.loop and not attached else [link]


def _start_step(gateway: Ceph, daemon: str) -> Step:
    line = f"{PROGRAMS[daemon]} -c {gateway.conf} -n {DAEMONS[daemon]}  # unless it runs; wait until it answers"
    return CallStep(line, partial(gateway.start, daemon))


def _make_sparse_file(image: Path, size: int) -> None:
    with files.write_whole(image, mode=0o600) as file:
        file.truncate(size)


def _add_user(gateway: Ceph, owner: tuple[int, int] | None) -> None:
    credentials = gateway.add_user(USER)
    with files.write_whole(gateway.credentials_file, mode=0o600) as file:
        os.fchown(file.fileno(), *(owner or (-1, -1)))
        file.write("".join(f"export {key}={value}\n" for key, value in credentials.items()).encode())


@dataclass(frozen=True)
class StoreRequest:
    """The requested object store: the storage for its objects, and its size."""

    on: str | None = None  # name of the emulated storage for the objects; None: the underlying disk
    size_bytes: int = 6 * GB
    cached: bool = False  # whether the OSD may answer a read from its memory

    def shape(self, folder: Path) -> GatewaySettings:
        """Return the settings of the gateway.

        On the underlying disk, the gateway gets a loop device, which counts reads.
        """
        disk = folder / (self.on or FOLDER)
        return GatewaySettings(str(disk), self.size_bytes, loop=self.on is None, cached=self.cached)


def gateway_in(folder: Path) -> Ceph:
    """Return the gateway of the testbed in `folder`; the gateway may not exist yet."""
    return Ceph(folder / FOLDER)


def bring_up_store(folder: Path, store: StoreRequest, owner: tuple[int, int]) -> None:
    """Make the object store, or start its missing daemons; the storage that holds its objects must be up."""
    shape, gateway = store.shape(folder), gateway_in(folder)
    if store.on and mount_of(folder / store.on).point != str((folder / store.on).resolve()):
        raise UsageError(
            f"s3_on={store.on}: this storage is not up", f"testbed up storages=[{store.on}] s3=true s3_on={store.on}"
        )
    if (promised := _bytes_promised(gateway, shape)) > (free := files.free_bytes(folder / (store.on or ""))):
        raise EnvironmentFaultError(
            f"s3 needs {promised / GB:.1f} GB, but only {free / GB:.1f} GB are free in {shape.disk}",
            "set a smaller s3_size_gb=…",
        )
    bring_up_gateway(gateway, shape, owner)
    for step in _site_steps(folder):
        step.do()


def store_steps(folder: Path, store: StoreRequest, owner: tuple[int, int]) -> list[Step]:
    """Return the steps of `bring_up_store`; return no step if the object store is up."""
    steps = [*gateway_steps(gateway_in(folder), store.shape(folder), owner), *_site_steps(folder)]
    return [] if (store_state(folder) or {}).get("state") == "up" else steps


def _site_steps(folder: Path) -> list[Step]:
    """Return the steps that write the site file, in which campaigns find the address of the object store."""
    site = _site_file(folder)
    return [
        program_step("mkdir", "-p", "-m", "755", site.parent),
        CallStep(
            f"# write {site}: the store's address and device",
            lambda: files.write_text(site, _site_text(gateway_in(folder))),
        ),
    ]


def take_down_store(folder: Path, *, keep: bool) -> None:
    """End the object store and remove its files; with `keep`, the files remain for the next `testbed up`."""
    gateway = gateway_in(folder)
    if gateway.facts and keep:
        gateway.stop()
        return
    if gateway.facts:
        files.remove(_site_file(folder), missing_ok=True)
        gateway.remove()
    for empty_folder in (_site_file(folder).parent, gateway.folder):
        with suppress(OSError):  # the folder has files of other programs, which the next command reports
            files.remove_empty(empty_folder)


def bytes_promised_beneath(folder: Path, store: StoreRequest | None) -> int:
    """Return how many more bytes the requested or existing object store may occupy on the underlying disk."""
    gateway = gateway_in(folder)
    if store:
        return _bytes_promised(gateway, store.shape(folder)) if store.on is None else 0
    facts = gateway.facts
    return int(facts["size_bytes"]) - gateway.allocated_bytes if facts.get("loop") else 0


def store_state(folder: Path) -> Node | None:
    """Return the state of the object store, without private values such as keys; None without an object store."""
    gateway = gateway_in(folder)
    if not (facts := gateway.facts):
        return None
    is_up = facts["made"] and gateway.answers()
    room = gateway.bucket_space() if is_up else None
    return {
        "state": "up" if is_up else "down",
        "endpoint": gateway.endpoint,
        "bucket": BUCKET,
        "size_bytes": facts["size_bytes"],
        "used_bytes": room and room.used_bytes,  # None: this user may not read the value
        "quota_bytes": room and room.most_bytes,
        "device": _device_of_objects(gateway),
        "disk": facts["disk"],
        "credentials": str(gateway.credentials_file),
        "site": str(_site_file(folder)),
    }


def store_processes(folder: Path) -> set[int]:
    """Return the process ids of the running daemons of the object store."""
    gateway = gateway_in(folder)
    return {pid for daemon in DAEMONS if (pid := gateway.pid(daemon))}


def require_unused(folder: Path) -> None:
    """Raise EnvironmentFaultError if a client process is connected to the gateway of the object store."""
    gateway = gateway_in(folder)
    ours = store_processes(folder) | {os.getpid()}
    for connection in psutil.net_connections("tcp") if gateway.pid("gateway") else ():
        is_client = connection.status == psutil.CONN_ESTABLISHED and connection.raddr == (
            "127.0.0.1",
            gateway.facts["port"],
        )
        if is_client and connection.pid and connection.pid not in ours:
            raise EnvironmentFaultError(
                f"s3 is busy: process {connection.pid} is connected to {gateway.endpoint}",
                "end the process (a campaign with Ctrl-C), then repeat the command",
            )


def _bytes_promised(gateway: Ceph, shape: GatewaySettings) -> int:
    """Return the number of bytes by which the gateway's sparse file may still grow."""
    return shape.size_bytes - gateway.allocated_bytes


def _device_of_objects(gateway: Ceph) -> str | None:
    """Return where the gateway's objects are: the path of the loop device, or the folder on the emulated storage."""
    return gateway.device if gateway.facts["loop"] else str(gateway.facts["disk"])


def _site_file(folder: Path) -> Path:
    return folder / FOLDER / "site" / f"{SITE}.yaml"


def _site_text(gateway: Ceph) -> str:
    storage = {
        "kind": "s3",
        "endpoint": gateway.endpoint,
        "bucket": BUCKET,
        "region": REGION,
        "device": _device_of_objects(gateway),
    }
    return (
        f"# The storages and the object store of the testbed. `testbed down` removes this file.\n"
        f"defaults: [twin, _self_]\nname: {SITE}\nstorages: {json.dumps({'s3': storage})}\n"
    )
