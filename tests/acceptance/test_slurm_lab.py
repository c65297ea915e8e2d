"""Campaigns on a real Slurm (`tests/slurm/lab.py`), through everything that a cluster does to jobs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby, pairwise

import psutil
import pytest

from tests.acceptance import door
from tests.slurm import lab as laboratory
from tests.slurm.campaigns import LONG, WORDS, Campaign, interrupt, wait
from tests.slurm.toy import Toy

pytestmark = pytest.mark.long
TOLD_WITHIN_S = 400  # where other tests run beside these
LOOSE = "checks.time_error_max=1"  # a run takes a tenth of a second here, and beginning together a hundredth
NODES = ("nodes=2", "sync=barrier", "runs=20", "min_valid_runs=1", LOOSE)
OF_JOBS = tuple(word for word in WORDS if word.startswith(("cluster", "checks")))
SAVED = (
    "benchmark=alexnet", "benchmark.width=0.05", "benchmark.image_size=32", "accelerator=emulated", "batch_size=1",
    "iterations=24", "accelerator.step_s=0.05", "checkpoint.every=2", "runs=3",
)  # fmt: skip


@pytest.fixture(scope="session")
def labs():
    """Give a cluster of four nodes; one with accounting has a memory limit that kills, too."""

    def made(accounting):
        if reason := laboratory.missing(accounting=accounting):
            pytest.skip(reason)
        return stack.enter_context(laboratory.lab(nodes=4, cpus=2, accounting=accounting, memory_limit=accounting))

    with contextlib.ExitStack() as stack:
        yield cache(made)


@pytest.fixture
def lab(labs, request):
    """Give a cluster whose faults are mended and whose jobs are ended when the test is over."""
    cluster = labs(getattr(request, "param", False))
    yield cluster
    cluster.mend()


@pytest.fixture
def campaign(lab, tmp_path):
    return Campaign(lab, tmp_path)


def finishes(campaign, *words):
    """Give the same command, which brings the campaign to its end."""
    done = campaign.go(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def finishes_whole(campaign):
    """Give the same command, which measures what is missing, and nothing twice."""
    finishes(campaign, *LONG)
    campaign.assert_whole(39)


def one_after_the_other(campaign):
    ended = [run for run in campaign.runs() if run["status"] == "ended"]
    began = sorted((datetime.fromisoformat(run["started_utc"]), run["elapsed_s_with_fork"]) for run in ended)
    return all(start + timedelta(seconds=took) <= following for (start, took), (following, _) in pairwise(began))


def states(campaign):
    """Tell the states of all cells; one that is open goes by several names, and is 'not done'."""
    known = ("done", "running", "queued", "failed")
    return [state if state in known else "not done" for state, _ in campaign.status().values()]


def reason(campaign):
    ((_, told),) = campaign.status().values()
    return told


# What is run.


def plain(text, first):
    """Return the lines of a list with ids relative to a job's, without times, nodes and widths."""
    text = re.sub(r"\d{6,}", lambda found: f"+{int(found[0]) - int(first)}", text)
    return sorted(re.sub(r" +|\d:\d\d|n\d", " ", line).strip() for line in text.splitlines())


def test_the_toy_lists_jobs_as_slurm_does(lab, tmp_path):
    toy, told = Toy(tmp_path / "toy"), []
    toy.install()
    asks = (
        ["-h", "-r", "-o", "|".join(f"%{letter}" for letter in "FKTtijukPDCaqrRNE")], ["-o", "%.30i %.9P%2t|%10j %K"],
        [], ["-h", "-O", "JobArrayID:20,State:.12,Reason,Name:|"], ["-h", "--states=all", "--me", "-o", "%i %T"],
        ["-h", "--name=no"], ["-h", "-t", "R", "-o", "%i"], ["-ho", "%K %T"],
    )  # fmt: skip
    array = ("sbatch", "--parsable", "-a", "0-4%2", "-J", "one", "--comment=a b", "-o/dev/null", "--wrap=sleep 99")
    for run in (lab.run, toy.run):
        first = run(*array).strip()
        wait(lambda run=run: run("squeue", "-h", "-t", "R", "-o", "%i").strip().count("\n") == 1)
        run("sbatch", "-o", "/dev/null", "-d", f"afterok:{first}", "--wrap=true")
        run("sbatch", "--output=/dev/null", "--hold", "--wrap=true")
        run("scancel", f"{first}_3")
        told.append([plain(run("squeue", *ask), first) for ask in asks])
    toy.lose()

    assert told[1] == told[0]


