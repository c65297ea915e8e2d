"""Run a Ceph object gateway (S3) on loopback: one monitor, one OSD and one gateway, all in one folder.

The gateway needs Debian's packages, but neither systemd nor ``/etc``. Only a loop device needs root. Ceph's manager
daemon is not started, because it takes 300 MB of memory and S3 does not need it. The daemons authenticate each other by
keys (cephx), so that other users of the machine cannot control the daemons.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import time
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from campaign.errors import EnvironmentFaultError
from campaign.testbed.spec import GB
from campaign.testbed.steps import program_step
from jobs.model import reading
from jobs.objects.client import BucketSpace, bucket_space
from jobs.system import files, programs

if TYPE_CHECKING:
    from obstore.store import S3Store


REGION = "us-east-1"
BUCKET = USER = "campaign"
PACKAGES = "ceph-mon ceph-osd radosgw ceph-common ceph-base"
DAEMONS = {"mon": "mon.a", "osd": "osd.0", "gateway": "client.gateway"}  # Ceph's names, in start order
PROGRAMS = {"mon": "ceph-mon", "osd": "ceph-osd", "gateway": "radosgw"}
_FURTHER_PROGRAMS = ("ceph", "monmaptool", "radosgw-admin")
_SERVES = ("leader", "active")  # the states of a working monitor and of a working OSD
IMAGE = "ceph.img"
LOOP_OF = ("losetup", "--noheadings", "--output", "NAME", "--associated")
_READY_S, _CALL_S, _MOMENT_S = 30.0, 20.0, 0.05
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # ignores proxy variables
_STAT_BLOCK = 512  # bytes per unit of st_blocks, stat(2)


def missing_for_gateway() -> str | None:
    """Return an error message if this machine lacks programs for a gateway, or None if all programs are installed."""
    if find_spec("obstore") is None:
        return "the Python package obstore, which makes the bucket, is missing (pip install 'tfio-campaign[s3]')"
    missing = [name for name in (*PROGRAMS.values(), *_FURTHER_PROGRAMS) if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (apt-get install {PACKAGES})" if missing else None


@dataclass(frozen=True)
class GatewaySettings:
    """The settings of a gateway, which cannot change after the gateway was made."""

    disk: str  # folder of the sparse file that contains all objects
    size_bytes: int = 6 * GB  # size of the sparse file
    # Whether the sparse file is attached to a loop device. A loop device needs root, counts reads and can be throttled.
    loop: bool = False
    cached: bool = False  # whether the OSD may answer a read from its memory


@dataclass(frozen=True)
class Ceph:
    """A Ceph gateway with its daemons; a running gateway answers at `endpoint`."""

    # The folder of all files except the sparse file. Only the owner of the credentials can read the credentials, and
    # only root can read the other files.
    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """Return the content of ``gateway.json``: the `GatewaySettings`, the ports, and ``made``.

        Return an empty dictionary if there is no gateway.
        """
        path = self.folder / "gateway.json"
        try:
            return reading.read_json(path, dict[str, Any])
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            raise EnvironmentFaultError(f"{path} cannot be read: {error}", f"remove {self.folder}") from error

    @property
    def endpoint(self) -> str:
        """Return the HTTP address of the gateway."""
        return f"http://127.0.0.1:{self.facts['port']}"

    @property
    def credentials_file(self) -> Path:
        """Return the path of the shell file that exports the S3 credentials as environment variables."""
        return self.folder / "credentials.env"

    @property
    def credentials(self) -> dict[str, str]:
        """Return the environment variables with the S3 credentials of the gateway's user."""
        lines = files.read_file(self.credentials_file).decode().splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    @property
    def private(self) -> Path:
        """Return the private folder (mode 700) with the settings, keys, sockets and logs of the daemons."""
        return self.folder / "ceph"

    @property
    def conf(self) -> str:
        """Return the path of ``ceph.conf``, the settings file of the daemons."""
        return str(self.private / "ceph.conf")

    @property
    def image(self) -> Path:
        """Return the path of the sparse file that contains all objects."""
        return Path(self.facts["disk"]) / IMAGE

    def socket_of(self, daemon: str) -> Path:
        """Return the path of a daemon's admin socket."""
        return self.private / f"{DAEMONS[daemon]}.asok"

    @property
    def device(self) -> str | None:
        """Return the path of the loop device of the sparse file, or None without a loop device."""
        return next(iter(programs.run_program((*LOOP_OF, str(self.image))).stdout.split()), None)

    @property
    def allocated_bytes(self) -> int:
        """Return the number of bytes that the sparse file occupies on the underlying disk."""
        with suppress(OSError, KeyError):
            return self.image.stat().st_blocks * _STAT_BLOCK
        return 0

    def stop(self) -> None:
        """End the daemons with SIGTERM and detach the loop device; the objects are not removed."""
        for daemon in reversed(DAEMONS):
            self.end(daemon, signal.SIGCONT, signal.SIGTERM)
        self._detach()

    def remove(self) -> None:
        """Kill the daemons and remove all files of the gateway, also the objects."""
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
        """Start a daemon if it does not run yet, and wait until the daemon answers."""
        if not self.pid(daemon):
            files.remove(self.socket_of(daemon), missing_ok=True)
            program_step(PROGRAMS[daemon], "-c", self.conf, "-n", DAEMONS[daemon]).do()
        self._wait(lambda: self.answers(daemon), f"{PROGRAMS[daemon]} does not answer")

    def send(self, daemon: str, *numbers: signal.Signals) -> None:
        """Send signals to a daemon; do nothing if the daemon does not run."""
        if pid := self.pid(daemon):
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def end(self, daemon: str, *numbers: signal.Signals) -> None:
        """Send signals that end a daemon, and wait until the daemon has ended."""
        if pid := self.pid(daemon):
            self.send(daemon, *numbers)
            self._wait(lambda: _is_gone(pid), f"{PROGRAMS[daemon]} does not end")

    def pid(self, daemon: str) -> int | None:
        """Return the process id of a daemon of this gateway, or None if the daemon does not run."""
        with suppress(OSError, ValueError):
            pid = int(files.read_file(self.private / f"{DAEMONS[daemon]}.pid"))
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")  # empty for a zombie process
            return pid if os.fsencode(self.conf) in words else None
        return None

    def answers(self, daemon: str = "gateway") -> bool:
        """Return whether a daemon works; a user who does not own the daemons can ask only the gateway."""
        with suppress(OSError):
            if daemon != "gateway":
                return bool(self.ask(daemon, "status" if daemon == "osd" else "mon_status").get("state") in _SERVES)
            _DIRECT.open(self.endpoint, timeout=_CALL_S).close()
            return True
        return False

    def run_command(self, *words: object, program: str = "ceph") -> str:
        """Run a command of ``ceph`` or ``radosgw-admin``, and return its output."""
        process = programs.run_program(tuple(map(str, (program, "-c", self.conf, *words))), timeout=_READY_S)
        if process.returncode:
            raise EnvironmentFaultError(
                f"{program} {words[0]}: {' '.join(process.stderr.split())}", f"see {self.private}/*.log"
            )
        return process.stdout

    def ask(self, daemon: str, prefix: str) -> Any:
        """Send a command such as ``perf dump`` to a daemon's admin socket, and return the daemon's JSON answer.

        Raise OSError if the daemon does not answer.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_CALL_S)
            connection.connect(str(self.socket_of(daemon)))
            connection.sendall(json.dumps({"prefix": prefix}).encode() + b"\0")
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">I", answer.read(4).rjust(4, b"\0"))  # 0: connection closed
                return json.loads(answer.read(size) or b"{}")

    def add_user(self, name: str) -> dict[str, str]:
        """Make a gateway user without access to other users' buckets; return the user's environment variables."""
        # Ceph makes the keys, so the keys do not appear in a command line, which all users can read.
        words = ("user", "create", "--uid", name, "--display-name", name)
        (keys,) = json.loads(self.run_command(*words, program="radosgw-admin"))["keys"]
        return {"AWS_ACCESS_KEY_ID": keys["access_key"], "AWS_SECRET_ACCESS_KEY": keys["secret_key"]}

    def make_bucket(self) -> None:
        """Make the user's bucket with a signed PUT request; an existing bucket remains unchanged."""
        import obstore  # noqa: PLC0415 - only installed with the extra s3

        address = obstore.sign(self._store(), "PUT", "", timedelta(seconds=_CALL_S))
        _DIRECT.open(urllib.request.Request(address, method="PUT"), timeout=_CALL_S).close()  # noqa: S310 - own gateway

    def bucket_space(self) -> BucketSpace | None:
        """Return the used and allowed bytes of the bucket.

        Return None if this user cannot read the credentials, or if the gateway does not answer.
        """
        with suppress(ImportError, OSError, KeyError):
            return bucket_space(self._store())
        return None

    def _store(self) -> S3Store:
        from obstore.store import S3Store  # noqa: PLC0415 - only installed with the extra s3

        key, secret = self.credentials["AWS_ACCESS_KEY_ID"], self.credentials["AWS_SECRET_ACCESS_KEY"]
        return S3Store(
            BUCKET, endpoint=self.endpoint, region=REGION, access_key_id=key, secret_access_key=secret,
            virtual_hosted_style_request=False, client_options={"allow_http": True},
        )  # fmt: skip

    def link(self) -> None:
        """Link the OSD's block device to the loop device of the sparse file, or to the sparse file itself."""
        block = self.private / "osd/block"
        block.unlink(missing_ok=True)
        block.symlink_to(self.device or self.image)

    def _detach(self) -> None:
        if device := self.device:
            program_step("losetup", "--detach", device).do()

    def _wait(self, ready: Callable[[], bool], fault: str) -> None:
        deadline = time.monotonic() + _READY_S
        while not ready():
            if time.monotonic() > deadline:
                raise EnvironmentFaultError(f"{fault} within {_READY_S:g} s", f"see {self.private}/*.log")
            time.sleep(_MOMENT_S)


