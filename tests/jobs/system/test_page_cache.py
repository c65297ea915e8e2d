"""Pages go out of memory, and the proof that they did does not rest on the advice that was given.

The bytes that a cold read fetches: what the extents tell, held against the kernel's account of a real read.
"""

import errno
import mmap
import os
from pathlib import Path

import pytest

from jobs.system import page_cache
from jobs.system.page_cache import (
    ColdReadBytes,
    Residency,
    evict_pages,
    fetched_pieces,
    read_through,
    residency,
    sync_file_system,
)
from tests.jobs.jobs_factory import PAGE, eventually, fetched, pages, read_all, write_jpegs
from tests.lies import setup

# ruff: noqa: SLF001 - the parts are tested one by one


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files that belong to another user")


class SlowDevice:
    """A kernel that drops what is clean at once, and on which dirty pages stay dirty until they are synced."""

    dirty, resident = True, 8

    def __init__(self, unverifiable):
        self.unverifiable = unverifiable

    def evict_pages(self, _paths):
        self.resident = self.resident if self.dirty else 0

    def sync_file_system(self, _folder):
        self.dirty = False

    def residency(self, _paths):
        return Residency(8, self.resident, self.unverifiable, "fake")


@pytest.mark.parametrize("unverifiable", [0, 1], ids=["seen", "that nobody can see"])
def test_dirty_pages_are_synced_before_the_last_eviction_however_slow_the_device(monkeypatch, tmp_path, unverifiable):
    device = SlowDevice(unverifiable)
    for name in ("evict_pages", "sync_file_system", "residency"):
        monkeypatch.setattr(page_cache, name, getattr(device, name))

    assert page_cache.drop_from_cache([], [], tmp_path).resident == 0


@pytest.fixture(params=["cachestat", "mincore"])
def method(request, monkeypatch):
    """Ask the kernel in each of the two ways."""
    if request.param == "mincore":
        monkeypatch.setattr(page_cache, "_has_cachestat", lambda: False)
    elif not page_cache._has_cachestat():
        pytest.skip("cachestat(2) came with Linux 6.5")
    return request.param


def page_file(path, count):
    """Write a file of `count` pages, and put it on the device."""
    path.write_bytes(os.urandom(count * PAGE))
    sync_file_system(path.parent)
    return path


