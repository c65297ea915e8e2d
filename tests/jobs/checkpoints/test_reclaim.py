"""Folders of snapshots are taken away when they are ours and over, and nothing else ever is."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, lease
from jobs.checkpoints.buffer import DirectTarget
from jobs.checkpoints.lease import MARKER_NAME
from jobs.errors import FolderError
from jobs.store.folder import Folder
from tests.jobs.checkpoints.child import writer
from tests.jobs.checkpoints.shared import bytes_of, drainer_ended, drainer_lock, snapshots_in, waits_for_drainer
from tests.jobs.jobs_factory import eventually

CHILD = Path(__file__).with_name("child.py")


def cleared(*folders, timeout_s=20):
    lease.clear_stores([Folder(folder) for folder in folders], timeout_s)


def drained_and_closed(folders):
    with closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        assert buffer.wait_until_drained(120)
    drainer_ended(folders[0])


def test_a_training_that_is_over_leaves_nothing(folders, tmp_path):
    with closing(DirectTarget(tmp_path / "only")) as direct:
        direct.save(1, writer(1))
    with closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        assert buffer.wait_until_drained(120)

    cleared(tmp_path / "only", tmp_path / "never")
    cleared(*folders)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["writing", "saved"])
def test_what_a_killed_trainer_left_goes_and_so_does_its_drainer(folders, tmp_path, moment):
    done = subprocess.run([sys.executable, CHILD, "save", moment, "1", *folders], check=False)
    assert done.returncode == -signal.SIGKILL

    cleared(*folders)

    assert eventually(lambda: not list(tmp_path.iterdir()))  # a drainer that comes late is there for a moment


def test_a_drainer_that_comes_when_its_folders_are_gone_leaves_nothing(folders, tmp_path, monkeypatch):
    drained_and_closed(folders)
    held = lease.held_by_drainer

    def late(folder):
        monkeypatch.setattr(lease, "held_by_drainer", held)
        cleared(*folders)
        return held(folder)

    monkeypatch.setattr(lease, "held_by_drainer", late)

    assert drain_loop.drain_snapshots(*folders) == 0

    assert list(tmp_path.iterdir()) == []


def test_a_drainer_that_waits_while_its_folders_are_taken_away_finds_none_and_makes_none(folders, tmp_path):
    drained_and_closed(folders)
    taken = drainer_lock(folders[0]).acquire(timeout=120)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(drain_loop.drain_snapshots, *folders)
        assert eventually(lambda: waits_for_drainer(folders[0]))

        for folder in folders:
            snapshots_in(folder).delete(snapshots_in(folder).names()[0])
            lease.remove_ours(Folder(folder))
            folder.rmdir()
        taken.lock.release()

        assert waiting.result(120) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_drainer_whose_folder_is_taken_away_under_it_does_not_make_it_anew(folders, tmp_path, monkeypatch):
    drained_and_closed(folders)
    gone = []

    def taken_away(*_):
        if not gone:
            shutil.rmtree(folders[0])
        gone.append(True)
        raise FileNotFoundError

    monkeypatch.setattr(drain_loop, "_attempt", taken_away)

    assert drain_loop.drain_snapshots(*folders) == 0
    assert list(tmp_path.iterdir()) == [folders[1]]


def test_the_marker_goes_first_and_the_lock_of_drainers_last(folders, monkeypatch):
    drained_and_closed(folders)
    unlink, gone = os.unlink, []
    monkeypatch.setattr("os.unlink", lambda name, **keys: (gone.append(name), unlink(name, **keys)))

    lease.remove_ours(Folder(folders[0]))

    assert (gone[0], gone[-1]) == (MARKER_NAME, ".tfio-burst-buffer.drainer.lock")
    assert len(gone) > 3


def test_a_lock_that_somebody_removed_is_told_and_not_made_anew(folders):
    drained_and_closed(folders)
    (folders[0] / ".tfio-burst-buffer.drainer.lock").unlink()

    with pytest.raises(FolderError, match="drainer\\.lock is missing"):
        drain_loop.drain_snapshots(*folders)


def test_a_drainer_that_does_not_end_is_told_and_finds_nothing_left_to_do(folders, idle):
    with closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))

    with drainer_lock(folders[0]), pytest.raises(FolderError, match="drainer is still working"):
        cleared(*folders, timeout_s=0.1)

    assert snapshots_in(folders[0]).names() == []


@pytest.mark.parametrize("whose", ["stranger's", "in use"])
def test_where_one_folder_is_not_ours_or_in_use_none_is_touched(folders, whose, monkeypatch):
    monkeypatch.setattr(lease, "_TRAINER_WAIT_S", 0.1)
    drained_and_closed(folders)
    if whose == "stranger's":
        (folders[1] / MARKER_NAME).unlink()
    before = bytes_of(folders[0]), bytes_of(folders[1])

    held = lease.acquire_lock(Folder(folders[1]), "trainer", 0.1) if whose == "in use" else nullcontext()
    with held, pytest.raises(FolderError):
        cleared(*folders)

    assert (bytes_of(folders[0]), bytes_of(folders[1])) == before
