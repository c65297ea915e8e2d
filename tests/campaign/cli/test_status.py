"""What `status` and `show` say of a cell whose worker is gone.

What `status --watch` leaves behind, and that it says what `status` and `show` say.
"""

import json
import shlex

import pytest

from campaign.cells import record
from campaign.cells.cell import make_cell
from campaign.cells.folder import lock_folder, sign_request
from campaign.cli import show, status
from campaign.cluster import fleet
from campaign.errors import UsageError
from campaign.storage import checkpoint_targets
from campaign.worker import batch
from campaign.worker.batch import read_batches
from jobs import burst_buffer as by_hand
from jobs.checkpoints.lease import MARKER_NAME
from jobs.system.files import write_json
from tests.campaign.fake_template import COLD, failed
from tests.campaign.on_disk import leave_batch, leave_record, squeue_line
from tests.campaign.work_lists import UTC, compose, slurm_conduct, work_list
from tests.jobs.objects.conftest import signed, store  # noqa: F401 - fixtures


@pytest.fixture
def cut(direct_point, folder, tmp_path):
    """A cell whose run was cut, with a snapshot on its storage; returns its id and the folder of its snapshots."""
    direct_point["checkpoint"]["root"] = str(tmp_path / "hdd")
    cell = make_cell(direct_point)
    leave_record(folder, cell, None, data={"path": "/d", "files": 1, "bytes": 2})
    snapshots = tmp_path / "hdd" / "checkpoints" / cell.id
    snapshots.mkdir(parents=True)
    return cell.id, snapshots


def test_status_names_the_snapshots_that_a_cut_run_left(cut, folder, capsys):
    _, snapshots = cut
    said = []

    for _ in range(2):
        status.main([str(folder.root)])
        said.append(" ".join(capsys.readouterr().err.split()))
        if snapshots.exists():
            snapshots.rmdir()

    assert f"an interrupted run left snapshots in {snapshots}" in said[0]
    assert "snapshots" not in said[1]


def test_status_names_the_file_that_a_cut_baseline_left(folder, tmp_path, capsys):
    cell = make_cell(compose("benchmark=baseline", "benchmark.access=write"))
    leave_record(folder, cell, None, data={"path": str(tmp_path), "folder": str(tmp_path), "bytes": 5})
    (tmp_path / f"written-{cell.id}.bin").write_bytes(b"12345")

    status.main([str(folder.root)])

    assert f"an interrupted run left the file {tmp_path}/written-{cell.id}.bin" in capsys.readouterr().err


@pytest.fixture
def cut_in_bucket(folder, tmp_path, store):  # noqa: F811
    """A cell whose run was cut as it drained to a bucket; returns the address of its place there."""
    (tmp_path / "fast").mkdir()
    root = f"{store.storage['endpoint']}/bucket/p"
    sides = f"checkpoint.fast.root={tmp_path / 'fast'}", f"checkpoint.slow.root={root}"
    cell = make_cell(compose("benchmark=alexnet", "checkpoint=burst_buffer", "checkpoint.every=2", *sides))
    leave_record(folder, cell, None, data={"path": "/d", "files": 1, "bytes": 2})
    asked = sign_request(folder.root, {"token": "first", "utc": UTC, "words": [], "cells": [cell.id]})
    folder.marker.write_text(json.dumps({"schema": 1, "tool": "t", "requests": [asked]}))
    below = f"checkpoints/{checkpoint_targets.campaign_id(folder, 'first')}/{cell.id}"
    marker = json.dumps({"schema": 1, "id": "b", "role": "slow"}).encode()
    names = {
        MARKER_NAME: marker,
        "00000001-step2-0000abcd/files/000000": b"12",
        "00000001-step2-0000abcd/files/000001": b"3",
    }
    store.objects = {f"p/{below}/{name}": data for name, data in names.items()}
    store.objects |= {"p/checkpoints/another/cell/000000": b"theirs"}
    return f"{root}/{below}"


def test_status_lists_what_a_cut_run_left_in_a_bucket_with_the_command_that_removes_it(
    cut_in_bucket,
    folder,
    tmp_path,
    store,  # noqa: F811
    capsys,
):
    status.main(["--buckets", str(folder.root)])
    said, _, command = capsys.readouterr().err.splitlines()[0].partition("or: ")

    assert said.startswith(f"an interrupted run has left snapshots in {cut_in_bucket}")
    assert "(3 objects): the next run of the cell removes the snapshots" in said
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "jobs.burst_buffer", "clear"]
    assert words.pop(4) == "--gone"
    assert words[4] == str(tmp_path / "fast" / "checkpoints" / cut_in_bucket.rpartition("/")[2])
    with pytest.raises(SystemExit) as ended:
        by_hand.main([words[3], "--gone", *words[4:]])
    assert ended.value.code == 0
    assert [*store.objects] == ["p/checkpoints/another/cell/000000"]
    status.main(["--buckets", str(folder.root)])
    assert "snapshots" not in capsys.readouterr().err


