"""Campaigns on a real Slurm: to their figures, and through everything that a cluster does to jobs."""

import json
import re
import shutil
import subprocess
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests.slurm.campaigns import LONG, Campaign, interrupt, wait

pytestmark = pytest.mark.long
SILENCE = "the scheduler does not answer, so the job may have another state by now"
_TOLD_WITHIN_S = 240  # where other tests run beside these


def _span(run):
    started = datetime.fromisoformat(run["started_utc"])
    return started, started + timedelta(seconds=run["elapsed_s_with_fork"])


def _finishes_whole(campaign):
    """The same command measures what is missing, and nothing twice."""
    _finishes(campaign, *LONG)
    campaign.assert_whole(39)


def _one_after_the_other(campaign):
    spans = sorted(_span(run) for recorded in campaign.records() for run in recorded["runs"])
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def _finishes(campaign, *words):
    """The same command brings the campaign to its end."""
    done = campaign.go(*words)
    assert done.returncode == 0, done.stderr
    return done


def test_a_grid_runs_to_its_figures_and_each_job_had_the_storage_alone(campaign, lab):
    before, words = lab.calls("squeue"), ("threads=1,2", "seed=0,1", "runs=3", "cluster.parallel=4")

    _finishes(campaign, *words)

    assert list(campaign.cwd.glob("results/figures/*.png"))
    assert campaign.job_states() == ["COMPLETED"] * 4
    assert _one_after_the_other(campaign)
    assert {run["exclusive"]["how"] for run in campaign.measured()} == {"lock"}
    assert {recorded["provenance"]["slurm"]["SLURM_ARRAY_JOB_ID"] for recorded in campaign.records()} == {
        campaign.job()
    }
    assert lab.calls("squeue") - before < 60
    submitted = lab.calls("sbatch")
    assert "nothing to run" in _finishes(campaign, *words).stderr
    assert lab.calls("sbatch") == submitted


def test_a_licence_keeps_jobs_apart_and_the_grant_is_recorded(campaign):
    words = ("storage.exclusive=license", "storage.license='lustre:1'")
    _finishes(campaign, "seed=0,1", "runs=3", "cluster.parallel=2", *words)

    assert {run["exclusive"]["licenses"] for run in campaign.measured()} == {"lustre:1"}
    assert _one_after_the_other(campaign)


_SAVED = (
    "benchmark=alexnet", "benchmark.width=0.05", "benchmark.image_size=32", "accelerator=emulated", "batch_size=1",
    "iterations=8", "accelerator.step_s=0.05", "checkpoint.every=2",
)  # fmt: skip


@pytest.fixture
def sides(tmp_path):
    """The fast and the slow storage of a burst buffer; returns the words that name them."""
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
    return "checkpoint=burst_buffer", *(f"checkpoint.{name}.root={tmp_path}/{name}" for name in ("fast", "slow"))


def _left(campaign):
    return [path for name in ("fast", "slow") for path in (campaign.cwd / name).glob("checkpoints/*")]


def test_the_snapshots_of_a_job_are_drained_before_it_ends_and_proved(campaign, sides):
    _finishes(campaign, *_SAVED, *sides, "threads=1,2", "runs=3", "cluster.parallel=2")

    runs = campaign.measured()
    assert [len(run["checkpoints"]) for run in runs] == [4] * 4
    assert all(line["durable_slow_s"] and line["verified"] for run in runs for line in run["checkpoints"])
    assert _one_after_the_other(campaign)  # the storages are one at a time's
    assert _left(campaign) == []


def test_a_job_that_is_cancelled_between_two_snapshots_leaves_what_status_names_and_the_next_takes_away(
    campaign, sides, lab
):
    words = (*_SAVED, *sides, "runs=3", "iterations=24")
    with campaign.under_way(*words) as front:
        wait(lambda: list(campaign.cwd.glob("fast/checkpoints/*/0*")))
        lab.run("scancel", campaign.job())
        front.wait(240)
        told = campaign("status").stderr
        left = _left(campaign)

    assert all(str(path) in "".join(told.split("\n")) for path in left)
    _finishes(campaign, *words)
    assert _left(campaign) == []


