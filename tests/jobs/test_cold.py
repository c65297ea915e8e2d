"""Files out of memory or in it, for what is done within, with proof before and after."""

import os
import subprocess
import sys

import pytest

from jobs.cold import CacheError, cold_files, warm_files
from jobs.system import page_cache
from tests.jobs.jobs_factory import read_all

MB = 1 << 20


@pytest.fixture
def files(disk):
    """Return a folder of four files of a megabyte, on the device."""
    folder = disk / "data"
    (folder / "class").mkdir(parents=True)
    for number in range(4):
        (folder / "class" / f"{number}.bin").write_bytes(os.urandom(MB))
    page_cache.sync_file_system(folder)
    return sorted((folder / "class").iterdir())


def test_what_is_read_within_comes_from_the_device_and_a_second_time_from_memory(files):
    with cold_files(files[0].parent.parent) as proof:
        read_all(files[:2])

    assert (proof.files, proof.bytes, proof.before) == (4, 4 * MB, 0.0)
    assert proof.read_bytes == 2 * MB
    assert proof.fetched_bytes >= 2 * MB

    with warm_files(*files) as proof:
        read_all(files)

    assert (proof.before, proof.after) == (1.0, 1.0)
    assert proof.fetched_bytes < MB // 100


def test_what_somebody_else_reads_meanwhile_does_not_count_as_cold(files):
    with pytest.raises(CacheError, match="device_bytes does not hold"), cold_files(*files):  # noqa: PT012
        # a daemon, that nobody here waits for
        script = "import os, sys\nif os.fork() == 0:\n    os.setsid()\n    [open(f, 'rb').read() for f in sys.argv[1:]]"
        subprocess.run([sys.executable, "-c", script, *map(str, files)], check=True)
        while page_cache.residency(files).fraction < 1:
            pass


def test_what_left_the_memory_meanwhile_does_not_count_as_warm(files):
    with pytest.raises(CacheError, match=r"warm does not hold: 75\.0% of the pages are in memory"), warm_files(*files):
        page_cache.evict_pages(files[:1])


def test_what_stays_in_memory_is_not_cold(files, monkeypatch):
    read_all(files)
    monkeypatch.setattr(page_cache, "evict_pages", lambda _: None)

    with pytest.raises(CacheError, match=r"cold does not hold: 100.0% of the pages are in memory"), cold_files(*files):
        pytest.fail("it began")


def test_no_file_is_no_proof(disk):
    with pytest.raises(CacheError, match="no file in"), cold_files(disk):
        pytest.fail("it began")


def test_an_error_within_is_the_one_that_is_raised(files):
    with pytest.raises(ZeroDivisionError), warm_files(*files):  # noqa: PT012
        page_cache.evict_pages(files)
        _ = 1 / 0
