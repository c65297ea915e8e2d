"""Loop devices for tests: made, mounted, and taken away whatever happens."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


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
    image, point = folder / "loop.img", folder / "loop"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(mib * 2**20)
    if not shutil.which("mkfs.ext4"):
        pytest.skip("a file system of one's own needs mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    with attached(image) as device:
        subprocess.run(["mount", str(device), str(point)], check=True)
        try:
            yield device.name, point
        finally:
            subprocess.run(["umount", str(point)], check=True)