def test_a_storage_of_each_node_is_made_ready_by_the_job(campaign, tmp_path):
    root = tmp_path / "node-local"
    root.mkdir()

    done = _finishes(campaign, "runs=3", "storage.shared=false", f"storage.root={root}")

    assert "making dataset" not in done.stderr
    assert list(root.glob("datasets/*/manifest.json"))


@pytest.mark.parametrize("shared", ["true", "false"])
def test_baselines_run_in_jobs_and_judge_the_cells_of_their_node(campaign, tmp_path, shared):
    root = tmp_path / "storage"
    root.mkdir()
    words = (
        "benchmark=baseline,micro", f"storage.shared={shared}", f"storage.root={root}", "cluster.parallel=1",
        "+size=smoke", "runs=3", "checks.peak_max=1000",
    )  # fmt: skip

    _finishes(campaign, *words)

    runs = [run for run in campaign.measured() if "images" in run]
    assert len(runs) == len(campaign.measured()) - len(runs) == 2
    assert {path.name for path in (root / "baseline").iterdir()} >= {"read-402653184.bin"}
    told = _finishes(campaign, *words)
    judged = {check["rule"] for run in campaign.measured() if "images" in run for check in run["checks"]}
    assert "nothing to run" in told.stderr
    assert "below_peak" in judged


def test_a_job_that_will_not_start_as_it_stands_is_told_with_the_cure(campaign, lab):
    long = campaign.go("runs=3", "cluster.partition=excl", "cluster.timeout_min=120", "detach=true")
    campaign.go("runs=3", "threads=2", "+cluster.extra.hold=true", "detach=true")

    told = sorted(campaign.status().values())

    assert "cluster.timeout_min=120: partition excl allows 60 min (MaxTime)" in long.stderr
    assert [status for status, _ in told] == ["queued"] * 2
    assert re.search("JobHeldUser: the job cannot start; `scontrol release [0-9]+`", told[0][1])
    assert re.search("PartitionTimeLimit: the job cannot start; .*cluster.timeout_min", told[1][1])


def test_jobs_run_on_nodes_of_the_pool_alone_after_the_prelude(campaign):
    prelude = "cluster.prelude=['export PRELUDE=done','test $PRELUDE']"

    _finishes(campaign, "runs=2", "seed=0,1", "warmup_runs=0", "cluster.pool=n[2-3]", "cluster.mem_gb=1", prelude)

    assert {run["node"] for run in campaign.measured()} <= {"n2", "n3"}


def test_why_a_job_could_not_begin_is_told_at_once_and_in_status_by_its_log_and_it_is_not_tried_again(campaign, lab):
    before = lab.calls("sbatch")

    done = campaign.go("runs=3", "cluster.modules=[nosuch]", "retries=2")

    ((status, reason),) = campaign.status().values()
    assert (done.returncode, status) == (1, "failed")
    assert re.search(r"Slurm: FAILED.* on n\d; .*module: command not found \(/.*_0_0_log.err\)", reason)
    assert reason in done.stderr
    assert "1 cell not tried again: the job failed before its first run" in done.stderr
    assert lab.calls("sbatch") == before + 2  # the first one asks whether Slurm would take it (--test-only)


@pytest.mark.parametrize(
    ("end", "state", "status"),
    [
        (lambda campaign: campaign.lab.run("scancel", campaign.job()), "CANCELLED", "interrupted"),
        (lambda campaign: campaign.worker().kill(), "FAILED", "failed"),
    ],
    ids=["cancelled", "worker killed"],
)
def test_a_job_that_is_ended_is_told_keeps_its_runs_and_the_same_command_finishes(campaign, end, state, status):
    with campaign.under_way(*LONG, runs=2) as front:
        end(campaign)
        wait(lambda: front.poll() is not None, _TOLD_WITHIN_S)
        told = front.communicate()[0]

    kept = len(campaign.measured())
    assert front.returncode == 1, told
    assert campaign.job_states() == [state]
    ((found, reason),) = campaign.status().values()
    assert (found, state in told, state in reason or state == "CANCELLED") == (status, True, True)
    _finishes_whole(campaign)
    assert kept >= 2


