"""What the main verb says and writes around the work, which is a stand-in here."""

import json

import pytest

from campaign import console
from campaign.cli import run
from campaign.cluster import local, slurm
from campaign.config.command_line import parse_command_line
from campaign.errors import EnvironmentFaultError, NotQuietError, SchedulerError, UsageError
from tests.campaign.fake_template import figures
from tests.campaign.on_disk import leave_batch, leave_record
from tests.campaign.work_lists import grid


@pytest.fixture(autouse=True)
def composed(monkeypatch):
    """Hydra composes what is asked for once for all of these tests."""
    monkeypatch.setattr(run, "collect_points", lambda words: grid(*parse_command_line(words).overrides))


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(console, "say", lines.append)
    return lines


@pytest.fixture
def reports(monkeypatch):
    """The folders of which a report was made."""
    made = []
    monkeypatch.setattr(run, "write_report", lambda root, **_: made.append(root) or 0)
    return made


@pytest.fixture
def go(folder, said, reports, monkeypatch):
    """Give the command; the front process on the cluster returns or raises what is given."""

    def go(answer, *words):
        def work(*_, **__):
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(slurm, "run_campaign_on_slurm", work)
        return run.main([f"campaign_dir={folder.root}", "cluster=slurm", *words])

    return go


def _record(folder):
    folder.record("cell").parent.mkdir()
    folder.record("cell").write_text("{}")


@pytest.mark.parametrize("alone", [True, False])
def test_jobs_are_said_to_go_on_alone_where_there_are_any(alone, go, said):
    go(alone, "detach=true")

    assert any("continue without this process" in line for line in said) is alone


def test_where_cells_are_not_done_the_command_that_says_why_names_the_campaign(go, folder, said, monkeypatch):
    go(None)
    assert any(f"`python -m campaign status {folder.root}` says why" in line for line in said)

    said.clear()
    monkeypatch.chdir(folder.root.parent)
    go(None)
    assert folder.root.name == "results"
    assert any("`python -m campaign status` says why" in line for line in said)


@pytest.mark.parametrize("end", [SchedulerError("limit"), NotQuietError("limit")], ids=["refused", "not quiet"])
@pytest.mark.parametrize("begun", [True, False])
def test_neither_a_refusal_nor_others_keep_what_was_measured_from_being_reported(end, begun, go, folder, reports):
    if begun:
        _record(folder)

    with pytest.raises(type(end), match="limit"):
        go(end)

    assert reports == [folder.root] * begun


@pytest.mark.parametrize("redo", [True, False])
def test_who_comes_back_to_jobs_that_do_cells_anew_is_told_not_to_ask_for_it_again(redo, go, said):
    code = go(KeyboardInterrupt(), f"redo={str(redo).lower()}")

    assert code == 130
    assert ("the same command without redo=true; to end them" in said[-1]) is redo


def test_after_runs_that_others_disturbed_a_quiet_machine_is_asked_for(folder, said, reports, monkeypatch):
    def work(planned, *_, **__):
        for entry, other_cpu in zip(planned.to_do, (2.43, 8.93), strict=True):
            leave_record(folder, entry.cell, figures(other_cpu=other_cpu))
        return False

    monkeypatch.setattr(run, "_run_missing", work)
    run.main([f"campaign_dir={folder.root}", "cluster=slurm", "threads=1,2"])

    (line,) = [line for line in said if "not every cell is done" in line]
    assert "the same command when nothing else keeps the machine busy measures the missing runs; to measure one" in line


@pytest.fixture
def tries(folder, said, reports, monkeypatch):
    """Give the command for two cells, of whose jobs the ends are given for each try; returns cells and tries."""

    def go(*ends, words=("retries=2",), begun=True):
        made = []

        def work(planned, request, *_, sure):
            ids = [entry.cell.id for entry in planned.to_do]
            batch = leave_batch(folder, f"{request.token}-0", [[cell] for cell in ids], utc=request.utc)
            for entry in planned.to_do if begun else ():
                leave_record(folder, entry.cell, token=request.token)
            batch.save_ends(dict(enumerate(ends[len(made)])))
            made.append((len(ids), request.attempt, sure, request.conduct["redo"]))
            return False

        monkeypatch.setattr(run, "_run_missing", work)
        run.main([f"campaign_dir={folder.root}", "cluster=slurm", "threads=1,2", *words])
        return made

    return go


FAILED, CANCELLED, KILLED = ({"code": code, "node": "n1"} for code in ("NODE_FAIL", "CANCELLED", "FAILED"))


def test_what_failed_for_no_reason_of_its_own_is_tried_again_a_bounded_number_of_times(tries, said):
    made = tries([FAILED, FAILED], [CANCELLED, FAILED], [FAILED], words=("retries=2", "redo=true"))

    assert made == [(2, 0, False, True), (2, 1, True, False), (1, 2, True, False)]
    assert "1 cell failed for a reason outside the run: retry 2 of 2" in said


