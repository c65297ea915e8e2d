"""Cells on several nodes of a real Slurm: one record with every rank, and through what clusters do to one of them."""

import contextlib
import socket
import subprocess
import sys

import psutil
import pytest

from jobs.model.codes import run_end_sentence
from tests.slurm.campaigns import WORDS, wait

pytestmark = pytest.mark.long
LOOSE = "checks.time_error_max=1"  # a run takes a tenth of a second here, and beginning together a hundredth
# So many runs that a job is met half way, also where a look at it takes seconds.
NODES = ("nodes=2", "sync=barrier", "runs=20", "min_valid_runs=1", LOOSE)
_TOLD_WITHIN_S = 400  # where other tests run beside these
# Of Python, before anything else: the second rank never comes.
_NEVER = "import os, time\nif os.environ.get('SLURM_PROCID') == '1':\n    time.sleep(600)\n"


def go(campaign, *words):
    return campaign(*WORDS, *words, timeout_s=_TOLD_WITHIN_S)


def second_rank(campaign, words):
    """The processes of the second rank whose command line has these words, and what is known of them."""
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            own, line = process.environ(), " ".join(process.info["cmdline"] or [])
            if own.get("SLURM_PROCID") == "1" and own.get("SLURM_ARRAY_JOB_ID") == campaign.job() and words in line:
                yield process


def kill_run(campaign):
    """Kill the run of the second rank that is under way; whether there was one."""
    for process in second_rank(campaign, "jobs.fork_server"):
        with contextlib.suppress(psutil.Error):
            for run in process.children():
                run.kill()
                return True
    return False


def runs(campaign):
    return [run for recorded in campaign.records() for run in recorded["runs"]]


def finishes(campaign):
    done = go(campaign, *NODES)
    assert done.returncode == 0, done.stdout + done.stderr
    campaign.assert_whole(19)


@contextlib.contextmanager
def begun(campaign):
    with campaign.under_way(*NODES) as front:
        wait(lambda: len(campaign.measured()) >= 1, _TOLD_WITHIN_S)
        yield front


def test_cells_of_one_and_two_nodes_are_jobs_of_as_many_and_every_rank_is_in_the_record(campaign):
    done = go(campaign, "nodes=1,2", "sync=barrier", "runs=3", LOOSE)

    assert done.returncode == 0, done.stdout + done.stderr
    (one, two) = sorted(campaign.records(), key=lambda each: each["cell"]["settings"].get("nodes", 1))
    assert "ranks" not in one["runs"][-1]
    for run in two["runs"]:
        assert [rank["node"] for rank in run["ranks"]] == ["n1", "n2"]
        assert [rank["figures"]["images"] for rank in run["ranks"]] == [12, 12]
        assert run["private_caches"] == 0  # these nodes are one machine
    scripts = [path.read_text() for path in campaign.cwd.glob("results/workers/*/job.sh")]
    assert sorted(line for text in scripts for line in text.splitlines() if "--nodes" in line) == [
        "#SBATCH --nodes=1", "#SBATCH --nodes=2",
    ]  # fmt: skip


def test_a_rank_that_is_killed_fails_its_run_and_the_next_one_goes_well(campaign):
    with begun(campaign) as front:
        wait(lambda: kill_run(campaign), _TOLD_WITHIN_S)
        front.communicate(timeout=_TOLD_WITHIN_S)

    (recorded,) = campaign.records()
    ends = [run["end"] for run in recorded["runs"] if run["status"] == "failed"]
    assert ends == [{"code": "killed", "number": 9, "rank": 1}]
    assert (recorded["status"], recorded["runs"][-1]["status"]) == ("done", "valid")


@pytest.mark.parametrize("lost", ["its worker", "its node"])
def test_a_job_that_loses_a_rank_goes_back_and_nothing_is_repeated(campaign, lab, lost):
    with begun(campaign) as front:
        if lost == "its node":
            lab.cut_power(2)
        else:
            next(second_rank(campaign, "campaign.worker")).kill()
        wait(lambda: any(run["status"] == "failed" for run in runs(campaign)), _TOLD_WITHIN_S)
        kept = len(campaign.measured())
        if lost == "its worker":  # one that was lost with its node begins again by itself
            wait(lambda: campaign.job_states() == ["PENDING"], _TOLD_WITHIN_S)
            lab.release(f"{campaign.job()}_0")
        told = front.communicate(timeout=_TOLD_WITHIN_S)[0]

    assert front.returncode == 0, told
    (why,) = {run_end_sentence(run["end"]) for run in runs(campaign) if run["status"] == "failed"}
    assert why.startswith("interrupted: rank 1 on n2 is lost: ")
    campaign.assert_whole(19)
    assert kept >= 1