def test_a_killed_worker_is_tried_again_by_the_command_itself_and_the_record_counts_it(campaign):
    with campaign.under_way(*LONG, "retries=1", runs=2) as front:
        campaign.worker().kill()
        told = front.communicate(timeout=240)[0]

    (recorded,) = campaign.records()
    assert front.returncode == 0, told
    assert "try 1 of 1" in told
    assert [sitting["attempt"] for sitting in recorded["sittings"]] == [0, 1]
    campaign.assert_whole(39)


def test_ctrl_c_detaches_and_the_same_command_takes_the_jobs_up(campaign, lab):
    with campaign.under_way(*LONG, runs=2) as front:
        submitted = lab.calls("sbatch")
        interrupt(front)
        told = front.communicate()[0]

    assert front.returncode == 130
    assert "python -m campaign status --watch" in told
    assert campaign.job_states() == ["RUNNING"]
    done = _finishes(campaign, *LONG)
    assert "this command follows these jobs" in done.stderr
    assert lab.calls("sbatch") == submitted
    assert len({run["token"] for run in campaign.measured()}) == 1


@pytest.mark.parametrize("moment", ["submitted", "measuring"])
def test_a_front_process_that_is_killed_loses_nothing_and_repeats_nothing(campaign, lab, moment):
    with campaign.under_way(*LONG, runs=2 if moment == "measuring" else 0) as front:
        wait(lambda: campaign.job_states() != [])
        front.kill()

    assert campaign.job_states()[0] in ("PENDING", "RUNNING")
    submitted = lab.calls("sbatch")
    _finishes_whole(campaign)
    assert lab.calls("sbatch") == submitted


def test_cancel_ends_what_is_ours_and_nothing_else(campaign, lab, tmp_path):
    other = lab.run("sbatch", "--parsable", "--job-name=tfio-other", f"--output={tmp_path}/o", "--wrap=sleep 300")
    campaign.go(*LONG, "seed=0,1,2", "detach=true")
    wait(lambda: "RUNNING" in campaign.job_states())

    done = campaign("cancel")

    assert done.returncode == 0, done.stderr
    wait(lambda: set(campaign.job_states()) == {"CANCELLED"}, _TOLD_WITHIN_S)
    assert {status for status, _ in campaign.status().values()} == {"interrupted"}
    assert lab.run("squeue", "-h", "-j", other, "-o", "%T") in ("RUNNING", "PENDING")


def test_after_cancel_every_cell_is_cancelled_also_those_whose_jobs_slurm_forgot(campaign):
    with campaign.under_way(*LONG, "batch_size=8,4,2,1", runs=1) as front:
        campaign("cancel")
        told, _ = front.communicate(timeout=240)

    states = campaign.status()
    assert len(states) == 4
    assert {status for status, _ in states.values()} == {"interrupted"}
    assert all(reason.startswith("Slurm: CANCELLED") for _, reason in states.values())
    assert "LOST" not in told


def test_a_folder_that_is_removed_under_its_jobs_is_not_made_anew_and_cancel_finds_them(campaign, lab):
    results = campaign.cwd / "results"
    campaign.go(*LONG, "detach=true")
    campaign.go(*LONG, "seed=1", "+cluster.extra.hold=true", "detach=true")
    wait(lambda: len(campaign.measured()) >= 2)

    shutil.rmtree(results, ignore_errors=True)  # a file may come into it meanwhile
    wait(lambda: "RUNNING" not in campaign.job_states())
    left = [path for path in results.rglob("*") if path.name == "record.json"]
    shutil.rmtree(results, ignore_errors=True)
    done = campaign("cancel")

    assert left == []
    assert sorted(campaign.job_states()) == ["CANCELLED", "FAILED"]
    assert (done.returncode, done.stderr) == (0, "cancelled 1 job; their folder is gone\n")
    assert not results.exists()


def test_watch_comes_back_from_another_shell_and_tells_the_end(campaign):
    campaign.go("runs=3", "detach=true")

    watched = campaign("status", "--watch")

    assert watched.returncode == 0, watched.stderr
    assert "1 done" in watched.stdout
    assert "[3/3]" in watched.stderr


