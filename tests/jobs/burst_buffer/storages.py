"""Small file systems for the burst buffer: made, filled, turned read-only, and taken away whatever happens."""

import contextlib
import os
import subprocess

import pytest


@contextlib.contextmanager
def tmpfs(point, mib):
    """Mount a file system in memory of so many MiB; yields a function that changes its options."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    point.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=755", "none", str(point)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no tmpfs to be had: {done.stderr.strip()}")

    def remount(options):
        subprocess.run(["mount", "-o", f"remount,{options}", str(point)], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)
