"""The bytes that a cold read fetches: what the extents tell, held against the kernel's account of a real read."""

import os
from pathlib import Path

import pytest

from jobs.system import page_cache
from jobs.system.extents import Fetch, pieces
from tests.jobs.jobs_factory import fetched
from tests.lies import setup

MIB = 1 << 20


def _sparse(path):
    with path.open("wb") as file:
        file.write(b"y" * 5000)
        file.seek(MIB)
        file.write(b"z" * 5000)


def _preallocated(path):
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 300_000)
        file.write(os.urandom(10_000))


def _fragmented(path):
    with path.open("wb") as file:
        for place in range(100):  # more extents than one call lists
            file.seek(place * 16384)
            file.write(os.urandom(4096))


SHAPES = {
    "tiny": lambda path: path.write_bytes(os.urandom(940)),
    "small": lambda path: path.write_bytes(os.urandom(12_000)),
    "image": lambda path: path.write_bytes(os.urandom(112_000)),
    "sparse": _sparse,
    "preallocated": _preallocated,
    "fragmented": _fragmented,
    "empty": lambda path: path.write_bytes(b""),
}


def _told(path):
    with path.open("rb") as file:
        found = pieces(file.fileno(), os.fstat(file.fileno()))
    return None if found is None else sum(found)


def _hold(path):
    """Hold what the extents tell of a file against what a read of it fetches."""
    assert page_cache.cooled([path], [path], path.parent).resident == 0
    before = fetched()

    path.read_bytes()

    assert fetched() - before == _told(path)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_a_cold_read_fetches(shape, disk):
    SHAPES[shape](disk / shape)

    _hold(disk / shape)


@pytest.fixture(params=["ext4", "xfs", "btrfs"])
def mounted(request, tmp_path, staged):
    """A file system of this kind on a loop device."""
    return staged(setup.disk, tmp_path / "image", tmp_path / "mounted", mib=400, fs=request.param).point


@pytest.mark.long
def test_so_it_is_on_other_file_systems(mounted):
    for shape, make in SHAPES.items():
        make(mounted / shape)

        _hold(mounted / shape)


@pytest.mark.long
@pytest.mark.parametrize("mounted", ["btrfs"], indirect=True)
def test_of_a_compressed_file_nobody_can_tell(mounted):
    setup.call("mount", "-o", "remount,compress-force=zstd", mounted)
    (mounted / "text").write_bytes(b"word " * 100_000)
    page_cache.sync(mounted)

    assert _told(mounted / "text") is None


def test_where_extents_are_not_listed_blocks_decide():
    with Path("/dev/shm", f"tfio-extents-{os.getpid()}").open("w+b") as file:  # noqa: S108 - memory lists no extents
        Path(file.name).unlink()
        file.write(b"x" * 10_000)
        file.flush()
        full = sum(pieces(file.fileno(), os.fstat(file.fileno())))
        file.truncate(MIB)

        assert full == 3 * 4096
        assert pieces(file.fileno(), os.fstat(file.fileno())) is None


def test_each_inode_counts_once_and_its_other_names_are_counted(disk):
    first, linked = disk / "first", disk / "linked"
    first.write_bytes(b"x" * 5000)
    linked.hardlink_to(first)
    page_cache.sync(disk)
    fetch = Fetch()

    for path in (first, linked, first):
        with path.open("rb") as file:
            fetch.add(file.fileno(), os.fstat(file.fileno()))

    assert (fetch.bytes, fetch.linked, fetch.unknown) == (8192, 2, 0)