def test_a_time_limit_puts_the_job_back_and_nothing_is_repeated(campaign, lab):
    words = (*LONG, "runs=200", "cluster.timeout_min=1", "cluster.signal_delay_s=40")
    with campaign.under_way(*words, runs=1) as front:
        wait(lambda: campaign.job_states() == ["PENDING"], 75)
        held = [status for status, _ in campaign.status().values()]
        kept = len(campaign.measured())
        lab.release(f"{campaign.job()}_0")
        wait(lambda: len(campaign.measured()) > kept)
        campaign("cancel")
        front.wait(240)

    (recorded,) = campaign.records()
    assert held == ["queued"]
    cut = [run["status"] for run in recorded["runs"] if run.get("end") == {"code": "time_is_up"}]
    assert cut in (["failed"], [])  # the signal may come between two runs
    assert len(recorded["sittings"]) == 2
    assert len({run["token"] for run in recorded["runs"]}) == 1


def test_every_task_of_an_array_goes_back_at_its_time_limit_the_last_one_too(campaign):
    words = (*LONG, "runs=400", "seed=0,1", "cluster.timeout_min=1", "cluster.signal_delay_s=40")
    with campaign.under_way(*words, runs=1) as front:
        wait(lambda: len(campaign.records()) == 2)
        wait(lambda: not {"RUNNING", "COMPLETING"}.intersection(campaign.job_states()), 75)
        held = campaign.job_states()
        campaign("cancel")
        front.wait(240)

    assert held == ["PENDING", "PENDING"]


def test_a_preempted_job_comes_back_and_nothing_is_repeated(campaign, lab, tmp_path):
    with campaign.under_way(*LONG, runs=2) as front:
        lab.run(
            "sbatch", "-p", "high", "-N4", "--exclusive", f"--output={tmp_path}/o", "--job-name=x", "--wrap=sleep 3"
        )
        wait(lambda: campaign.job_states() == ["PENDING"])
        kept = len(campaign.measured())
        lab.release(f"{campaign.job()}_0")
        front.communicate(timeout=240)

    (recorded,) = campaign.records()
    assert front.returncode == 0
    assert kept >= 2
    campaign.assert_whole(39)
    assert [sitting["slurm"].get("SLURM_RESTART_COUNT") for sitting in recorded["sittings"]] == [None, "1"]


def test_a_lost_node_is_told_and_the_job_goes_on_elsewhere(campaign, lab):
    with campaign.under_way(*LONG, runs=2) as front:
        node = campaign.measured()[0]["node"]
        lab.cut_power(int(node[1:]))
        wait(lambda: campaign.job_states() == ["PENDING"])
        told = campaign.status()
        lab.release(f"{campaign.job()}_0")
        front.communicate(timeout=240)

    assert [status for status, _ in told.values()] == ["queued"]
    assert front.returncode == 0
    campaign.assert_whole(39)


def test_a_controller_that_lost_its_state_is_found_out_and_the_same_command_finishes(campaign, lab, tmp_path):
    with campaign.under_way(*LONG, runs=2) as front:
        job = campaign.job()
        lab.stop_controller()
        lab.start_controller(forget=True)
        while int(other := lab.run("sbatch", "--parsable", f"--output={tmp_path}/o", "--wrap=sleep 300")) < int(job):
            lab.run("scancel", other)
        told = front.communicate(timeout=240)[0]

    assert front.returncode == 1, told
    assert "LOST" in told
    assert campaign("cancel").returncode == 0
    assert lab.run("squeue", "-h", "-j", job, "-o", "%T") in ("RUNNING", "PENDING"), "another job has the id now"
    _finishes_whole(campaign)


def test_a_scheduler_that_does_not_answer_for_a_while_is_waited_out(campaign, lab):
    with campaign.under_way(*LONG, runs=2) as front:
        lab.silence("squeue")
        status = campaign.status()
        cancelled = campaign("cancel")
        kept = len(campaign.measured())
        wait(lambda: len(campaign.measured()) > kept)
        lab.unsilence("squeue")
        front.communicate(timeout=240)

    assert [reason for _, reason in status.values()] == [SILENCE]
    assert cancelled.returncode == 4
    assert front.returncode == 0
    campaign.assert_whole(39)


