"""What lies below a file system: real loop devices on a disk and in memory.

Whether a file system says that it only plays a storage.
"""

import json
import math
import os
import threading
from pathlib import Path

import pytest

from jobs.model import reading
from jobs.observe.data_files import CacheObserver
from jobs.ready_run import ReadyRun
from jobs.system import layers as emulation
from jobs.system import layers as module
from jobs.system import page_cache
from jobs.system.device import UNKNOWN, Device, Mount
from jobs.system.layers import MARKER, emulated_storage, layers_below
from jobs.system.untrusted import UntrustedError
from tests.lies import setup

MIB = 1 << 20


def _cooled(folder, *files):
    observer = CacheObserver({"settings": {"cache": "cold"}}, ReadyRun(lambda _: {}, folder, files, files))
    observer.start()
    return observer.metrics()


def test_below_a_plain_folder_there_is_nothing_to_look_at(disk):
    found = layers_below(disk)

    assert (found.files, found.in_memory, found.hidden) == ((), (), ())
    assert layers_below(disk, disk) == found


def test_pages_of_a_loop_devices_file_are_evicted_with_those_of_the_files(disk, staged):
    image = disk / "image"
    point = staged(setup.disk, image, disk / "point").point
    data = point / "data"
    data.write_bytes(os.urandom(4 * MIB))
    page_cache.sync_file_system(point)
    assert page_cache.residency([image]).resident >= 4 * MIB // page_cache.PAGE_BYTES

    found = _cooled(point, data)

    assert layers_below(point).files == (image,)
    assert layers_below(point).lowest is not None
    assert found["resident_fraction"] == 0.0
    assert page_cache.residency([image]).resident == 0


def test_what_lies_in_memory_below_the_file_system_is_never_cold(tmp_path, staged):
    image = staged(setup.memory, tmp_path / "memory", 100) / "image"
    point = staged(setup.disk, image, tmp_path / "point").point
    (point / "data").write_bytes(os.urandom(MIB))

    found = _cooled(point, point / "data")

    assert found["resident_fraction"] == 1.0
    assert f"backing file {image} in memory (tmpfs)" in found["below"][0]
    assert (
        layers_below(tmp_path, point).in_memory
        == layers_below(point, tmp_path, point).in_memory
        == layers_below(point).in_memory
    )


@pytest.mark.parametrize(
    ("chain", "own"),
    [("", False), ("vda", True), ("direct vda", True), ("cached vda", False), ("direct cached", False)],
)
def test_a_file_system_has_a_cache_of_its_own_where_no_loop_device_below_reads_through_another(chain, own, monkeypatch):
    files = {"direct": Path("/a"), "cached": Path("/b")}
    monkeypatch.setattr(module, "devices_behind", lambda _: [Device(name) for name in chain.split()])
    monkeypatch.setattr(module, "backing_file", lambda device: files.get(device.name))
    monkeypatch.setattr(module, "reads_past_cache", lambda device: device.name == "direct")

    assert module.has_own_cache(Path("/")) is own


def _hidden(point, image):
    assert layers_below(point).hidden == (image,)


def test_a_loop_devices_file_that_this_user_may_not_read_leaves_the_residency_open(scratch, stranger, staged):
    image = scratch / "image"
    point = staged(setup.disk, image, scratch / "point").point
    image.chmod(0o600)

    stranger(_hidden, point, image)


FACTS = {"name": "hdd", "read_mb_per_s": 163.0, "write_mb_per_s": 133.14, "read_iops": None, "write_iops": None}
DISK = {"kind": "disk", "rotation_ms": 8.33, "queue": 32, "source": "a datasheet"}


@pytest.fixture
def point(tmp_path, monkeypatch):
    """A mount point."""
    monkeypatch.setattr(emulation, "ROOT", os.geteuid())
    monkeypatch.setattr(emulation, "mount_of", lambda _: Mount(str(tmp_path), "/dev/loop0", "ext4", "rw"))
    return tmp_path


@pytest.mark.parametrize("facts", [FACTS, FACTS | {"model": None}, FACTS | {"model": DISK}])
def test_what_a_file_system_says_of_itself_holds_for_all_that_is_on_it(point, facts):
    (point / MARKER).write_text(json.dumps(facts))

    assert emulated_storage(point) == emulated_storage(point / "data/datasets/demo") == facts


