"""Folders of snapshots are taken away when they are ours and over, and nothing else ever is."""

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from burst_child import writer
from jobs_factory import eventually

from jobs.burst_buffer import BurstBuffer
from jobs.saving import claim, drain, drainer, snapshots
from jobs.saving.direct import Direct
from jobs.saving.reclaim import clear
from jobs.saving.snapshots import FolderError

CHILD = Path(__file__).with_name("burst_child.py")


@pytest.fixture
def folders(tmp_path):
    return [tmp_path / "fast", tmp_path / "slow"]


def everything(*folders):
    return {path: path.is_file() and path.read_bytes() for folder in folders for path in folder.rglob("*")}


def test_a_training_that_is_over_leaves_nothing(folders, tmp_path):
    with closing(Direct(tmp_path / "only")) as direct:
        direct.save(1, writer(1))
    with closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        assert buffer.drained(20)

    clear([tmp_path / "only"], 20)
    clear(folders, 20)

    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_passed_over(tmp_path):
    clear([tmp_path / "never", tmp_path / "neither"], 0)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("edge", ["staging", "sealed", "staged"])
def test_what_a_killed_trainer_left_goes_and_so_does_its_drainer(folders, tmp_path, edge):
    done = subprocess.run([sys.executable, CHILD, "save", edge, "-", "1", *folders], check=False)
    assert done.returncode == -signal.SIGKILL

    clear(folders, 20)

    assert eventually(lambda: not list(tmp_path.iterdir()))  # a drainer that comes late is there for a moment


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "marker"])
def test_a_drainer_that_comes_too_late_leaves_nothing(folders, tmp_path, monkeypatch, whole):
    with closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        assert buffer.drained(20)
    lock = claim.lock

    def late(folder, user):
        monkeypatch.setattr(claim, "lock", lock)
        clear(folders, 20)
        if not whole:  # caught between the last file and the folder itself
            folder.mkdir()
        return lock(folder, user)

    monkeypatch.setattr(claim, "lock", late)

    assert drain.drain(*folders) == 0

    assert list(tmp_path.iterdir()) == []


def test_a_drainer_that_does_not_end_is_told(folders, monkeypatch):
    monkeypatch.setattr(drainer.Drainer, "poke", lambda self: None)
    BurstBuffer(*folders).close()

    with claim.lock(folders[0], "drainer"), pytest.raises(FolderError, match="drainer is still at work"):
        clear(folders, 0.1)


def test_a_folder_in_use_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "_TRAINER_WAIT_S", 0.1)
    with closing(Direct(tmp_path / "only")) as direct:
        direct.save(1, writer(1))
        before = everything(tmp_path)

        with pytest.raises(FolderError, match="in use"):
            clear([tmp_path / "only"], 0)

        assert everything(tmp_path) == before


@pytest.mark.parametrize("whose", ["stranger's", "newer"])
def test_where_one_folder_is_not_ours_none_is_touched(folders, whose):
    with closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        assert buffer.drained(20)
    with claim.lock(folders[0], "drainer"):  # it has ended
        pass
    if whose == "newer":
        (name,) = snapshots.names(folders[1])
        manifest = folders[1] / name / snapshots.MANIFEST_NAME
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schema": 2}))
    else:
        (folders[1] / claim.MARKER_NAME).unlink()
    before = everything(*folders)

    with pytest.raises(FolderError):
        clear(folders, 20)

    assert everything(*folders) == before


def test_a_file_that_somebody_has_put_beside_ours_stays(tmp_path):
    with closing(Direct(tmp_path / "only")) as direct:
        direct.save(1, writer(1))
    (tmp_path / "only" / "notes.txt").write_text("mine")

    clear([tmp_path / "only"], 0)

    assert [path.name for path in (tmp_path / "only").iterdir()] == ["notes.txt"]