def _is_gone(pid: int) -> bool:
    """Return whether a process has ended and closed its files; its command line disappears before that."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return True


_CAPS = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
    "client.gateway": {"mon": "allow rw", "osd": "allow rwx"},
}
_PORTS = (20_000, 32_000)  # the kernel gives clients ports from 32,768 on (ip_local_port_range)
# The reasons for some keys:
# - tcp_nodelay: without it, a GET of 112 kB takes 21 ms instead of 1.5 ms (Nagle's algorithm and delayed ACKs).
# - paxos_propose_interval, paxos_min_wait: with the defaults, it takes a second to make a pool.
# - osd_client_watch_timeout: with the default, radosgw-admin waits longer for the watch of a killed gateway.
# - bluestore_prefer_deferred_size_hdd: with the default, BlueStore on a rotational disk collects 64 writes below 64 kB
#   in memory before it writes them.
# - rgw_gc_obj_min_wait, rgw_gc_processor_period: with the defaults, removed objects occupy space for two more hours.
_CONF = """\
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_port}/0]
ms_bind_msgr1 = false
keyring = {folder}/keyring
run_dir = {folder}
crash_dir = {folder}
mon_cluster_log_file = {folder}/cluster.log
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
mon_data = {folder}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
osd_data = {folder}/osd
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
osd_memory_target = 1288490188
osd_heartbeat_interval = 1
osd_client_watch_timeout = 5
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 2
bluestore_default_buffered_read = {cached}
bluestore_prefer_deferred_size_hdd = 0
rgw_data = {folder}/gateway
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 5
rgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""
_DAEMON_CONF = """\
[{name}]
admin_socket = {folder}/{name}.asok
pid_file = {folder}/{name}.pid
log_file = {folder}/{name}.log
"""


