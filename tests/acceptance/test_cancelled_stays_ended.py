"""What was ended on purpose, or has failed, stays so until somebody asks again: on a toy Slurm (`toy_slurm.py`)."""

from __future__ import annotations

import re

import pytest

from tests.acceptance import door
from tests.acceptance.test_toy_slurm import RUNS, Campaign


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
    jobs, cells = campaign.toy.states(), campaign.states()
    campaign.open()
    again = campaign.go(*grid)

    assert (done.code, jobs, cells) == (1, ["CANCELLED"] * 2, ["not done"] * 2), done.err
    assert (again.code, campaign.toy.submitted(), campaign.states()) == (0, 2, ["done"] * 2), again.err
    assert len(campaign.measured()) == 2 * (RUNS - 1)


def test_a_command_that_follows_a_job_does_not_submit_it_again_when_it_fails(campaign):
    fails = f'cluster.prelude=["until [ -e {campaign.folder}/open ]; do sleep 0.05; done","false"]'
    campaign.go(fails, "detach=true")
    front = follow(campaign, fails)

    campaign.open()
    done = door.end(front)
    jobs = campaign.toy.states()
    again = campaign.go()

    assert (done.code, jobs) == (1, ["FAILED"]), done.err
    assert (again.code, campaign.toy.submitted(), campaign.states()) == (0, 2, ["done"]), again.err