def test_a_grid_runs_to_its_figures_and_each_job_had_the_storage_alone(campaign, lab):
    words = ("threads=1,2", "seed=0,1", "runs=3", "cluster.parallel=4", "cluster.prelude=['export A=b','test $A']")

    finishes(campaign, *words)

    assert list(campaign.cwd.glob("results/figures/*.png"))
    assert campaign.job_states() == ["COMPLETED"] * 4
    assert one_after_the_other(campaign)
    assert [len(record["runs"]) for record in campaign.records()] == [3] * 4
    submitted = lab.calls("sbatch")
    finishes(campaign, *words)
    assert lab.calls("sbatch") == submitted


def test_snapshots_of_a_job_are_drained_and_proved_and_those_of_a_cancelled_one_named_and_taken_away(campaign, lab):
    sides = [f"checkpoint.{name}.root={campaign.cwd}/{name}" for name in ("fast", "slow")]
    for name in ("fast", "slow"):
        (campaign.cwd / name).mkdir()
    words = (*SAVED, "checkpoint=burst_buffer", *sides, "threads=1,2", "cluster.parallel=2")
    with campaign.under_way(*words) as front:
        wait(lambda: list(campaign.cwd.glob("fast/checkpoints/*/0*")))
        lab.run("scancel", campaign.job())
        front.wait(TOLD_WITHIN_S)
        told = campaign("status").stderr.replace("\n", "")

    left = [str(path) for path in campaign.cwd.glob("*/checkpoints/*")]
    assert left == [path for path in left if path in told] != []
    finishes(campaign, *words)
    assert not [*campaign.cwd.glob("*/checkpoints/*")]
    saved = [run["checkpoints"] for run in campaign.measured()]
    assert [len(each) for each in saved] == [12] * 4
    assert all(line["durable_slow_s"] and line["verified"] for each in saved for line in each)
    assert one_after_the_other(campaign)  # the storages are one at a time's


@pytest.mark.parametrize("shared", ["true", "false"])
def test_data_of_a_node_and_baselines_are_made_in_jobs_and_judge_the_cells_of_their_node(campaign, tmp_path, shared):
    root = tmp_path / "storage"
    root.mkdir()
    words = ("benchmark=baseline,micro", f"storage.shared={shared}", f"storage.root={root}", "cluster.parallel=1")

    done = finishes(campaign, *words, "+size=smoke", "runs=3", "checks.peak_max=1000")

    assert ["images" in run for run in campaign.measured()].count(True) * 2 == len(campaign.measured()) == 4
    assert [*root.glob("datasets/*/manifest.json")]
    assert shared == "true" or "making" not in done.stderr  # data of a node are made by its job
    judged = [run for record in door.judged(campaign.cwd / "results") for run in record["runs"] if "images" in run]
    assert "below_peak" in {check["rule"] for run in judged for check in run["checks"]}


def test_data_too_large_for_a_login_node_are_made_by_a_job_that_the_others_wait_for_unless_it_fails(campaign):
    words = ("threads=1,2", "runs=3", "site.make_data=job", "site.login_data_gb=0", f"storage.root={campaign.cwd}/data")
    in_the_way = campaign.cwd / "data" / "datasets"
    in_the_way.parent.mkdir()
    in_the_way.write_text("")

    shown = campaign("--dry-run", "cluster=slurm", *words)
    failed = campaign.go(*words)

    assert len(re.findall("--dependency=.*afterok:", shown.stdout)) == 1
    assert (failed.returncode, str(in_the_way) in failed.stderr) == (1, True)
    assert (campaign.records(), states(campaign)) == ([], ["not done"] * 2)
    in_the_way.unlink()
    assert "making dataset" not in finishes(campaign, *words).stderr
    assert list(in_the_way.glob("*/manifest.json"))
    assert campaign.job_states()[-3:] == ["COMPLETED"] * 3
    assert [len(record["runs"]) for record in campaign.records()] == [3, 3]