def test_status_says_that_a_bucket_which_is_away_cannot_be_seen_and_goes_on(cut_in_bucket, folder, store, capsys):  # noqa: F811
    store.close()

    assert status.main(["--buckets", str(folder.root)]) == 1

    told = capsys.readouterr().err
    place = cut_in_bucket.rpartition("/")[0]
    assert f"warning: cannot list the snapshots of interrupted runs in {place}" in told
    assert "gives no answer (refused)" in told


def test_status_asks_no_bucket_unless_it_is_told_to(cut_in_bucket, folder, store, capsys):  # noqa: F811
    store.objects.clear()
    store.close()

    status.main([str(folder.root)])

    told = capsys.readouterr().err
    assert "what interrupted runs left in buckets: python -m campaign status --buckets" in told
    assert "warning" not in told


def test_status_asks_no_bucket_that_a_record_of_others_names(cut_in_bucket, folder, store, capsys, monkeypatch):  # noqa: F811
    marker = json.loads(folder.marker.read_text())
    del marker["requests"][0]["mark"]
    folder.marker.write_text(json.dumps(marker))
    connections = []
    monkeypatch.setattr(store, "process_request", lambda *_: connections.append(1))

    for words in (["--buckets"], []):
        assert status.main([*words, str(folder.root)]) == 1

    assert connections == []
    assert "not searched: buckets of cells that you did not request in this folder" in capsys.readouterr().err


def test_why_and_status_call_a_cell_the_same(cut, folder, capsys):
    cell, _ = cut
    status.main(["--json", str(folder.root)])
    told = json.loads(capsys.readouterr().out)["cells"][cell]

    show.main([cell, str(folder.root)])

    assert told["status"] == "interrupted"
    assert capsys.readouterr().out.startswith(f"{cell}: interrupted")


def test_the_commands_that_run_what_is_missing_are_printed_the_one_with_the_most_cells_first(folder, cells, capsys):
    one, other, third = (leave_record(folder, cell, status="failed")["cell"]["id"] for cell in cells[0])
    campaign = json.loads(folder.marker.read_text())
    asked = [("threads=1,2 --yes", [one, other]), ("threads=1 --only x", [one]), ("threads=4 redo=true", [third])]
    mine = [{"words": words.split(), "cells": ids} for words, ids in asked]
    campaign["requests"] = [sign_request(folder.root, each) for each in mine]
    folder.marker.write_text(json.dumps(campaign))

    for words in ([], ["--watch"]):
        status.main([*words, str(folder.root)])

        said = capsys.readouterr().err.splitlines()
        assert said[-2:] == ["  python -m campaign threads=1,2", "  python -m campaign threads=4"]


def test_a_command_of_a_verb_is_printed_as_it_was_typed_with_the_flags_of_the_program(folder, cells, capsys):
    failed_cell = leave_record(folder, cells[0][0], status="failed")["cell"]["id"]
    typed = ["stall", "--data", "/my data", "--", "train.py", "--yes", "redo=true"]
    campaign = json.loads(folder.marker.read_text())
    request = {"words": ["benchmark=command"], "command": typed, "cells": [failed_cell]}
    campaign["requests"] = [sign_request(folder.root, request)]
    folder.marker.write_text(json.dumps(campaign))

    status.main([str(folder.root)])

    said = capsys.readouterr().err.splitlines()
    assert "  python -m campaign stall --data '/my data' -- train.py --yes redo=true" in said


def test_commands_of_somebody_are_not_printed(folder, cells, capsys):
    leave_record(folder, cells[0][0], status="failed")
    strange = {"words": ["--config-dir", "/theirs"], "cells": [cells[0][0].id]}
    campaign = json.loads(folder.marker.read_text())
    campaign["requests"] = [strange, {**strange, "mark": "0" * 64}, sign_request(folder.root / "copy", strange)]
    folder.marker.write_text(json.dumps(campaign))

    status.main([str(folder.root)])

    said = capsys.readouterr().err
    assert "/theirs" not in said
    assert "that you did not request" in said


