"""What was ended on purpose, or has failed, stays so until somebody asks again, and is told by its true reason."""

from __future__ import annotations

import re

import pytest

from tests.acceptance import door
from tests.acceptance.test_toy_slurm import Campaign

pytestmark = pytest.mark.long


@pytest.fixture
def campaign(tmp_path, cli, start):
    made = Campaign(tmp_path, cli, start)
    yield made
    made.toy.lose()


def follow(campaign, *words):
    """Give the command again while its jobs live; come back when it follows them."""
    front = campaign.starter(*campaign.words, *words)
    door.wait(lambda: re.search("follow", front.stderr.readline()), 60)
    return front


@pytest.mark.parametrize(("by", "sure"), [("scancel", ()), ("cancel", ("--yes",))])
def test_a_command_that_follows_jobs_does_not_submit_again_what_is_cancelled(by, sure, campaign):
    grid = "-m", "threads=1,2", "cluster.parallel=1"  # the second job waits
    campaign.go(*grid, "detach=true")
    campaign.wait_for_the_middle()
    front = follow(campaign, *grid, *sure)

    if by == "cancel":
        campaign.cli("cancel", campaign.results)
    else:
        campaign.toy.run("scancel", campaign.toy.tasks()[0]["array"])
    done = door.end(front)
    jobs = campaign.toy.states()

    assert (done.code, jobs, campaign.states()) == (1, ["CANCELLED"] * 2, ["not done"] * 2), done.err
    assert campaign.go(*grid, "detach=true").code == 0
    assert campaign.toy.submitted() == 2


def test_a_command_that_follows_a_job_does_not_submit_it_again_when_it_fails(campaign):
    fails = f'cluster.prelude=["until [ -e {campaign.folder}/open ]; do sleep 0.05; done","false"]'
    campaign.go(fails, "detach=true")
    front = follow(campaign, fails)

    campaign.open()
    done = door.end(front)

    assert (done.code, campaign.toy.states()) == (1, ["FAILED"]), done.err
    assert (campaign.go().code, campaign.toy.submitted(), campaign.states()) == (0, 2, ["done"])


def test_a_job_that_slurm_forgot_is_told_by_the_last_line_of_its_log(campaign):
    campaign.go("detach=true", 'cluster.prelude=["echo nosuch: command not found >&2","sleep 600"]')
    door.wait(lambda: any(path.stat().st_size for path in campaign.results.glob("workers/*/*_log.err")), 60)

    campaign.toy.lose()

    (cell,) = campaign.status().values()
    assert "nosuch: command not found" in cell["reason"]
    assert not re.search("cancelled|moved", cell["reason"])


def test_a_job_that_left_no_log_on_its_node_asks_whether_the_folder_is_visible_there(campaign):
    campaign.go("detach=true", 'cluster.prelude=["false"]')
    door.wait(lambda: campaign.toy.states() == ["FAILED"], 60)

    for log in campaign.results.glob("workers/*/*_log.*"):
        log.unlink()

    (cell,) = campaign.status().values()
    assert re.search(f"{campaign.results}/workers/.* visible on n1", cell["reason"])


def test_a_job_that_was_refused_on_a_full_disk_is_not_looked_for(campaign, small_disk):
    real = (sbatch := campaign.toy.home / "bin" / "sbatch").read_text()
    refuse = f"cat /dev/zero > {small_disk}/zeros; echo sbatch: error: refused >&2; exit 1"
    sbatch.write_text(real.replace("exec", f"case $1 in --*) ;; *) {refuse};; esac; exec"))
    words = f"campaign_dir={small_disk}/results", "detach=true"

    refused = campaign.go(*words)
    (small_disk / "zeros").unlink()
    (cell,) = door.status(small_disk / "results").values()
    sbatch.write_text(real)

    assert (refused.code, door.is_one_cure(refused.err)) == (4, True), refused.err
    assert (cell["status"], cell["reason"]) == ("planned", None)
    assert (campaign.go(*words).code, campaign.toy.submitted()) == (0, 1)


def test_cells_that_fail_on_one_node_are_told_in_one_line_with_what_excludes_it_and_status_shows_them_first(campaign):
    many = ",".join(map(str, range(1, 46)))
    words = "-m", f"threads={many}", "cluster.cpus_per_task=1", "cluster.oversubscribe=true", "--yes"
    prelude = 'cluster.prelude=["[ $SLURM_ARRAY_TASK_ID -gt 3 ] || exit 3","sleep 600"]'
    front = campaign.starter(*campaign.words, *words, prelude)
    door.wait(lambda: campaign.toy.states().count("FAILED") == 4, 60)

    shown = campaign.cli("status", campaign.results).out.splitlines()
    campaign.cli("cancel", campaign.results)
    told = [line for line in door.end(front).err.splitlines() if "+cluster.extra.exclude=n1" in line]

    assert (["failed" in line for line in shown[1:6]], len(shown)) == ([True] * 4 + [False], 42)
    assert ["and 3 more" in line for line in told] == [True]