def test_while_the_controller_is_away_nothing_is_submitted_and_each_command_says_what_it_waits_for(campaign, lab):
    lab.stop_controller()

    done = campaign.go("runs=3")

    assert done.returncode == 4
    assert "waiting up to 10 s for Slurm's controller" in done.stderr
    assert "nothing was submitted" in done.stderr
    assert lab.calls("sbatch") == 0
    assert not (campaign.cwd / "results").exists()


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("threads=4", 2, "threads=4: partition debug gives a job at most 2 CPUs of a node"),
        ("threads=2 cluster.cpus_per_task=1 --dry-run", 2, "threads=2 with cluster.cpus_per_task=1"),
        ("cluster.mem_gb=9999 detach=true", 4, "Requested node configuration is not available"),
    ],
)
def test_a_job_that_no_node_can_run_is_refused_before_anything_is_made(campaign, words, code, why):
    done = campaign.go("runs=3", *words.split())

    assert done.returncode == code
    assert why in done.stderr
    assert campaign.job_states() == []
    assert [*campaign.cwd.iterdir()] == []


def test_a_job_of_a_cluster_whose_nodes_are_drained_waits_for_them(campaign, lab):
    lab.run("scontrol", "update", "nodename=n[1-4]", "state=drain", "reason=test")

    done = campaign.go("runs=3", "detach=true")

    assert done.returncode == 0, done.stderr
    assert "4 nodes of the partition cannot be used now" in done.stderr
    assert campaign.job_states() == ["PENDING"]


def test_nothing_is_submitted_on_an_answer_that_is_none(campaign, lab):
    with campaign.under_way(*LONG, runs=2):
        pass
    submitted = lab.calls("sbatch")
    lab.garble("squeue", "sacct")

    done = campaign.go(*LONG, "detach=true")
    cancelled = campaign("cancel")
    told = campaign.status()
    lab.unsilence()

    assert "the scheduler does not answer" in done.stderr
    assert [reason for _, reason in told.values()] == [SILENCE]
    assert (cancelled.returncode, lab.calls("sbatch")) == (4, submitted)
    assert campaign.job_states() == ["RUNNING"]


def test_what_was_refused_half_way_is_submitted_when_the_rest_is_over(campaign, lab, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    words = ("runs=3", f"storage.root={tmp_path}/a,{tmp_path}/b")
    lab.refuse_submissions(after=1)

    with campaign.under_way(*words) as front:
        wait(lambda: len(campaign.measured()) >= 1)
        lab.accept_submissions()
        told = front.communicate(timeout=240)[0]

    assert front.returncode == 0, told
    assert "the missing cells are submitted when the jobs of the other cells have ended" in told
    campaign.assert_whole(4)


def test_a_full_disk_is_waited_for_and_loses_nothing(lab, tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", room], check=True)
    try:
        campaign = Campaign(lab, room)
        (tmp_path / "data").mkdir()
        words = (*LONG, f"storage.root={tmp_path}/data")
        with campaign.under_way(*words, runs=2) as front:
            filler = room / "filler"
            subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], check=False, capture_output=True)
            warned = campaign("status").stderr
            kept = len(campaign.measured())
            told = next(line for line in front.stdout if "is full" in line)
            filler.unlink()
            front.communicate(timeout=240)
        campaign.assert_whole(39)
        (recorded,) = campaign.records()
    finally:
        subprocess.run(["umount", "-l", room], check=True)

    assert front.returncode == 0, told
    assert f"{room}/results is full" in warned
    assert f"{room}/results is full" in told
    assert kept < 39
    assert recorded["status"] == "done"
    assert {run["status"] for run in recorded["runs"]} <= {"valid", "invalid"}


def test_doctor_tries_the_very_script_and_sends_a_job(campaign):
    good = campaign("doctor", "cluster=slurm", "threads=1", "--json")
    bad = campaign("doctor", "cluster=slurm", "threads=1", "cluster.partition=nowhere", "--json")

    found = {finding["what"]: finding for finding in json.loads(good.stdout)}
    assert found["submission"]["passed"] is True
    assert found["nodes"]["passed"] is True, found["nodes"]
    refused = {finding["what"]: finding for finding in json.loads(bad.stdout)}
    assert bad.returncode == 3
    assert refused["submission"]["passed"] is False
    assert "nowhere" in refused["submission"]["message"]
    assert not list(campaign.cwd.glob(".tfio-doctor*"))


