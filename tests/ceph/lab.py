"""A real Ceph object gateway on one machine, in a folder of its own, with faults.

For tests it is the fixture `ceph` (tests/conftest.py); for a person, a shell with its credentials::

    python -m tests.ceph.lab [--disk FOLDER] [--loop] [--cached]

It needs Debian's ``ceph-mon ceph-osd radosgw ceph-common ceph-base``, and root for a loop device alone. Nothing outside
its folder is written, and only what it started is stopped, by pid.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from campaign.testbed import s3
from campaign.testbed.ceph import BUCKET, DAEMONS, GB, REGION, USER, Ceph, GatewaySettings, missing_for_gateway

_FULL, _FREE = 0.0001, 0.95  # shares of the disk from which on Ceph takes no more; the second is its default


@dataclass(frozen=True)
class Lab(Ceph):
    """A gateway that is up, and what can befall it."""

    bucket = BUCKET
    region = REGION

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a shell whose S3 clients use it."""
        return {**os.environ, **self.credentials, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION}

    @cached_property
    def stranger(self) -> dict[str, str]:
        """The credentials of a user without any right in the bucket."""
        return self.add_user("stranger")

    # Faults. `mend` takes back what was done to daemons.

    def kill(self, daemon: str) -> None:
        """End the ``gateway``, the ``osd`` or the ``mon`` at once; `start` brings it back (the gateway in 0.2 s)."""
        self.end(daemon, signal.SIGKILL)

    def freeze(self, daemon: str) -> None:
        """Stop a daemon as a debugger would: its connections stay, and nothing answers."""
        self.send(daemon, signal.SIGSTOP)

    def thaw(self, daemon: str) -> None:
        """Let it go on."""
        self.send(daemon, signal.SIGCONT)

    @contextlib.contextmanager
    def full(self):
        """Let the disk be full for a while: puts wait, as Ceph's clients do, and gets are answered (10 s)."""
        try:
            self._set_ratios(_FULL, ("nearfull", "backfillfull", "full"))  # none may be above the next one
            self._wait(
                lambda: "full" in json.loads(self.run_command("osd", "dump", "-f", "json"))["osds"][0]["state"], "full"
            )
            yield
        finally:
            self._set_ratios(_FREE, ("full", "backfillfull", "nearfull"))

    @contextlib.contextmanager
    def quota(self, most_bytes: int):
        """Let the user have a quota for a while: a put beyond it is refused with ``QuotaExceeded``."""
        for_user = ("--quota-scope=user", "--uid", USER)
        self.run_command("quota", "enable", *for_user, f"--max-size={most_bytes}", program="radosgw-admin")
        try:
            yield
        finally:
            self.run_command("quota", "disable", *for_user, program="radosgw-admin")

    def mend(self) -> None:
        """Let every daemon run again."""
        for daemon in DAEMONS:
            self.thaw(daemon)
            self.start(daemon)

    def _set_ratios(self, share: float, names: tuple[str, ...]) -> None:
        for name in names:
            self.run_command("osd", f"set-{name}-ratio", share)


@contextlib.contextmanager
def lab(disk: Path | None = None, **shape: bool | int):
    """Bring a gateway up in a temporary folder, its disk in another one if that is named, and take it down again."""
    folder = Path(tempfile.mkdtemp(prefix="ceph-"))
    gateway = Lab(folder)
    try:
        s3.bring_up_gateway(gateway, GatewaySettings(str(disk or folder), **{"size_bytes": 6 * GB, **shape}))
        yield gateway
    finally:
        gateway.remove()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Give a person a shell on a gateway."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--disk", type=Path, help="folder of the file with all objects: on a storage of the testbed")
    parser.add_argument("--loop", action="store_true", help="that file on a loop device, which counts its bytes")
    parser.add_argument("--cached", action="store_true", help="let the OSD answer reads from its memory")
    options = parser.parse_args()
    if reason := missing_for_gateway():
        sys.exit(f"error: {reason}")
    with lab(**vars(options)) as gateway:
        on = f" on {gateway.device}" if gateway.device else ""
        print(f"S3 at {gateway.endpoint}{on}, bucket {BUCKET}, in {gateway.folder}; leave the shell to take it down")
        subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=gateway.environment, check=False)


if __name__ == "__main__":
    main()
