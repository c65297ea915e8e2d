"""Loop devices for tests: made, mounted, and taken away whatever happens."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from campaign.errors import EnvironmentFaultError
from campaign.testbed import apply
from campaign.testbed.spec import Speed, Wanted


@contextlib.contextmanager
def attached(file):
    """Attach a file or a block device to a loop device; yields its path."""
    if os.geteuid() != 0 or not shutil.which("losetup"):
        pytest.skip("loop devices need root and losetup")
    done = subprocess.run(["losetup", "--find", "--show", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop device to be had: {done.stderr.strip()}")
    try:
        yield Path(done.stdout.strip())
    finally:
        subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True)


@contextlib.contextmanager
def mounted(folder, mib=32):
    """Mount a small ext4 that lies in a file of `folder`; yields its loop device's name and the mount point."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("losetup", "mkfs.ext4"))):
        pytest.skip("a file system of one's own needs root, losetup and mkfs.ext4")
    bed = folder / "bed"
    try:
        each = apply.up(bed, {"loop": Wanted(Speed(None, None), mib * 2**20)}, apply.owner()).storages["loop"]
    except EnvironmentFaultError as error:
        pytest.skip(error.message)
    try:
        yield Path(each.loops[0].path).name, each.point
    finally:
        apply.down(bed)