def test_memory_beyond_the_limit_is_told_by_the_accounting(accounting_lab, tmp_path):
    campaign = Campaign(accounting_lab, tmp_path)

    done = campaign.go(*LONG, "cluster.mem_gb=0.2")

    assert done.returncode == 1
    ((status, reason),) = campaign.status().values()
    assert status == "failed"
    assert re.search("FAILED|OUT_OF_MEMORY", reason)
    _finishes(campaign, "runs=3", "cluster.mem_gb=4")


def test_a_job_cancelled_while_nobody_looked_is_told_by_the_accounting(accounting_lab, tmp_path):
    campaign = Campaign(accounting_lab, tmp_path)
    campaign.go(*LONG, "seed=0,1", "detach=true")
    wait(lambda: "RUNNING" in campaign.job_states())
    accounting_lab.run("scancel", campaign.job())
    wait(lambda: set(campaign.job_states()) == {"CANCELLED"}, _TOLD_WITHIN_S)

    told = campaign.status()

    assert {status for status, _ in told.values()} == {"interrupted"}
    assert all("CANCELLED" in reason for _, reason in told.values())


_BY_A_JOB = ("site.make_data=job", "site.login_data_gb=0")


def _arrays(campaign):
    """The batches in the order of their submission: how many cells each task has, and how many data sets it makes."""
    lists = sorted(campaign.cwd.glob("results/workers/*/work-*.json"))
    works = [json.loads(path.read_text()) for path in lists]
    return [(len(work["cells"]), len(work.get("to_make", ()))) for work in works]


def test_too_much_data_for_a_login_node_are_made_by_a_job_that_the_others_wait_for(campaign):
    words = ("threads=1,2", "runs=3", *_BY_A_JOB)
    shown = campaign("--dry-run", "cluster=slurm", *words)
    done = _finishes(campaign, *words)

    assert "by a job before the other jobs" in shown.stderr
    assert shown.stdout.count("--dependency=afterok:JOB_ID_OF_ARRAY_1") == 1
    assert "making dataset" not in done.stderr
    assert list(campaign.cwd.glob("data/datasets/*/manifest.json"))
    assert _arrays(campaign) == [(0, 1), (1, 0), (1, 0)]
    assert campaign.job_states() == ["COMPLETED"] * 3
    assert {recorded["dataset"]["files"] for recorded in campaign.records()} == {24}
    assert "submitted 1 job that makes the data first" in done.stderr
    assert "nothing to run" in _finishes(campaign, *words).stderr


def test_where_the_job_that_makes_data_fails_the_others_do_not_wait_and_its_reason_is_said(campaign, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "datasets").write_text("in the way")

    done = campaign.go("runs=3", *_BY_A_JOB, f"storage.root={tmp_path}/data")

    assert done.returncode == 1
    assert "the data were not made: cannot make the dataset in" in done.stderr
    assert campaign.records() == []
    assert "interrupted" in campaign("status").stdout
    (tmp_path / "data" / "datasets").unlink()
    _finishes(campaign, "runs=3", *_BY_A_JOB, f"storage.root={tmp_path}/data")


def test_a_job_that_makes_data_is_cancelled_with_the_campaign(campaign, lab):
    words = ("runs=3", *_BY_A_JOB, "dataset.files=6000", "dataset.median_bytes=112000", "dataset.width=482",
             "dataset.height=415", "detach=true")  # fmt: skip
    started = campaign.go(*words)
    wait(lambda: list(campaign.cwd.glob("data/datasets/*/class_000")))
    batch = next(path.parent.name for path in campaign.cwd.glob("results/workers/*/work-0.json")
                 if "to_make" in path.read_text())  # fmt: skip

    assert started.returncode == 0, started.stderr
    assert campaign("cancel").returncode == 0
    assert {*campaign.job_states()} == {"CANCELLED"}
    assert batch.endswith("-0")
    assert "the data were not made: Slurm: CANCELLED" in campaign.go(*words).stderr
