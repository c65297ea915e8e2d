"""Damage and I/O errors under the burst buffer, and what makes room; nothing good is lost and nothing bad is taken.

Errors are injected into the drainer's calls: there is no device-mapper here that would make a disk fail.
"""

import contextlib
import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop
from jobs.errors import RoomError
from jobs.store.folder import Folder
from jobs.store.store import StoredFile
from jobs.store.transfer import TransferOptions
from jobs.system import files
from tests.jobs.checkpoints.child import writer
from tests.jobs.checkpoints.shared import ROOT, saved, snapshots_in, steps

pytestmark = pytest.mark.usefixtures("idle")


def test_a_writer_that_says_full_in_words_alone_is_called_again(folders):
    calls = []

    def write(folder):
        calls.append(sorted(folder.iterdir()))
        writer(2)(folder)
        if len(calls) == 1:
            raise RuntimeError(f"{folder}: {os.strerror(errno.ENOSPC)} [Op:SaveV2]")  # as TensorFlow puts it

    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        assert drain_loop.drain_snapshots(*folders) == 0
        buffer.save(2, write)

    assert calls == [[], []]
    assert (steps(folders[0]), steps(folders[1])) == ([2], [1])


def test_a_writer_that_meets_another_full_storage_is_told_with_its_own_words(folders):
    def write(folder):
        writer(1)(folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/log/train.log")

    with contextlib.closing(BurstBuffer(*folders)) as buffer, pytest.raises(RoomError, match=r"/var/log/train\.log"):
        buffer.save(1, write)


def flip(file, at=50):
    with file.open("r+b") as bytes_:
        bytes_.seek(at)
        old = bytes_.read(1)
        bytes_.seek(at)
        bytes_.write(bytes([old[0] ^ 1]))


def test_the_wait_between_retries_doubles_up_to_its_bound_however_often_it_is_tried(monkeypatch):
    pauses, options = [], drain_loop.DrainOptions(attempts=1100, backoff_s=1, backoff_max_s=5)
    monkeypatch.setattr(drain_loop, "_attempt", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "injected")))
    monkeypatch.setattr(drain_loop, "_pause", lambda seconds, _: pauses.append(seconds))
    sides, journal = SimpleNamespace(idle=lambda: False), SimpleNamespace(append=lambda *_, **__: None)

    assert drain_loop._retry(sides, options, journal, SimpleNamespace(alive=True)) is None  # noqa: SLF001

    assert (pauses[:5], pauses[-1], len(pauses)) == ([1, 2, 4, 5, 5], 5, 1099)


def test_all_that_is_wrong_with_the_files_of_a_snapshot_is_told_each_kind_in_order(tmp_path):
    (name,) = saved((tmp_path / "fast", tmp_path / "slow"), 1)
    folder = tmp_path / "fast" / name / "files"
    expected = [*snapshots_in(tmp_path / "fast").read(name).files, StoredFile("lost", 1, "0")]
    for more in ("b", "a"):
        os.mkfifo(folder / more)
    flip(folder / "ckpt.index")

    assert Folder(tmp_path / "fast").verify_files(f"{name}/files", expected, TransferOptions()) == [
        "lost is missing",
        *(f"{more} is not in the manifest" for more in "ab"),
        *(f"{more} is no regular file" for more in "ab"),
        "ckpt.index has other bytes: its SHA-256 differs",
    ]


@pytest.mark.parametrize(("free", "fits"), [(9_699_898, False), (9_699_899, True), (9_699_900, True)])
def test_snapshots_fit_where_they_have_room_with_what_older_ones_of_ours_take(folders, monkeypatch, free, fits):
    saved(folders, 1)
    monkeypatch.setattr(files, "free_bytes", lambda _: free)
    said = rf"2 snapshots of 5 MB do not fit on {folders[0]}: 10 MB are free"

    with contextlib.nullcontext() if fits else pytest.raises(RoomError, match=said):
        snapshots_in(folders[0]).require_room(5_000_000, copies=2)


@pytest.mark.parametrize(("free", "fits"), [(300_100, False), (300_101, True), (300_102, True)])
def test_a_snapshot_is_written_where_just_its_bytes_are_free(folders, monkeypatch, free, fits):
    with contextlib.closing(BurstBuffer(*folders, snapshot_bytes=300_101)) as buffer:
        monkeypatch.setattr(files, "free_bytes", lambda _: free)
        with contextlib.nullcontext() if fits else pytest.raises(RoomError, match="one snapshot does not fit"):
            buffer.save(1, writer(1))


def test_a_drainer_that_outlives_its_trainer_is_no_matter_of_a_warning():
    script = (
        "import subprocess; from jobs.checkpoints import drain_process\n"
        "drain_process.left_running.append(subprocess.Popen(['sleep', '1']))"
    )
    words = [sys.executable, "-W", "always", "-c", script]

    assert subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stderr == ""
