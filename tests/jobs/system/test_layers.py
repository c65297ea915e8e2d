"""What lies below a file system: real loop devices on a disk and in memory."""

import os
from pathlib import Path

import pytest

from jobs.observe.cache import Cache
from jobs.ready_run import Work
from jobs.system import layers as module
from jobs.system import page_cache
from jobs.system.device import Device
from jobs.system.layers import layers
from tests.lies import setup

MIB = 1 << 20


def _cooled(folder, *files):
    observer = Cache({"settings": {"cache": "cold"}}, Work(lambda _: {}, folder, files, files))
    observer.start()
    return observer.metrics()


def test_below_a_plain_folder_there_is_nothing_to_look_at(disk):
    found = layers(disk)

    assert (found.files, found.in_memory, found.hidden) == ((), (), ())
    assert layers(disk, disk) == found


def test_pages_of_a_loop_devices_file_are_evicted_with_those_of_the_files(disk, staged):
    image = disk / "image"
    point = staged(setup.disk, image, disk / "point").point
    data = point / "data"
    data.write_bytes(os.urandom(4 * MIB))
    page_cache.sync(point)
    assert page_cache.residency([image]).resident >= 4 * MIB // page_cache.PAGE_BYTES

    found = _cooled(point, data)

    assert layers(point).files == (image,)
    assert layers(point).lowest is not None
    assert found["resident_fraction"] == 0.0
    assert page_cache.residency([image]).resident == 0


def test_what_lies_in_memory_below_the_file_system_is_never_cold(tmp_path, staged):
    image = staged(setup.memory, tmp_path / "memory", 100) / "image"
    point = staged(setup.disk, image, tmp_path / "point").point
    (point / "data").write_bytes(os.urandom(MIB))

    found = _cooled(point, point / "data")

    assert found["resident_fraction"] == 1.0
    assert f"backing file {image} in memory (tmpfs)" in found["below"][0]
    assert layers(tmp_path, point).in_memory == layers(point, tmp_path, point).in_memory == layers(point).in_memory


@pytest.mark.parametrize(
    ("chain", "own"),
    [("", False), ("vda", True), ("direct vda", True), ("cached vda", False), ("direct cached", False)],
)
def test_a_file_system_has_a_cache_of_its_own_where_no_loop_device_below_reads_through_another(chain, own, monkeypatch):
    files = {"direct": Path("/a"), "cached": Path("/b")}
    monkeypatch.setattr(module, "devices_behind", lambda _: [Device(name) for name in chain.split()])
    monkeypatch.setattr(module, "backing_file", lambda device: files.get(device.name))
    monkeypatch.setattr(module, "reads_past_cache", lambda device: device.name == "direct")

    assert module.own_cache(Path("/")) is own


def _hidden(point, image):
    assert layers(point).hidden == (image,)


def test_a_loop_devices_file_that_this_user_may_not_read_leaves_the_residency_open(scratch, stranger, staged):
    image = scratch / "image"
    point = staged(setup.disk, image, scratch / "point").point
    image.chmod(0o600)

    stranger(_hidden, point, image)
