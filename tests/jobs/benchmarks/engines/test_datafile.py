"""The file that baselines read, and its folder: made once, claimed, and what another user has made first left alone."""

import errno
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.benchmarks.engines import datafile
from jobs.errors import DatasetError
from tests.jobs.benchmarks.baseline_factory import MIB, read_file


@given(st.integers(1, 10_000), st.integers(1, 1024))
def test_a_file_has_whole_transfers_and_at_least_the_bytes_asked_for(file_mb, transfer_mib):
    size = datafile.whole_bytes(file_mb, transfer_mib)

    assert size % (transfer_mib * MIB) == 0
    assert 0 <= size - file_mb * 10**6 < transfer_mib * MIB


def test_the_file_that_is_read_is_made_once_and_cannot_be_made_smaller(disk):
    file = read_file(disk)
    made = file.stat()

    again = read_file(disk).stat()

    assert (again.st_ino, again.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert len(zlib.compress(file.read_bytes(), 1)) > 0.99 * 8 * MIB


def test_a_file_whose_making_was_killed_is_made_anew(disk, monkeypatch):
    folder = datafile.make_marked_folder(disk / "baseline")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", _killed)
        patch.setattr("os.unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            datafile.make_data_file(folder, 8 * MIB, lambda *_: None)
    assert not (folder / f"read-{8 * MIB}.bin").exists()

    assert read_file(disk).stat().st_size == 8 * MIB
    assert [path.suffix for path in folder.iterdir() if path.name.startswith("read")] == [".bin"]


def test_a_file_system_without_locks_is_refused_and_no_marker_is_left_in_place_of_a_lock(disk, monkeypatch):
    def missing(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", missing)
    with pytest.raises(DatasetError, match="Function not implemented") as refused:
        read_file(disk)

    assert "-o flock" in refused.value.hint
    assert not list(disk.glob("baseline/read-*"))


def test_others_who_may_write_to_the_folder_can_take_its_lock_too(disk):
    before = os.umask(0)
    try:
        read_file(disk)
    finally:
        os.umask(before)

    assert (disk / "baseline" / ".tfio-baseline.lock").stat().st_mode & 0o777 == 0o666


def _killed(*_, **__):
    raise KeyboardInterrupt


def test_a_folder_with_somebody_elses_files_is_not_touched(tmp_path):
    (tmp_path / "baseline").mkdir()
    (tmp_path / "baseline" / "thesis.tex").write_text("mine")

    with pytest.raises(DatasetError, match="did not make"):
        datafile.make_marked_folder(tmp_path / "baseline")

    assert [path.name for path in (tmp_path / "baseline").iterdir()] == ["thesis.tex"]


def test_too_little_room_is_told_before_a_byte_is_written(tmp_path):
    folder = datafile.make_marked_folder(tmp_path / "baseline")

    with pytest.raises(DatasetError, match="MB free") as refused:
        datafile.make_data_file(folder, 1 << 60, lambda *_: None)

    assert "benchmark.file_mb=… (with python -m jobs: --file-mb …)" in refused.value.hint
    assert not list(folder.glob("read-*"))


@pytest.fixture
def private(tmp_path):
    file = tmp_path / "private"
    file.write_text("ours")
    yield file
    assert file.read_text() == "ours"


def _made(folder):
    return datafile.make_data_file(datafile.make_marked_folder(folder), MIB, lambda *_: None)


def _prepared(folder, private):
    """Fill the folder with links that are named as files that are being written would be."""
    folder.mkdir()
    for number in range(os.getpid(), os.getpid() + 50):
        (folder / f"..tfio-baseline.{number}.tmp").symlink_to(private)
    for name in (".tfio-baseline.lock", f"read-{MIB}.part"):
        (folder / name).symlink_to(private)


def test_nothing_is_written_to_a_folder_of_another_user(scratch, stranger, private):
    stranger(_prepared, scratch / "baseline", private)

    with pytest.raises(DatasetError, match="belongs to nobody") as error:
        _made(scratch / "baseline")

    assert "root=" in error.value.hint


def test_a_link_in_the_place_of_the_folder_is_not_followed(scratch, stranger, tmp_path):
    (tmp_path / "ours").mkdir()
    stranger(os.symlink, tmp_path / "ours", scratch / "baseline")

    with pytest.raises(DatasetError, match="link"):
        _made(scratch / "baseline")

    assert [*(tmp_path / "ours").iterdir()] == []


def test_links_in_a_folder_of_ours_are_not_followed(tmp_path, private):
    datafile.make_marked_folder(tmp_path / "baseline")
    (tmp_path / "baseline" / f"read-{MIB}.part").symlink_to(private)
    (tmp_path / "baseline" / f"read-{MIB}.bin").symlink_to(private)

    made = _made(tmp_path / "baseline")

    assert not made.is_symlink()
    assert made.stat().st_size == MIB