def test_what_needs_attention_comes_first_each_cell_on_its_line(folder, cells, capsys):
    valid = [{"status": "valid"}] * 3
    leave_record(folder, cells[0][0], *valid, status="done")
    leave_record(folder, cells[0][1], *valid[:2], {"status": "invalid"}, status="invalid")
    reason = "sbatch: error: one\nsbatch: error: two"
    leave_record(folder, cells[0][2], failed(reason), status="failed")

    assert status.main([str(folder.root)]) == 1

    head, *lines = capsys.readouterr().out.splitlines()
    assert head == f"{folder.root}: 3 cells: 1 failed, 1 invalid, 1 done"
    assert [line.split() for line in lines] == [
        ["failed", "0/1", "valid", cells[0][2].id, *f"0 of 1 measured runs valid, 3 needed; {reason}".split()],
        ["invalid", "2/3", "valid", cells[0][1].id, *f"2 of 3 measured runs valid, 3 needed; {COLD}".split()],
        ["done", "3/3", "valid", cells[0][0].id],
    ]


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

    code = status.main(["--watch", str(folder.root)])
    capsys.readouterr()
    show.main([ended, str(folder.root)])

    assert code == 1
    assert read_batches(folder)[0].ended == {0: {"code": "CANCELLED", "node": "n1"}}
    assert "  reason       interrupted: Slurm: CANCELLED on n1" in capsys.readouterr().out.splitlines()
    assert folder.record(ended).read_bytes() == before


@pytest.mark.parametrize("is_looked_at_before", [False, True])
def test_status_watch_and_show_say_the_same_word_of_a_job_that_was_cancelled(
    is_looked_at_before, ended, folder, capsys
):
    verbs = ((status.main,), (show.main, ended), (status.main, "--watch"))
    for main, *words in (*reversed(verbs), *verbs) if is_looked_at_before else verbs:
        capsys.readouterr()
        main([*words, str(folder.root), "--json"])
        told = json.loads(capsys.readouterr().out)
        cell = told if main is show.main else told["cells"][ended]
        assert (cell["status"], cell["reason"], cell["end"]) == (
            "interrupted", "Slurm: CANCELLED on n1", {"code": "CANCELLED", "node": "n1"}
        )  # fmt: skip


def test_that_is_left_to_a_front_process_that_is_at_work_in_the_folder(ended, folder):
    with lock_folder(folder):
        code = status.main(["--watch", str(folder.root)])

    assert code == 1
    assert not list(folder.workers.glob("*/ended.json"))
    assert record.read_record(folder.record(ended))["runs"][0]["status"] == "running"


def test_a_folder_that_cannot_be_written_is_watched_all_the_same(ended, folder, monkeypatch):
    monkeypatch.setattr(batch, "write_json", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    assert status.main(["--watch", str(folder.root)]) == 1


@pytest.mark.parametrize(
    ("words", "tick_s"), [(["--watch"], 1.0), (["--watch", "3"], 3.0), (["--watch=0.5"], 0.5), (["--watch", "."], 1.0)]
)
def test_watch_takes_the_seconds_between_two_tables_and_a_folder_is_none(words, tick_s, folder, monkeypatch):
    monkeypatch.chdir(folder.root)
    ticks = []
    monkeypatch.setattr(status, "watch_campaign", lambda _, each_s: ticks.append(each_s))

    status.main([*words, *([] if "." in words else [str(folder.root)])])

    assert ticks == [tick_s]


@pytest.mark.parametrize("seconds", ["0", "0.09", "3601", "nan", "soon"])
def test_other_seconds_are_refused_with_those_that_are_legal(seconds, folder):
    with pytest.raises(UsageError, match=r"is not between 0\.1 and 3600 seconds"):
        status.main([f"--watch={seconds}", str(folder.root)])


def test_ctrl_c_says_that_the_jobs_go_on_and_how_to_come_back(ended, folder, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(folder), "is_worker_running", lambda _: True)
    monkeypatch.setattr(status.fleet, "follow_local_worker", interrupted)

    with pytest.raises(KeyboardInterrupt):
        status.main(["--watch", str(folder.root)])

    told = f"the jobs continue. To watch them again: python -m campaign status --watch {folder.root}"
    assert told in capsys.readouterr().err


def test_status_and_watch_say_how_long_it_will_take_by_the_records_there_are(
    folder, cells, programs, monkeypatch, capsys
):
    one, other, _ = cells[0]
    leave_record(folder, one, *[{"status": "valid", "elapsed_s_with_fork": 30.0}] * 4, status="done", token="before")
    leave_record(folder, other, None)
    batch = leave_batch(folder, cells=[[other.id]])
    write_json(batch.work_list(0), work_list(folder, [other], slurm_conduct(cells[1]), "slurm"))
    programs.answer("squeue", squeue_line(batch, 0, "RUNNING", node="n1"))
    monkeypatch.setattr(fleet, "follow_fleet", lambda *_: None)

    for words in ([], ["--watch"]):
        status.main([*words, str(folder.root)])

        assert "6 runs to go, about 3 min expected, from 4 earlier runs" in capsys.readouterr().err
    programs.answer("squeue", squeue_line(batch, 0, "SUSPENDED", node="n1"))
    for words in ([], ["--watch"]):  # nobody knows when it goes on
        status.main([*words, str(folder.root)])

        said = capsys.readouterr()
        assert "SUSPENDED" in said.out
        assert "runs to go" not in said.err
