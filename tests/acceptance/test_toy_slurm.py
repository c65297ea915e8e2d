"""A campaign on Slurm, as its user and Slurm see it: on a toy that runs jobs here (`tests/slurm/toy.py`)."""

from __future__ import annotations

import re
from functools import partial

import pytest

from tests.acceptance import door
from tests.slurm.toy import Toy

RUNS = 4  # the first is not measured


class Campaign:
    """A program of the user's own as a campaign on Slurm; its third run of each job waits for `open`."""

    def __init__(self, folder, cli, start):
        self.toy, self.folder, self.results = Toy(folder / "toy"), folder, folder / "results"
        path = self.toy.install()
        self.cli, self.starter = partial(cli, PATH=path), partial(start, PATH=path)
        (folder / "data").mkdir()
        (folder / "data" / "a").write_bytes(bytes(100_000))
        wait = f"until [ -e {folder}/open ]; do sleep 0.05; done"
        program = f"cat {{data}}/a; echo >> log-{{threads}}; [ $(wc -l < log-{{threads}}) -lt 3 ] || {wait}"
        self.words = (
            "cluster=slurm", "benchmark=command", f'benchmark.argv=[sh,-c,"{program}"]', "dataset=folder",
            f"dataset.path={folder}/data", "threads=1", f"runs={RUNS}", "min_valid_runs=1", *door.SHARED,
            "checks.time_error_max=1",
        )  # fmt: skip

    def go(self, *words):
        return self.cli(*self.words, *words)

    def start(self, *words):
        """Start the command, and come back when a run of each cell has been measured and the next one is under way."""
        front = self.starter(*self.words, *words)
        self.wait_for_the_middle()
        return front

    def wait_for_the_middle(self, runs=3):
        """Wait until so many runs of each cell have begun, the last of which waits."""
        door.wait(lambda: self.begun() and set(self.begun()) == {runs}, 60)

    def begun(self):
        return [len(log.read_text().splitlines()) for log in self.folder.glob("log-*")]

    def open(self):
        (self.folder / "open").touch()

    def measured(self):
        """Tell the numbers of the runs that were measured to their end."""
        runs = [run for record in door.records(self.results) for run in record["runs"]]
        return [run["run"] for run in runs if run["role"] == "measured" and run["status"] == "ended"]

    def status(self):
        return self.cli("status", self.results, "--json").json["cells"]

    def states(self):
        """Ask for the states of all cells; one that is open goes by several names, and is 'not done'."""
        known = ("done", "running", "queued", "failed")
        return [each["status"] if each["status"] in known else "not done" for each in self.status().values()]


@pytest.fixture
def campaign(tmp_path, cli, start):
    made = Campaign(tmp_path, cli, start)
    yield made
    made.toy.lose()


def test_a_grid_runs_to_its_figures_a_job_for_each_cell_and_the_same_command_submits_nothing_more(campaign):
    campaign.open()

    done = campaign.go("-m", "threads=1,2", "cluster.timeout_min=7", "cluster.parallel=2", "cluster.comment=mine")

    assert done.code == 0, done.err
    jobs = campaign.toy.tasks()
    assert [(job["state"], job["index"], job["options"]["time"]) for job in jobs] == [
        ("COMPLETED", 0, "7"), ("COMPLETED", 1, "7"),
    ]  # fmt: skip
    assert {job["options"]["comment"] for job in jobs} == {"mine"}
    assert sorted(door.table(campaign.results, "medians")["threads"]) == [1, 2]
    assert campaign.measured() == [1, 2, 3, 1, 2, 3]
    assert {run["job"] for record in door.records(campaign.results) for run in record["runs"]} == {
        job["job"] for job in jobs
    }
    assert campaign.go("-m", "threads=1,2").code == 0
    assert (campaign.toy.submitted(), campaign.states()) == (1, ["done", "done"])


def test_the_cost_is_said_and_above_the_site_s_limit_refused_where_nobody_can_be_asked(campaign):
    words = "cluster=auto", "-m", "threads=1,2", "cluster.timeout_min=90", "site.ask_above_node_hours=2"
    campaign.open()

    shown, refused = campaign.go(*words, "--dry-run"), campaign.go(*words)

    assert (shown.code, refused.code) == (0, 2)
    assert all("3.0 node-hours" in done.err for done in (shown, refused))  # two jobs of an hour and a half
    assert "#SBATCH --time=90" in shown.out.splitlines()
    assert "--yes" in refused.err
    assert door.is_one_cure(refused.err)
    assert campaign.toy.submitted() == 0
    assert not campaign.results.exists()
    assert campaign.go(*words, "--yes", "detach=true").code == 0
    assert (campaign.toy.submitted(), len(campaign.toy.tasks())) == (1, 2)


