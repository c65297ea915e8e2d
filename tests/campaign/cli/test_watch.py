"""What `watch` leaves behind."""

from __future__ import annotations

import pytest

from campaign.cells import record
from campaign.cells.folder import occupied
from campaign.cli import watch
from campaign.cluster import fleet
from campaign.worker.batch import read_all
from tests.campaign.on_disk import leave_batch, leave_record, squeue_line


@pytest.fixture
def ended(folder, cells, programs, monkeypatch):
    """A job that was cancelled while nobody looked; it has begun its cell."""
    monkeypatch.setattr(fleet, "_SHORTEST_S", 0.0)
    cell = cells[0][0]
    leave_record(folder, cell, None)
    batch = leave_batch(folder, cells=[[cell.id]])
    programs.answer("squeue", squeue_line(batch, 0, "CANCELLED", node="n1"))
    return cell.id


def test_how_jobs_ended_is_written_down_for_slurm_forgets(ended, folder):
    code = watch.main([str(folder.root)])

    (run,) = record.read(folder.record(ended))["runs"]
    assert code == 1
    assert read_all(folder)[0].ended == {0: "Slurm: CANCELLED on n1"}
    assert run["reason"] == "interrupted: Slurm: CANCELLED on n1"


def test_that_is_left_to_a_front_process_that_is_at_work_in_the_folder(ended, folder):
    with occupied(folder):
        code = watch.main([str(folder.root)])

    assert code == 1
    assert not list(folder.workers.glob("*/ended.json"))
    assert record.read(folder.record(ended))["runs"][0]["status"] == "running"


def test_a_folder_that_cannot_be_written_is_watched_all_the_same(ended, folder, monkeypatch):
    monkeypatch.setattr(record, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    assert watch.main([str(folder.root)]) == 1


def test_ctrl_c_says_that_the_jobs_go_on_and_how_to_come_back(ended, folder, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(folder), "worker_at_work", lambda _: True)
    monkeypatch.setattr(watch.display, "follow_here", interrupted)

    with pytest.raises(KeyboardInterrupt):
        watch.main([str(folder.root)])

    assert f"what runs continues. Come back: python -m campaign watch {folder.root}" in capsys.readouterr().err
