"""What `watch` leaves behind, and that it says what `status` and `why` say."""

import json

import pytest

from campaign.cells import record
from campaign.cells.folder import occupied
from campaign.cli import status, watch, why
from campaign.cluster import fleet
from campaign.worker import batch
from campaign.worker.batch import read_all
from jobs.system.files import write_json
from tests.campaign.on_disk import leave_batch, leave_record, squeue_line
from tests.campaign.work_lists import slurm_conduct, work_list


@pytest.fixture
def ended(folder, cells, programs, monkeypatch):
    """A job that was cancelled while nobody looked; it has begun its cell."""
    monkeypatch.setattr(fleet, "_SHORTEST_S", 0.0)
    cell = cells[0][0]
    leave_record(folder, cell, None, data={"path": "/d", "files": 1, "bytes": 2})
    batch = leave_batch(folder, cells=[[cell.id]])
    programs.answer("squeue", squeue_line(batch, 0, "CANCELLED", node="n1"))
    return cell.id


def test_how_jobs_ended_is_written_down_for_slurm_forgets_and_no_record_is(ended, folder, capsys):
    before = folder.record(ended).read_bytes()

    code = status.watched([str(folder.root)])
    capsys.readouterr()
    why.main([ended, str(folder.root)])

    assert code == 1
    assert read_all(folder)[0].ended == {0: {"code": "CANCELLED", "node": "n1"}}
    assert "  reason       interrupted: Slurm: CANCELLED on n1" in capsys.readouterr().out.splitlines()
    assert folder.record(ended).read_bytes() == before


@pytest.mark.parametrize("is_looked_at_before", [False, True])
def test_status_watch_and_why_say_the_same_word_of_a_job_that_was_cancelled(is_looked_at_before, ended, folder, capsys):
    verbs = (status.main, why.main, status.watched)
    for verb in (*reversed(verbs), *verbs) if is_looked_at_before else verbs:
        capsys.readouterr()
        verb([*([ended] if verb is why.main else []), str(folder.root), "--json"])
        told = json.loads(capsys.readouterr().out)
        cell = told if verb is why.main else told["cells"][ended]
        assert (cell["status"], cell["reason"], cell["end"]) == (
            "interrupted", "Slurm: CANCELLED on n1", {"code": "CANCELLED", "node": "n1"}
        )  # fmt: skip


def test_that_is_left_to_a_front_process_that_is_at_work_in_the_folder(ended, folder):
    with occupied(folder):
        code = status.watched([str(folder.root)])

    assert code == 1
    assert not list(folder.workers.glob("*/ended.json"))
    assert record.read(folder.record(ended))["runs"][0]["status"] == "running"


def test_a_folder_that_cannot_be_written_is_watched_all_the_same(ended, folder, monkeypatch):
    monkeypatch.setattr(batch, "write_json", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    assert status.watched([str(folder.root)]) == 1


def test_ctrl_c_says_that_the_jobs_go_on_and_how_to_come_back(ended, folder, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(folder), "worker_at_work", lambda _: True)
    monkeypatch.setattr(watch.display, "follow_here", interrupted)

    with pytest.raises(KeyboardInterrupt):
        status.watched([str(folder.root)])

    assert f"what runs continues. Come back: python -m campaign watch {folder.root}" in capsys.readouterr().err


def test_status_and_watch_say_how_long_it_will_take_by_the_records_there_are(
    folder, cells, programs, monkeypatch, capsys
):
    one, other, _ = cells[0]
    leave_record(folder, one, *[{"status": "valid", "elapsed_s_with_fork": 30.0}] * 4, status="done", token="before")
    leave_record(folder, other, None)
    batch = leave_batch(folder, cells=[[other.id]])
    write_json(batch.work_list(0), work_list(folder, [other], slurm_conduct(cells[1]), "slurm"))
    programs.answer("squeue", squeue_line(batch, 0, "RUNNING", node="n1"))
    monkeypatch.setattr(fleet, "follow", lambda *_: None)

    for verb in (status.main, status.watched):
        verb([str(folder.root)])

        assert "6 runs to go, about 3 min expected, from 4 earlier runs" in capsys.readouterr().err