def test_a_command_that_detaches_or_is_interrupted_leaves_its_jobs_and_the_same_command_follows_them(campaign):
    left = campaign.go("detach=true")
    campaign.wait_for_the_middle()
    running = campaign.states()
    again = campaign.go("detach=true")
    front = campaign.starter(*campaign.words)
    door.wait(lambda: re.search("follow", front.stderr.readline()), 60)
    door.interrupt(front)
    interrupted = door.end(front)
    jobs = campaign.toy.states()
    campaign.open()
    done = campaign.go()

    assert (left.code, running, again.code) == (0, ["running"], 0), again.err
    assert (interrupted.code, jobs, done.code) == (130, ["RUNNING"], 0), done.err
    assert (campaign.toy.submitted(), campaign.toy.states()) == (1, ["COMPLETED"])
    assert campaign.measured() == [1, 2, 3]


def test_cancel_ends_the_jobs_of_this_campaign_alone_and_keeps_their_runs(campaign):
    other = campaign.toy.run("sbatch", "--job-name=tfio-other", "--output=/dev/null", "--wrap=sleep 600")
    front = campaign.start("-m", "threads=1,2", "cluster.parallel=1")
    ours = campaign.toy.states()

    waiting = next(cell for cell, each in campaign.status().items() if each["status"] == "queued")
    one = campaign.cli("cancel", waiting, campaign.results)
    after_one = campaign.toy.states()
    cancelled, told = campaign.cli("cancel", campaign.results), door.end(front)

    assert other.startswith("Submitted")
    assert ours == ["RUNNING", "RUNNING", "PENDING"]
    assert (one.code, after_one[1:].count("CANCELLED"), after_one[1:].count("RUNNING")) == (0, 1, 1), one.err
    assert (cancelled.code, told.code) == (0, 1), cancelled.err + told.err
    assert campaign.toy.states() == ["RUNNING", "CANCELLED", "CANCELLED"]
    assert campaign.measured() == [1]
    assert campaign.states() == ["not done", "not done"]
    assert not any("log-" in " ".join(each.cmdline()) for each in door.processes_in(campaign.folder))
    again = campaign.cli("cancel", campaign.results)
    assert (again.code, campaign.toy.states()[0]) == (0, "RUNNING")
    campaign.open()
    assert campaign.go("-m", "threads=1,2").code == 0
    assert len(campaign.measured()) == 2 * (RUNS - 1)


def test_a_job_whose_time_is_up_goes_on_in_the_queue_as_often_as_was_asked_and_repeats_nothing(campaign):
    front = campaign.start("cluster.max_requeues=1")
    campaign.toy.time_is_up()
    campaign.wait_for_the_middle(4)
    restarts = [task["restarts"] for task in campaign.toy.tasks()]
    campaign.toy.time_is_up()
    done = door.end(front)
    jobs, states, kept = campaign.toy.states(), campaign.states(), campaign.measured()
    campaign.open()
    again = campaign.go()

    assert (restarts, done.code, jobs, states, kept) == ([1], 1, ["FAILED"], ["failed"], [1])
    assert "cluster.timeout_min" in done.err
    assert again.code == 0, again.err
    assert campaign.toy.submitted() == 2
    assert (campaign.measured()[0], len(campaign.measured())) == (1, RUNS - 1)


def test_a_job_that_slurm_lost_is_told_and_the_same_command_measures_what_is_missing(campaign):
    front = campaign.start()

    campaign.toy.lose()
    done = door.end(front)
    states = campaign.states()
    campaign.open()
    again = campaign.go()

    assert done.code == 1
    (record,) = door.records(campaign.results)
    assert record["cell"]["id"] in done.err
    assert states != ["done"]
    assert again.code == 0, again.err
    assert (campaign.toy.submitted(), campaign.states()) == (2, ["done"])
    assert (campaign.measured()[0], len(campaign.measured())) == (1, RUNS - 1)
