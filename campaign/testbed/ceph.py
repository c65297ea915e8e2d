"""A Ceph object gateway (S3) on loopback: one monitor, one OSD and one gateway, all in one folder.

It needs Debian's packages, and neither systemd nor ``/etc``; root only for a loop device. The manager is left out: it
takes 300 MB, and S3 does not need it. The daemons know each other by keys (cephx), so that other users of the machine
cannot give them orders.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from campaign.errors import EnvironmentFaultError
from campaign.testbed.spec import GB
from campaign.testbed.steps import run
from jobs.model import reading
from jobs.objects import room
from jobs.system import files, programs

if TYPE_CHECKING:
    from obstore.store import S3Store

    from jobs.objects.room import Room

REGION = "us-east-1"
BUCKET = USER = "campaign"
PACKAGES = "ceph-mon ceph-osd radosgw ceph-common ceph-base"
DAEMONS = {"mon": "mon.a", "osd": "osd.0", "gateway": "client.gateway"}  # and Ceph's names; in the order of the start
PROGRAMS = {"mon": "ceph-mon", "osd": "ceph-osd", "gateway": "radosgw"}
_FURTHER_PROGRAMS = ("ceph", "monmaptool", "radosgw-admin")
_SERVES = ("leader", "active")  # what a monitor, and an OSD, says of itself then
IMAGE = "ceph.img"
LOOP_OF = ("losetup", "--noheadings", "--output", "NAME", "--associated")
_READY_S, _CALL_S, _MOMENT_S = 30.0, 20.0, 0.05
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # past any proxy of the environment
_STAT_BLOCK = 512  # bytes of a unit of st_blocks, stat(2)


def missing() -> str | None:
    """Say what this machine lacks; None for nothing."""
    if find_spec("obstore") is None:
        return "there is no obstore, which makes the bucket (pip install 'tfio-campaign[s3]')"
    lacking = [name for name in (*PROGRAMS.values(), *_FURTHER_PROGRAMS) if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)} (apt-get install {PACKAGES})" if lacking else None


@dataclass(frozen=True)
class Shape:
    """What can be chosen of a gateway when it is made."""

    disk: str  # folder of the sparse file that has all objects
    size_bytes: int = 6 * GB  # of that file
    loop: bool = False  # it is attached to a loop device (root), which counts what is read and can be throttled
    cached: bool = False  # the OSD may answer a read from its memory


@dataclass(frozen=True)
class Ceph:
    """One gateway, which answers at `endpoint` where it is up."""

    folder: Path  # all is in it but the disk; only the credentials' owner can read them, and only root the rest

    @property
    def facts(self) -> dict[str, Any]:
        """What was chosen: the fields of `Shape`, ``port``, ``mon_port``, ``made``; none where there is no gateway."""
        path = self.folder / "gateway.json"
        try:
            return reading.read(path, dict[str, Any])
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            raise EnvironmentFaultError(f"{path} cannot be read: {error}", f"remove {self.folder}") from error

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.facts['port']}"

    @property
    def credentials_file(self) -> Path:
        """What a shell reads to have the credentials in its environment."""
        return self.folder / "credentials.env"

    @property
    def credentials(self) -> dict[str, str]:
        """The environment of its user's clients."""
        lines = files.read(self.credentials_file).decode().splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    @property
    def private(self) -> Path:
        """The folder that only its owner may look into: the daemons' settings, keys, sockets and logs."""
        return self.folder / "ceph"

    @property
    def conf(self) -> str:
        """The daemons' settings."""
        return str(self.private / "ceph.conf")

    @property
    def image(self) -> Path:
        """The file that has all objects."""
        return Path(self.facts["disk"]) / IMAGE

    def socket_of(self, daemon: str) -> Path:
        """Return where a daemon takes orders."""
        return self.private / f"{DAEMONS[daemon]}.asok"

    @property
    def device(self) -> str | None:
        """The path of its loop device; None without one."""
        return next(iter(programs.run((*LOOP_OF, str(self.image))).stdout.split()), None)

    @property
    def allocated_bytes(self) -> int:
        """The bytes that its disk takes beneath."""
        with suppress(OSError, KeyError):
            return self.image.stat().st_blocks * _STAT_BLOCK
        return 0

    def stop(self) -> None:
        """End the daemons; what was put stays."""
        for daemon in reversed(DAEMONS):
            self.end(daemon, signal.SIGCONT, signal.SIGTERM)
        self._detach()

    def remove(self) -> None:
        """End the daemons at once and remove all of it."""
        if not self.facts:
            return
        for daemon in reversed(DAEMONS):
            self.end(daemon, signal.SIGKILL)
        self._detach()
        files.remove(self.image, missing_ok=True)
        if self.private.exists():
            files.remove_tree(self.private)
        for name in ("credentials.env", "gateway.json"):
            files.remove(self.folder / name, missing_ok=True)

    def start(self, daemon: str) -> None:
        """Start one daemon, unless it runs, and wait until it answers."""
        if not self.pid(daemon):
            files.remove(self.socket_of(daemon), missing_ok=True)
            run(PROGRAMS[daemon], "-c", self.conf, "-n", DAEMONS[daemon]).do()
        self._wait(lambda: self.answers(daemon), f"{PROGRAMS[daemon]} does not answer")

    def send(self, daemon: str, *numbers: signal.Signals) -> None:
        """Send signals to one daemon, where it runs."""
        if pid := self.pid(daemon):
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def end(self, daemon: str, *numbers: signal.Signals) -> None:
        """Send signals that end one daemon, and wait until it has ended."""
        if pid := self.pid(daemon):
            self.send(daemon, *numbers)
            self._wait(lambda: _has_ended(pid), f"{PROGRAMS[daemon]} does not end")

    def pid(self, daemon: str) -> int | None:
        """Return the process of a daemon of this gateway; None where it does not run."""
        with suppress(OSError, ValueError):
            pid = int(files.read(self.private / f"{DAEMONS[daemon]}.pid"))
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")  # a zombie has none
            return pid if os.fsencode(self.conf) in words else None
        return None

    def answers(self, daemon: str = "gateway") -> bool:
        """Tell whether a daemon does its work; only the gateway is asked where anybody may ask."""
        with suppress(OSError):
            if daemon != "gateway":
                return bool(self.ask(daemon, "status" if daemon == "osd" else "mon_status").get("state") in _SERVES)
            _DIRECT.open(self.endpoint, timeout=_CALL_S).close()
            return True
        return False

    def tell(self, *words: object, program: str = "ceph") -> str:
        """Give an order by ``ceph`` or ``radosgw-admin``, and return what it prints."""
        done = programs.run(tuple(map(str, (program, "-c", self.conf, *words))), timeout=_READY_S)
        if done.returncode:
            raise EnvironmentFaultError(
                f"{program} {words[0]}: {' '.join(done.stderr.split())}", f"see {self.private}/*.log"
            )
        return done.stdout

    def ask(self, daemon: str, prefix: str) -> Any:
        """Ask a daemon by its own socket (``status``, ``perf dump``): JSON; OSError where it does not answer."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(_CALL_S)
            asked.connect(str(self.socket_of(daemon)))
            asked.sendall(json.dumps({"prefix": prefix}).encode() + b"\0")
            with asked.makefile("rb") as answer:
                (size,) = struct.unpack(">I", answer.read(4).rjust(4, b"\0"))  # 0: it hung up
                return json.loads(answer.read(size) or b"{}")

    def add_user(self, name: str) -> dict[str, str]:
        """Make a user, who may use no bucket of another one; returns the environment of its clients."""
        words = ("user", "create", "--uid", name, "--display-name", name)  # Ceph makes the keys: no word says them
        (keys,) = json.loads(self.tell(*words, program="radosgw-admin"))["keys"]
        return {"AWS_ACCESS_KEY_ID": keys["access_key"], "AWS_SECRET_ACCESS_KEY": keys["secret_key"]}

    def make_bucket(self) -> None:
        """Make the user's bucket: a signed put to its own name. One that is there stays as it is."""
        import obstore  # noqa: PLC0415 - of the extra s3

        address = obstore.sign(self._store(), "PUT", "", timedelta(seconds=_CALL_S))
        _DIRECT.open(urllib.request.Request(address, method="PUT"), timeout=_CALL_S).close()  # noqa: S310 - of ours

    def room(self) -> Room | None:
        """Return how full the bucket is; None for who may not read the credentials, and where nothing answers."""
        with suppress(ImportError, OSError, KeyError):
            return room.of(self._store())
        return None

    def _store(self) -> S3Store:
        from obstore.store import S3Store  # noqa: PLC0415 - of the extra s3

        key, secret = self.credentials["AWS_ACCESS_KEY_ID"], self.credentials["AWS_SECRET_ACCESS_KEY"]
        return S3Store(
            BUCKET, endpoint=self.endpoint, region=REGION, access_key_id=key, secret_access_key=secret,
            virtual_hosted_style_request=False, client_options={"allow_http": True},
        )  # fmt: skip

    def link(self) -> None:
        """Let the OSD's disk be the loop device that its file is attached to, or else the file."""
        block = self.private / "osd/block"
        block.unlink(missing_ok=True)
        block.symlink_to(self.device or self.image)

    def _detach(self) -> None:
        if device := self.device:
            run("losetup", "--detach", device).do()

    def _wait(self, ready: Callable[[], bool], fault: str) -> None:
        deadline = time.monotonic() + _READY_S
        while not ready():
            if time.monotonic() > deadline:
                raise EnvironmentFaultError(f"{fault} within {_READY_S:g} s", f"see {self.private}/*.log")
            time.sleep(_MOMENT_S)


def _has_ended(pid: int) -> bool:
    """Tell whether a process has let go of its files; before that it has no command line any more."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return True