def format_settings(folder: Path, daemons: Iterable[str], *, cached: bool, **values: object) -> str:
    """Return the text of ``ceph.conf`` for the daemons with the Ceph names `daemons`; all paths are in `folder`.

    `values` are ``fsid``, ``mon_port`` (port of the monitor) and ``port`` (port of the gateway).
    """
    common = _CONF.format(folder=folder, cached=str(cached).lower(), **values)
    return common + "".join(_DAEMON_CONF.format(folder=folder, name=name) for name in daemons)


def make_keyring() -> str:
    """Return the text of a keyring with new keys for all daemons, in the format of ceph-authtool(8)."""
    lines = []
    for name, caps in _CAPS.items():
        # The header of a key: type 1 (AES), time of creation (s and ns), and length of the key in bytes.
        key = struct.pack("<HIIH", 1, int(time.time()), 0, 16) + secrets.token_bytes(16)
        lines += [f"[{name}]", f"\tkey = {base64.b64encode(key).decode()}"]
        lines += [f'\tcaps {daemon} = "{allowed}"' for daemon, allowed in caps.items()]
    return "\n".join(lines) + "\n"


def find_free_ports(count: int) -> list[int]:
    """Return `count` free ports outside the range of ports that the kernel gives to clients.

    Otherwise a client could get the port of a stopped gateway. Then the gateway could not start again, and the client
    could be connected to itself.
    """
    ports: set[int] = set()
    while len(ports) < count:
        port = _PORTS[0] + secrets.randbelow(_PORTS[1] - _PORTS[0])
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)
