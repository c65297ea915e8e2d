"""The steps that bring a Ceph gateway up: from an empty folder to a bucket, or from where it was left."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed.ceph import BUCKET, DAEMONS, IMAGE, LOOP_OF, PROGRAMS, USER, missing
from campaign.testbed.ceph_conf import free_ports, keyring, settings
from campaign.testbed.steps import Call, Write, run
from jobs.system import files

if TYPE_CHECKING:
    from campaign.testbed.ceph import Ceph, Shape
    from campaign.testbed.steps import Step

# Ceph lets all writes wait, removals too, where 0.95 of its disk is in use; 0.3 GB of an empty one is. What is removed
# is there for some seconds more.
_SHARE, _OWN_BYTES = 0.85, 300_000_000
_LONGEST_SOCKET = 107  # bytes of a unix socket's path, unix(7)


def quota_bytes(shape: Shape) -> int:
    """Return what the bucket's objects may have of the disk, so that it is never full; whole MiB."""
    return round(_SHARE * (shape.size_bytes - _OWN_BYTES)) >> 20 << 20


def up(gateway: Ceph, shape: Shape, owner: tuple[int, int] | None = None) -> None:
    """Make what is not there, start what does not run; the credentials are those of `owner` (user and group)."""
    if reason := missing():
        raise EnvironmentFaultError(f"S3 needs Ceph: {reason}", "install it, or leave out s3=true")
    for step in steps(gateway, shape, owner):
        step.do()


def steps(gateway: Ceph, shape: Shape, owner: tuple[int, int] | None = None) -> list[Step]:
    """Return what is to be done, in its order."""
    facts = gateway.facts
    if facts.get("made") and {**facts, **asdict(shape)} != facts:
        raise UsageError("the gateway that is there was made with other settings", "testbed down removes it")
    if facts.get("made"):
        disk = _disk(gateway, shape, attached=bool(gateway.device))
        return [*disk, *(_started(gateway, daemon) for daemon in DAEMONS)]
    made = _making(gateway, shape, owner)
    return [Call(f"# remove what was half made in {gateway.folder}", gateway.remove), *made] if facts else made


def _making(gateway: Ceph, shape: Shape, owner: tuple[int, int] | None) -> list[Step]:
    """Return how an empty cluster is made, its user and its bucket; all of it runs then."""
    if len(os.fsencode(gateway.socket_of("gateway"))) > _LONGEST_SOCKET:
        raise UsageError(f"{gateway.folder} is too long for a unix socket", "name a shorter --folder")
    private, conf, image = gateway.private, gateway.conf, Path(shape.disk) / IMAGE
    fsid, osd, (mon_port, port) = uuid.uuid4(), uuid.uuid4(), free_ports(2)
    facts = {**asdict(shape), "mon_port": mon_port, "port": port}
    text = settings(private, DAEMONS.values(), cached=shape.cached, fsid=fsid, mon_port=mon_port, port=port)
    # mon_host alone does not do: its port would be ignored.
    address = ("--addv", "a", f"[v2:127.0.0.1:{mon_port}]", "--set-min-mon-release", "pacific")
    user = f"radosgw-admin -c {conf} user create --uid {USER} --display-name {USER}"
    quota = ("--quota-scope=bucket", "--bucket", BUCKET, f"--max-size={quota_bytes(shape)}")
    return [
        run("mkdir", "-p", "-m", "755", gateway.folder),
        _noted(gateway, {**facts, "made": False}),
        run("mkdir", "-m", "700", private, private / "osd", private / "gateway"),
        Call(f"# write {private}/keyring: new keys", lambda: files.write(private / "keyring", keyring())),
        Call(f"# write {conf}: ports {mon_port} and {port}, and more", lambda: files.write(Path(conf), text)),
        run("monmaptool", "--create", "--fsid", fsid, *address, private / "monmap"),
        run("ceph-mon", "-c", conf, "--mkfs", "-i", "a", "--monmap", private / "monmap"),
        _started(gateway, "mon"),
        Call(f"# write {image}: a sparse file of {shape.size_bytes} bytes", lambda: _sparse(image, shape.size_bytes)),
        *_disk(gateway, shape),
        run("ceph", "-c", conf, "osd", "new", osd),
        run("ceph-osd", "-c", conf, "-i", 0, "--mkfs", "--osd-uuid", osd),
        _started(gateway, "osd"),
        _started(gateway, "gateway"),
        Call(f"{user}  # its keys go to {gateway.credentials_file}", lambda: _add_user(gateway, owner)),
        Call(f"# put http://127.0.0.1:{port}/{BUCKET}: the bucket", gateway.make_bucket),
        run("radosgw-admin", "-c", conf, "quota", "enable", *quota),
        _noted(gateway, {**facts, "made": True}),
    ]


def _noted(gateway: Ceph, facts: dict[str, object]) -> Step:
    return Write(gateway.folder / "gateway.json", json.dumps(facts), ours=True)


def _disk(gateway: Ceph, shape: Shape, *, attached: bool = False) -> list[Step]:
    """Return how the OSD finds its disk: the file, or the loop device that it is attached to."""
    image = Path(shape.disk) / IMAGE
    disk = f'"$({shlex.join((*LOOP_OF, str(image)))})"' if shape.loop else image
    link: Step = Call(f"ln -sfn {disk} {gateway.private}/osd/block", gateway.link)
    return [run("losetup", "--find", "--direct-io=on", image), link] if shape.loop and not attached else [link]


def _started(gateway: Ceph, daemon: str) -> Step:
    line = f"{PROGRAMS[daemon]} -c {gateway.conf} -n {DAEMONS[daemon]}  # unless it runs; it answers then"
    return Call(line, partial(gateway.start, daemon))


def _sparse(image: Path, size: int) -> None:
    with files.whole(image, mode=0o600) as file:
        file.truncate(size)


def _add_user(gateway: Ceph, owner: tuple[int, int] | None) -> None:
    made = gateway.add_user(USER)
    with files.whole(gateway.credentials_file, mode=0o600) as file:
        os.fchown(file.fileno(), *(owner or (-1, -1)))
        file.write("".join(f"export {key}={value}\n" for key, value in made.items()).encode())