def test_a_marker_of_64_kib_is_read(point):
    (point / MARKER).write_text(json.dumps(FACTS).ljust(64 << 10))

    assert emulated_storage(point) == FACTS


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "\x00", "7", "{}", '{"name": "hdd"}'),
        *(json.dumps(FACTS | {"name": odd}) for odd in (None, 7, ["hdd"])),
        *(
            json.dumps(FACTS | {"read_mb_per_s": odd})
            for odd in ("fast", [1], True, 0, -1.0, math.nan, math.inf, 10**400)
        ),
        *(
            json.dumps(FACTS | {"model": odd})
            for odd in (
                *("disk", {}, [], {"kind": "tape"}, {"kind": ["disk"]}, {"queue": 32}, DISK | {"n" * 41: 1}),
                *(DISK | {"queue": value} for value in (None, True, math.nan, 10**400, [32], {}, "", "\x1b", "x" * 81)),
                DISK | {f"more_{number}": 1 for number in range(32)},
            )
        ),
    ],
)
def test_a_marker_that_cannot_be_read_is_one_all_the_same(point, text):
    (point / MARKER).write_text(text)

    assert emulated_storage(point) == {"name": "unknown"}


def test_of_an_unknown_mount_no_folder_of_the_same_name_is_asked(point, monkeypatch):
    monkeypatch.setattr(emulation, "mount_of", lambda _: Mount(*[UNKNOWN] * 5))
    monkeypatch.chdir(point)
    (point / UNKNOWN).mkdir()
    (point / UNKNOWN / MARKER).write_text(json.dumps(FACTS))

    assert emulated_storage(point) is None


def test_the_disk_of_this_test_is_real():
    assert emulated_storage(Path(__file__)) is None


def test_a_marker_of_another_user_says_nothing(point, monkeypatch):
    (point / MARKER).write_text(json.dumps(FACTS))
    monkeypatch.setattr(emulation, "ROOT", os.geteuid() + 1)

    assert emulated_storage(point) is None


def _of_a_gigabyte(path):
    path.touch()
    os.truncate(path, 1 << 30)


def _a_byte_above_the_limit(path):
    path.write_text(json.dumps(FACTS).ljust((64 << 10) + 1))


def _below_the_top(path):
    path.with_name("data").mkdir()
    (path.with_name("data") / path.name).write_text(json.dumps(FACTS))


@pytest.mark.parametrize(
    "make",
    [
        *(os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), _of_a_gigabyte, _a_byte_above_the_limit),
        _below_the_top,
    ],
)
def test_what_is_no_file_of_some_kilobytes_at_the_top_is_no_marker_and_is_not_waited_for(point, make):
    make(point / MARKER)

    assert emulated_storage(point) is emulated_storage(point / "data") is None


@pytest.mark.parametrize(
    ("file", "fstype", "is_one"),
    [
        ("/bed/hdd.model/device", "fuse.tfio", True),
        ("/bed/hdd.model/device", "ext4", False),
        (None, "fuse.tfio", False),
    ],
)
def test_a_model_is_behind_a_device_whose_file_its_file_system_has(file, fstype, is_one, monkeypatch, tmp_path):
    mounts = [Mount("/bed", "x", "fuse.tfio", "rw"), Mount("/bed/hdd.model", "x", fstype, "rw")]
    monkeypatch.setattr(emulation, "device_of", lambda _: Device("loop7"))
    monkeypatch.setattr(emulation, "backing_file", lambda _: file and Path(file))
    monkeypatch.setattr(emulation, "mounts", lambda: mounts)

    assert emulation.model_behind(tmp_path) == (Path("/bed/hdd.model") if is_one else None)


SERVED = {"kind": "disk", "parameters": {"queue": 32.0}, "faults": {}, "pid": 7, "reads": 1, "writes": 2, "flushes": 3}
SERVED |= {"read_bytes": 4, "written_bytes": 5, "spoiled": 6, "in_flight": 8}
SERVED |= {"busy_s": 0.25, "queue_s": 0.5, "late_s": 0.0, "cpu_s": 1.5}


def test_a_server_that_answers_is_heard_and_what_another_says_refused(tmp_path):
    (tmp_path / "state").write_text(json.dumps(SERVED))
    assert emulation.ask_server(tmp_path) == SERVED

    (tmp_path / "state").write_text(json.dumps(SERVED | {"reads": "many"}))
    with pytest.raises(UntrustedError, match="reads is 'many'"):
        emulation.ask_server(tmp_path)
    with pytest.raises(FileNotFoundError):
        emulation.ask_server(tmp_path / "none")


def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_asked(tmp_path, monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(reading, "read_json", lambda *_: answer.wait())

    with pytest.raises(TimeoutError, match=r"its server does not answer for 0\.05 s"):
        emulation.ask_server(tmp_path, 0.05)
    answer.set()