def test_nothing_is_tried_again_unasked(tries):
    assert len(tries([FAILED, FAILED], words=())) == 1


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize(
    ("end", "why"),
    [
        (CANCELLED, "cancelled"),
        ({"code": "OUT_OF_MEMORY"}, "the job's memory did not suffice (cluster.mem_gb=… asks for more)"),
        ({"code": "TIMEOUT"}, "the time limit was reached (cluster.timeout_min=… asks for more)"),
        (
            {"code": "ERROR", "words": "the time limit of 5 min was reached 4 times", "cure": "ask"},
            "the time limit of 5 min was reached 4 times (ask)",
        ),
    ],
)
def test_what_would_fail_again_is_not_tried_again_and_it_is_said_why(end, why, begun, tries, said):
    assert len(tries([end, end], begun=begun)) == 1
    assert f"2 cells not tried again: {why}" in said


@pytest.mark.parametrize(("end", "begun", "count"), [(KILLED, True, 2), (KILLED, False, 1), (FAILED, False, 2)])
def test_a_job_that_was_killed_is_tried_again_but_not_one_that_failed_before_its_first_run(
    end, begun, count, tries, said
):
    assert len(tries([end, end], [CANCELLED, CANCELLED], begun=begun)) == count
    assert ("2 cells not tried again: the job failed before its first run" in said) is (count == 1)


def test_no_more_than_five_commands_of_cells_are_shown_and_how_many_there_are(tries, said):
    tries([FAILED] * 7, words=("threads=1,2,3,4,5,6,7",))

    assert len([line for line in said if " --only " in line]) == 5
    assert said[-1] == "… and 2 more"


def test_of_a_grid_one_cell_alone_is_run_and_a_failure_ends_in_the_command_for_it(tries, said, folder):
    assert tries([FAILED], words=("--only", "micro-demo-local-t1")) == [(1, 0, False, False)]
    (line,) = [line for line in said if " --only " in line]
    assert line.startswith(f"  python -m campaign campaign_dir={folder.root} cluster=slurm threads=1,2 --only ")
    with pytest.raises(UsageError, match="--only t9: no cell of this grid"):
        tries([], words=("--only", "t9"))


def test_requests_follow_each_other_in_time_whatever_the_clocks_of_login_nodes_say(go, folder):
    campaign = json.loads(folder.marker.read_text())
    campaign["requests"] = [{"utc": "2999-12-31T23:59:59.999Z", "cells": []}, {"utc": "2001-01-01T00:00:00.000Z"}]
    folder.marker.write_text(json.dumps(campaign))

    for _ in range(2):
        go(None)

    requests = json.loads(folder.marker.read_text())["requests"]
    assert [request["utc"] for request in requests[2:]] == ["3000-01-01T00:00:00.000Z", "3000-01-01T00:00:00.001Z"]


def test_cluster_local_does_not_begin_beside_open_jobs(folder, said, programs, monkeypatch):
    leave_batch(folder, cells=[["a"]])
    monkeypatch.setattr(local, "run_campaign_here", lambda *_: pytest.fail("it began"))

    with pytest.raises(EnvironmentFaultError, match="the cluster still has 1 job of this campaign"):
        run.main([f"campaign_dir={folder.root}", "cluster=local"])


def test_a_dry_run_refuses_what_the_campaign_would_and_makes_nothing(folder, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jpg").write_bytes(b"x")
    words = ("benchmark=baseline,micro", "dataset=folder", f"dataset.path={tmp_path}", "batch_size=1")
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(UsageError, match="does not lie on storage memory"):
        run.main(["--dry-run", *words, "storage.name=memory", "storage.root=/dev/shm", "cluster=local"])

    assert any("nothing started" in line for line in said)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_says_what_this_machine_lacks(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert run.main(["--dry-run", "storage.root=/no/such/folder", "cluster=local"]) == 0
    assert "note: the campaign would not start here: storage local: there is no folder /no/such/folder" in said[-1]


def test_who_leaves_while_a_worker_of_an_earlier_command_is_at_work_is_told_so(folder, said):
    with folder.worker_lock():
        run._say_how_to_come_back({"redo": False}, "local", folder)  # noqa: SLF001 - after Ctrl-C

    assert said[-1].startswith("the worker of the earlier command continues; the same command waits for it")
    assert f"python -m campaign cancel {folder.root}" in said[-1]


@pytest.mark.usefixtures("said", "reports")
def test_a_folder_that_is_moved_away_from_a_front_is_said_to_be_gone(folder, monkeypatch):
    def move(*_, **__):
        folder.root.rename(folder.root.parent / "elsewhere")
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(slurm, "run_campaign_on_slurm", move)

    with pytest.raises(EnvironmentFaultError, match=f"the campaign folder {folder.root} is gone") as caught:
        run.main([f"campaign_dir={folder.root}", "cluster=slurm"])

    assert f"python -m campaign cancel campaign_dir={folder.root}" in caught.value.hint