def test_a_rank_that_never_starts_ends_the_job_in_bounded_time_and_is_named(campaign, tmp_path):
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "sitecustomize.py").write_text(_NEVER)

    done = go(campaign, *NODES, "ranks_timeout_s=15", f"cluster.prelude=['export PYTHONPATH={tmp_path}/late']")

    assert done.returncode == 1
    ((_, reason),) = campaign.status().values()
    assert "rank 1 of the job did not come within 15 s" in reason
    wait(lambda: campaign.job_states() == ["FAILED"], _TOLD_WITHIN_S)
    finishes(campaign)


@pytest.mark.parametrize("by", ["its user", "a job of a higher priority"])
def test_a_job_that_is_put_back_in_the_middle_comes_back_with_all_its_ranks(campaign, lab, by):
    with begun(campaign) as front:
        if by == "its user":
            lab.run("scontrol", "requeue", f"{campaign.job()}_0")
        else:
            lab.run("sbatch", "--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
        wait(lambda: campaign.job_states() == ["PENDING"], _TOLD_WITHIN_S)
        kept = len(campaign.measured())
        if by != "its user":
            wait(lambda: lab.run("squeue", "-h", "-p", "high", "-o", "%T") == "RUNNING", _TOLD_WITHIN_S)
            lab.run("scancel", "--partition=high")
        lab.release(f"{campaign.job()}_0")
        told = front.communicate(timeout=_TOLD_WITHIN_S)[0]

    assert front.returncode == 0, told
    campaign.assert_whole(19)
    assert kept >= 1


def listeners(campaign):
    """The addresses at which the first rank's worker listens."""
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            own, line = process.environ(), " ".join(process.info["cmdline"] or [])
            here = process.cwd().startswith(str(campaign.cwd)) and own.get("SLURM_PROCID") == "0"
            if here and "campaign.worker" in line and not line.startswith("srun"):  # which listens, too
                found = process.net_connections("tcp")
                yield from (tuple(each.laddr) for each in found if each.status == psutil.CONN_LISTEN)


def test_gradients_are_added_up_at_the_hub_while_silent_strangers_hold_the_leader_s_port(campaign, tmp_path):
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "sitecustomize.py").write_text(_NEVER.replace("600", "10"))
    words = (
        "cluster=slurm", "cluster.timeout_min=5", "benchmark=hepcnn", "dataset=hep", "dataset.train_files=4",
        "dataset.validation_files=4", "dataset.samples=4", "dataset.image_size=64", "batch_size=2", "iterations=3",
        "benchmark.width=0.05", "benchmark.epochs=1", "nodes=2", "sync=allreduce", "runs=1", "warmup_runs=0",
        "min_valid_runs=1", "wait_quiet_s=null", "checks.other_cpu_max=1000", "checks.other_device_max=1", LOOSE,
        "checks.stolen_max=1000", "checks.delayed_max=1",
        f"cluster.prelude=['export PYTHONPATH={tmp_path}/late']",
    )  # fmt: skip
    strangers = []

    with subprocess.Popen(
        [sys.executable, "-m", "campaign", *words], cwd=campaign.cwd, env=campaign.lab.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as front:  # fmt: skip
        wait(lambda: [*listeners(campaign)], _TOLD_WITHIN_S)
        (place,) = {*listeners(campaign)}
        strangers += [socket.create_connection(place) for _ in range(9)]
        text = front.communicate(timeout=_TOLD_WITHIN_S)[0]

    assert front.returncode == 0, text
    (recorded,) = campaign.records()
    (run,) = recorded["runs"]
    assert [rank["node"] for rank in run["ranks"]] == ["n1", "n2"]
    assert place[0] not in ("0.0.0.0", "::")  # noqa: S104
    for each in strangers:
        each.close()