def test_cells_of_one_and_two_nodes_are_jobs_of_as_many_and_every_rank_is_in_the_record(campaign):
    finishes(campaign, "nodes=1,2", "sync=barrier", "runs=3", LOOSE)

    (one, two) = sorted(campaign.records(), key=lambda each: each["cell"]["settings"].get("nodes", 1))
    assert "ranks" not in one["runs"][-1]
    for run in two["runs"]:
        assert [rank["node"] for rank in run["ranks"]] == ["n1", "n2"]
        assert [rank["figures"]["images"] for rank in run["ranks"]] == [12, 12]


def test_both_kinds_of_stall_are_one_job_and_take_turns_there(campaign):
    (campaign.cwd / "data").mkdir()
    for number in range(4):
        (campaign.cwd / "data" / f"{number}.bin").write_bytes(os.urandom(1 << 20))
    os.sync()

    done = campaign("stall", "--json", "--data", "data", *OF_JOBS, "--", "cat", *(f"data/{n}.bin" for n in range(4)))

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["programs"][0]["whole"]["pairs"] == 5
    runs = [(run, record["cell"]["page_cache"]) for record in campaign.records("stall") for run in record["runs"]]
    assert len({run["job"] for run, _ in runs}) == 1
    turns = [kind for _, kind in sorted((run["started_utc"], kind) for run, kind in runs)]
    assert turns[:2] == turns[3:1:-1]  # there and back


def test_feed_on_two_nodes_has_as_many_accelerators_on_each_and_the_worst_of_all_decides(campaign):
    (campaign.cwd / "data").mkdir()
    words = (
        f"storage={campaign.cwd}/data", "nodes=2", "accelerator=own", "accelerator.sample_bytes=20000",
        "accelerator.batch=2", "accelerator.step_s=0.2", "threads=1", "iterations=10", "benchmark.file_mb=20",
        "--most", "2", "--runs", "2", "--yes", "--json", *OF_JOBS, LOOSE,
    )  # fmt: skip

    done = campaign("feed", *words, timeout_s=800)

    assert done.returncode == 0, done.stdout + done.stderr
    (answer,) = json.loads(done.stdout)
    accelerators = {each["cell"]: each["accelerators"] for each in answer["probes"]}
    records = [record for record in campaign.records("feed") if record["cell"]["id"] in accelerators]
    assert (answer["nodes"], len(records) >= 2) == (2, True)
    for cell, run in ((record["cell"]["id"], run) for record in records for run in record["runs"]):
        shares = [row["au_percent"] for row in run["accelerators"]]
        assert [rank["node"] for rank in run["ranks"]] == ["n1", "n2"]
        assert (len(shares), min(shares)) == (2 * accelerators[cell], run["au_percent"])


# What is refused, and what is told.


