"""What lies below a file system: real loop devices on a disk and in memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

import pytest

from jobs.benchmarks.benchmark import Work
from jobs.observe.cache import Cache
from jobs.system import page_cache
from jobs.system.layers import layers

MIB = 1 << 20


@contextlib.contextmanager
def _mounted(*words):
    """Mount something at the last of the words."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("loop devices need root and mkfs.ext4")
    words[-1].mkdir()
    subprocess.run(["mount", *words], check=True)
    try:
        yield words[-1]
    finally:
        subprocess.run(["umount", "-l", words[-1]], check=True)


@contextlib.contextmanager
def _on_loop(folder):
    """Make ext4 on a loop device whose file lies in `folder`; yields the file and where it is mounted."""
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    with _mounted("-o", "loop", image, folder / "point") as point:
        yield image, point


def _cooled(folder, *files):
    observer = Cache({"settings": {"cache": "cold"}}, Work(lambda _: {}, folder, files, files))
    observer.start()
    return observer.figures()


def test_below_a_plain_folder_there_is_nothing_to_look_at(disk):
    found = layers(disk)

    assert (found.files, found.in_memory, found.hidden) == ((), (), ())


def test_pages_of_a_loop_devices_file_are_evicted_with_those_of_the_files(disk):
    with _on_loop(disk) as (image, point):
        data = point / "data"
        data.write_bytes(os.urandom(4 * MIB))
        page_cache.sync(point)
        assert page_cache.residency([image]).resident >= 4 * MIB // page_cache.PAGE_BYTES

        found = _cooled(point, data)

        assert layers(point).files == (image,)
        assert layers(point).lowest is not None
        assert found["resident_fraction"] == 0.0
        assert page_cache.residency([image]).resident == 0


def test_what_lies_in_memory_below_the_file_system_is_never_cold(tmp_path):
    with _mounted("-t", "tmpfs", "-o", "size=100m", "tmpfs", tmp_path / "memory") as memory, _on_loop(memory) as bed:
        image, point = bed
        (point / "data").write_bytes(os.urandom(MIB))

        found = _cooled(point, point / "data")

        assert found["resident_fraction"] == 1.0
        assert f"backing file {image} in memory (tmpfs)" in found["below"][0]


def test_a_loop_devices_file_that_this_user_may_not_read_leaves_the_residency_open(disk):
    with _on_loop(disk) as (image, point):
        image.chmod(0o600)
        for folder in (point, disk, *disk.parents[:3]):
            folder.chmod(0o755)
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            os._exit(0 if layers(point).hidden == (image,) else 1)

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