def read_page(path, number):
    """Read one page and nothing around it."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, 1, number * PAGE)
    os.close(fd)


def test_files_that_were_read_are_in_memory_and_eviction_takes_their_clean_pages_out(disk, method):
    paths = write_jpegs(disk / "data", 12)

    read_through(paths)
    read = residency(paths)
    evict_pages(paths)
    evicted = residency(paths)

    assert (read, read.fraction) == (Residency(pages(paths), pages(paths), 0, method), 1.0)
    assert (evicted, evicted.fraction) == (Residency(pages(paths), 0, 0, method), 0.0)


def test_dirty_pages_survive_eviction_until_they_are_written(disk, method):
    path = disk / "dirty"
    path.write_bytes(os.urandom(16 * PAGE))

    evict_pages([path])
    dirty = residency([path]).resident
    sync_file_system(disk)
    evict_pages([path])

    assert dirty == 16
    assert residency([path]).resident == 0


def test_mapped_pages_survive_eviction(disk, method):
    path = page_file(disk / "mapped", 8)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[::PAGE])

        evict_pages([path])

        assert residency([path]).resident == 8
    evict_pages([path])
    assert residency([path]).resident == 0


def test_residency_counts_single_pages(disk, method):
    path = page_file(disk / "partial", 64)
    evict_pages([path])

    read_page(path, 5)
    read_page(path, 40)

    assert residency([path]).resident == 2
    assert residency([path]).fraction == 2 / 64


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 1), (PAGE, 1), (PAGE + 1, 2)])
def test_a_file_has_a_page_for_every_begun_4096_bytes(disk, method, size, count):
    path = disk / "file"
    path.write_bytes(b"x" * size)

    assert residency([path]) == Residency(count, count, 0, method)
    assert residency([path]).fraction == float(count > 0)


def test_files_that_cannot_be_opened_are_counted_and_prove_nothing(disk, method):
    good = page_file(disk / "good", 2)
    dangling = disk / "dangling"
    dangling.symlink_to(disk / "nowhere")
    paths = [good, disk / "missing", dangling]

    os.mkfifo(disk / "pipe")  # nobody writes to it
    evict_pages([*paths, disk / "pipe"])
    read_through([*paths, disk / "pipe"])

    assert residency(paths) == Residency(2, 2, 2, method)
    assert residency(paths).fraction is None
    assert residency([disk / "pipe"]).fraction in (None, 0)


def test_sync_reports_what_the_kernel_answers(tmp_path, monkeypatch):
    class FullDisk:
        @staticmethod
        def syncfs(_fd):
            page_cache.ctypes.set_errno(errno.ENOSPC)
            return -1

    monkeypatch.setattr(page_cache, "_libc", FullDisk())

    with pytest.raises(OSError, match="syncfs: No space left on device") as caught:
        sync_file_system(tmp_path)
    assert caught.value.errno == errno.ENOSPC


@needs_root
@pytest.mark.parametrize("way", ["cachestat", "mincore"])
def test_files_of_somebody_else_are_unverifiable_unless_they_may_be_written(scratch, job, way):
    if way == "cachestat" and not page_cache._has_cachestat():
        pytest.skip("cachestat(2) came with Linux 6.5")
    paths = write_jpegs(scratch / "data", 6)

    theirs, unknown = job("residency_as_nobody", names=paths, method=way)
    os.chown(paths[0], 65534, 65534)
    paths[1].chmod(0o666)
    read_all(paths)
    ours, known = job("residency_as_nobody", names=paths[:2], method=way)

    assert theirs == {"pages": 0, "resident": 0, "unverifiable": 6, "method": way} | {"fetch": theirs["fetch"]}
    assert theirs["fetch"]["bytes"] == pages(paths) * PAGE  # what they have on the device is no secret
    assert (ours["unverifiable"], ours["resident"]) == (0, pages(paths[:2]))
    assert (unknown, known) == (None, 1.0)


def test_eviction_works_on_a_file_that_another_process_has_open(disk, method):
    path = page_file(disk / "open", 8)

    with path.open("rb") as file:
        file.read()
        evict_pages([path])

        assert eventually(lambda: residency([path]).resident == 0)


def test_a_second_name_of_a_file_is_in_memory_when_it_is_read(disk, method):
    page_file(disk / "a", 3)
    (disk / "b").hardlink_to(disk / "a")
    evict_pages([disk / "a"])

    found = residency([disk / "a", disk / "b", disk / "a"])

    assert (found.pages, found.resident, found.fetch.linked, found.fetch.bytes) == (9, 6, 2, 3 * PAGE)


def test_on_an_overlay_the_pages_of_the_file_below_are_counted_and_evicted(disk, method, staged):
    (disk / "lower").mkdir()
    page_file(disk / "lower" / "a", 5)
    file = staged(setup.overlay, disk / "lower", disk) / "a"

    read_through([file])
    before = residency([file])
    evict_pages([file])

    assert (before.resident, before.pages, before.method) == (5, 5, "mincore")
    both = " and ".join(sorted({method, "mincore"}))
    assert residency([file, disk / "lower" / "a"]).method == residency([disk / "lower" / "a", file]).method == both
    assert residency([file]).resident == 0


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
        found = fetched_pieces(file.fileno(), os.fstat(file.fileno()))
    return None if found is None else sum(found)


def _hold(path):
    """Hold what the extents tell of a file against what a read of it fetches."""
    assert page_cache.drop_from_cache([path], [path], path.parent).resident == 0
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
    page_cache.sync_file_system(mounted)

    assert _told(mounted / "text") is None


def test_where_extents_are_not_listed_blocks_decide():
    with Path("/dev/shm", f"tfio-extents-{os.getpid()}").open("w+b") as file:  # noqa: S108 - memory lists no extents
        Path(file.name).unlink()
        file.write(b"x" * 10_000)
        file.flush()
        full = sum(fetched_pieces(file.fileno(), os.fstat(file.fileno())))
        file.truncate(MIB)

        assert full == 3 * 4096
        assert fetched_pieces(file.fileno(), os.fstat(file.fileno())) is None


def test_each_inode_counts_once_and_its_other_names_are_counted(disk):
    first, linked = disk / "first", disk / "linked"
    first.write_bytes(b"x" * 5000)
    linked.hardlink_to(first)
    page_cache.sync_file_system(disk)
    fetch = ColdReadBytes()

    for path in (first, linked, first):
        with path.open("rb") as file:
            fetch.add(file.fileno(), os.fstat(file.fileno()))

    assert (fetch.bytes, fetch.linked, fetch.unknown) == (8192, 2, 0)