REFUSED = {
    "threads=4": (2, "threads=4"),
    "threads=2 cluster.cpus_per_task=1 --dry-run": (2, "cluster.cpus_per_task"),
    "cluster.mem_gb=9999 detach=true": (4, "node configuration"),
    "cluster.partition=nowhere detach=true": (4, "nowhere|partition"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_job_that_no_node_can_run_is_refused_before_anything_is_made(campaign, words):
    done = campaign.go("runs=3", *words.split())

    code, named = REFUSED[words]
    assert (done.returncode, door.is_one_cure(done.stderr)) == (code, True)
    assert re.search(named, done.stderr)
    assert (campaign.job_states(), [*campaign.cwd.iterdir()]) == ([], [])


TOLD = {
    "cluster.partition=excl cluster.timeout_min=120 detach=true": (0, "PENDING", "queued", "cluster.timeout_min"),
    "+cluster.extra.hold=true detach=true": (0, "PENDING", "queued", "scontrol release [0-9]+"),
    "cluster.comment=drained detach=true": (0, "PENDING", "queued", "."),
    "cluster.modules=[nosuch] retries=2": (1, "FAILED", "failed", "module: command not found"),
}


@pytest.mark.parametrize("words", TOLD)
def test_why_a_job_does_not_start_or_could_not_begin_is_told_and_it_is_not_tried_again(campaign, lab, words):
    if "drained" in words:
        lab.run("scontrol", "update", "nodename=n[1-4]", "state=drain", "reason=test")

    done = campaign.go("runs=3", *words.split())

    *found, named = TOLD[words]
    assert [done.returncode, *campaign.job_states(), *states(campaign)] == found
    assert re.search(named, reason(campaign))
    assert done.returncode == 0 or named in done.stderr


def test_doctor_tries_the_very_script_and_sends_a_job(campaign):
    words = ("doctor", "cluster=slurm", "threads=1", "--json")
    good, bad = campaign(*words), campaign(*words, "cluster.partition=nowhere")

    found, refused = ({each["what"]: each for each in json.loads(done.stdout)} for done in (good, bad))
    assert (found["submission"]["passed"], found["nodes"]["passed"]) == (True, True), found["nodes"]
    assert (bad.returncode, refused["submission"]["passed"]) == (3, False)
    assert "nowhere" in refused["submission"]["message"]
    assert campaign.lab.run("squeue", "-h") == ""


def test_where_slurm_is_away_nothing_is_made(campaign, lab):
    lab.stop_controller()
    done = campaign.go("runs=3")

    assert (done.returncode, door.is_one_cure(done.stderr)) == (4, True)
    assert not (campaign.cwd / "results").exists()


@pytest.mark.parametrize("how", ["silence", "garble"])
def test_while_slurm_does_not_answer_nothing_is_submitted_or_cancelled_and_that_is_told(campaign, lab, how):
    campaign.go(*LONG, "detach=true")
    wait(lambda: len(campaign.measured()) > 0)
    submitted = lab.calls("sbatch")
    getattr(lab, how)("squeue", "sacct")
    done, told, before = campaign("cancel"), states(campaign), len(campaign.measured())
    campaign.go(*LONG, "detach=true")

    assert (done.returncode, door.is_one_cure(done.stderr), told[0] in ("running", "not done")) == (4, True, True)
    assert (lab.calls("sbatch"), campaign.job_states()) == (submitted, ["RUNNING"])
    wait(lambda: len(campaign.measured()) > before)
    lab.unsilence()
    finishes_whole(campaign)


# What happens to jobs.


def scancel(campaign):
    campaign.lab.run("scancel", campaign.job())


def kill_worker(campaign):
    campaign.worker().kill()


@pytest.mark.parametrize(
    ("end", "retries", "found"),
    [
        (scancel, 0, (1, ["CANCELLED"], ["not done"])), (kill_worker, 0, (1, ["FAILED"], ["failed"])),
        (kill_worker, 1, (0, ["FAILED", "COMPLETED"], ["done"])),
    ],
)  # fmt: skip
def test_a_job_that_is_ended_is_told_keeps_its_runs_and_the_same_command_finishes(campaign, end, retries, found):
    with campaign.under_way(*LONG, f"retries={retries}", runs=2) as front:
        end(campaign)
        told = front.communicate(timeout=TOLD_WITHIN_S)[0]

    assert (front.returncode, campaign.job_states(), states(campaign)) == found, told
    assert (len(campaign.measured()) >= 2, retries or found[1][0] in told) == (True, retries or True)
    finishes_whole(campaign)


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGKILL"])
def test_jobs_go_on_without_the_command_and_the_same_command_takes_them_up(campaign, lab, how):
    with campaign.under_way(*LONG, runs=2) as front:
        submitted = lab.calls("sbatch")
        interrupt(front) if how == "Ctrl-C" else front.kill()
        told = front.communicate()[0]

    assert front.returncode == (130 if how == "Ctrl-C" else -9), told
    assert campaign.job_states() == ["RUNNING"]
    watched = campaign("status", "--watch") if how == "Ctrl-C" else None
    finishes_whole(campaign)
    assert lab.calls("sbatch") == submitted
    assert watched is None or (watched.returncode, states(campaign)) == (0, ["done"])


def test_cancel_ends_what_is_ours_and_nothing_else_and_jobs_that_never_began_are_cancelled_too(campaign, lab, tmp_path):
    other = lab.run("sbatch", "--parsable", "--job-name=tfio-other", f"--output={tmp_path}/o", "--wrap=sleep 300")
    with campaign.under_way(*LONG, "batch_size=8,4,2", runs=1) as front:
        done = campaign("cancel")
        front.communicate(timeout=TOLD_WITHIN_S)

    assert done.returncode == 0, done.stderr
    wait(lambda: set(campaign.job_states()) >= {"CANCELLED"} >= set(campaign.job_states()))
    assert states(campaign) == ["not done"] * 3
    assert all("CANCELLED" in told for _, told in campaign.status().values())
    assert lab.run("squeue", "-h", "-j", other, "-o", "%T") in ("RUNNING", "PENDING")


PUT_BACK = {
    "by its user": lambda campaign: campaign.lab.run("scontrol", "requeue", f"{campaign.job()}_0"),
    "preempted": lambda campaign: campaign.lab.run(
        "sbatch", "-p", "high", "-N4", "--exclusive", "--output=/dev/null", "--wrap=sleep 3"
    ),
    "node lost": lambda campaign: campaign.lab.cut_power(int(campaign.measured()[0]["node"][1:])),
}


@pytest.mark.parametrize("words", [LONG, NODES], ids=["a node", "two nodes"])
@pytest.mark.parametrize("how", PUT_BACK)
def test_a_job_that_is_put_back_in_the_middle_comes_back_and_nothing_is_repeated(campaign, lab, how, words):
    with campaign.under_way(*words, runs=2) as front:
        PUT_BACK[how](campaign)
        is_held = words == LONG or how != "node lost"  # a job of two nodes goes on by itself
        wait(lambda: not is_held or campaign.job_states() == ["PENDING"], TOLD_WITHIN_S)
        told, kept = states(campaign), len(campaign.measured())
        wait(lambda: lab.run("squeue", "-h", "-p", "high") == "")
        if is_held:
            lab.release(f"{campaign.job()}_0")
        said = front.communicate(timeout=TOLD_WITHIN_S)[0]

    assert front.returncode == 0, said
    assert told == ["queued"] or how == "node lost"
    assert kept >= 2
    campaign.assert_whole(39 if words == LONG else 19)
    assert len({run["token"] for run in campaign.measured()}) == 1


def test_every_task_of_an_array_goes_back_at_its_time_limit_the_last_one_too(campaign, lab):
    words = (*LONG, "runs=400", "seed=0,1", "cluster.timeout_min=1", "cluster.signal_delay_s=40")
    with campaign.under_way(*words, runs=1) as front:
        wait(lambda: len(campaign.records()) == 2)
        wait(lambda: not {"RUNNING", "COMPLETING"}.intersection(campaign.job_states()))
        held, told, kept = campaign.job_states(), states(campaign), len(campaign.measured())
        lab.release(f"{campaign.job()}_0")
        wait(lambda: len(campaign.measured()) > kept)
        campaign("cancel")
        front.wait(TOLD_WITHIN_S)

    assert (held, told) == (["PENDING", "PENDING"], ["queued", "queued"])
    for record in campaign.records():
        assert [run["run"] for run in record["runs"]] == [*range(len(record["runs"]))]
        assert {run["end"]["code"] for run in record["runs"] if run["status"] == "failed"} <= {"time_is_up", "stopped"}


def test_a_worker_whose_node_fell_silent_leaves_its_cell_to_the_one_that_slurm_began_elsewhere(campaign, lab):
    with campaign.under_way(*LONG, "runs=1000", "cluster.timeout_min=60", runs=2) as front:
        first, node = campaign.worker().pid, campaign.measured()[0]["node"]
        lab.kill_node(int(node[1:]))
        wait(lambda: campaign.job_states() == ["PENDING"])
        lived = laboratory.alive(first)
        lab.release(f"{campaign.job()}_0")
        wait(lambda: not laboratory.alive(first), TOLD_WITHIN_S)
        left = campaign.job_states()
        wait(lambda: campaign.measured()[-1]["node"] != node, TOLD_WITHIN_S)
        campaign("cancel")
        front.communicate(timeout=TOLD_WITHIN_S)

    (record,) = campaign.records()
    assert (lived, left) == (True, ["RUNNING"]), "the first worker ended by itself, and not the other one's job with it"
    assert [run["run"] for run in record["runs"]] == [*range(len(record["runs"]))]
    where = [place for place, _ in groupby(run["node"] for run in record["runs"])]
    assert where[0] == node
    assert node not in where[1:], "what it measured after the other one began is not in the record"


def test_a_controller_that_lost_its_state_is_found_out_and_the_same_command_finishes(campaign, lab, tmp_path):
    with campaign.under_way(*LONG, runs=2) as front:
        job = campaign.job()
        lab.stop_controller()
        lab.start_controller(forget=True)
        while int(other := lab.run("sbatch", "--parsable", f"--output={tmp_path}/o", "--wrap=sleep 300")) < int(job):
            lab.run("scancel", other)
        told = front.communicate(timeout=TOLD_WITHIN_S)[0]

    assert (front.returncode, states(campaign)) != (0, ["done"]), told
    assert campaign("cancel").returncode == 0
    assert lab.run("squeue", "-h", "-j", job, "-o", "%T") in ("RUNNING", "PENDING"), "another job has the id now"
    finishes_whole(campaign)


def test_a_full_disk_is_waited_for_and_loses_nothing(lab, tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    (tmp_path / "data").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", room], check=True)
    try:
        campaign = Campaign(lab, room)
        with campaign.under_way(*LONG, f"storage.root={tmp_path}/data", runs=2) as front:
            subprocess.run(["dd", "if=/dev/zero", f"of={room}/filler", "bs=4k"], check=False, capture_output=True)
            warned = campaign("status").stderr
            told = next(line for line in front.stdout if f"{room}/results" in line and "full" in line)
            kept = len(campaign.measured())
            (room / "filler").unlink()
            front.communicate(timeout=TOLD_WITHIN_S)
        campaign.assert_whole(39)
        failed = [run for run in campaign.runs() if run["status"] == "failed"]
    finally:
        subprocess.run(["umount", "-l", room], check=True)

    assert (front.returncode, failed) == (0, []), told
    assert f"{room}/results" in warned
    assert kept < 39


# Ranks.


def kill_a_run(campaign):
    """Kill the run of the second rank that is under way; say whether there was one."""
    with contextlib.suppress(psutil.Error):
        for process in campaign.ranks(1):
            if "jobs.fork_server" in process.cmdline() and (runs := process.children()):
                runs[0].kill()
                return True
    return False


def test_a_rank_that_is_killed_fails_its_run_and_the_next_one_goes_well(campaign):
    with campaign.under_way(*NODES, runs=1) as front:
        wait(lambda: kill_a_run(campaign))
        front.communicate(timeout=TOLD_WITHIN_S)

    ends = [run["end"] for run in campaign.runs() if run["status"] == "failed"]
    assert [(end["number"], end["rank"]) for end in ends] == [(9, 1)]
    assert (states(campaign), campaign.runs()[-1]["status"]) == (["done"], "ended")


def test_a_job_that_loses_the_worker_of_a_rank_goes_back_and_names_it(campaign, lab):
    with campaign.under_way(*NODES, runs=1) as front:
        campaign.worker(1).kill()
        wait(lambda: campaign.job_states() == ["PENDING"], TOLD_WITHIN_S)
        ends = [json.dumps(run["end"]) for run in campaign.runs() if run["status"] == "failed"]
        lab.release(f"{campaign.job()}_0")
        told = front.communicate(timeout=TOLD_WITHIN_S)[0]

    assert front.returncode == 0, told
    assert all("rank 1" in end for end in ends)
    campaign.assert_whole(19)


@pytest.mark.parametrize("lab", [True], indirect=True, ids=["accounting"])
def test_an_end_that_nobody_saw_is_told_by_the_accounting(campaign, lab):
    done = campaign.go(*LONG, "cluster.mem_gb=0.2")
    assert (done.returncode, states(campaign)) == (1, ["failed"])
    assert re.search("FAILED|OUT_OF_MEMORY", reason(campaign))
    campaign.go(*LONG, "cluster.mem_gb=4", "detach=true")
    wait(lambda: campaign.job_states()[-1] == "RUNNING")
    lab.run("scancel", campaign.job())
    wait(lambda: campaign.job_states()[-1] == "CANCELLED")

    assert (states(campaign), "CANCELLED" in reason(campaign)) == (["not done"], True)
