"""What a start on the cluster submits, and what it leaves alone; the handing over itself is a list here.

What the cluster would refuse or never start is found by what Slurm says of its partitions, and by sbatch's test.
"""

import contextlib
import copy
import dataclasses

import pytest

from campaign.cells import cell_plan
from campaign.cells.folder import open_existing
from campaign.cluster import fleet, slurm, submission
from campaign.cluster.submission import Array
from campaign.config.collect import make_cells
from campaign.errors import CampaignError, EnvironmentFaultError, SchedulerError, UsageError
from campaign.slurm import scheduler
from campaign.storage import datasets
from campaign.worker.batch import CampaignCall, read_batches
from jobs.system.files import write_json
from tests.campaign.on_disk import leave_batch, leave_record, squeue_line
from tests.campaign.work_lists import grid, slurm_conduct

EARLIER, NOW = "2026-11-20T09:00:00.000Z", "2026-11-21T09:00:00.000Z"
SHORT = {"runs": 3, "warmup_runs": 1, "min_valid_runs": 2}


class Scene:
    """Two cells on two storages, and a Slurm that takes arrays, but for those whose number is in `refuses`.

    What it took is done when it is followed.
    """

    def __init__(self, folder, points, programs):
        self.folder, self.programs = folder, programs
        self.cells, self.conduct = make_cells(points)
        self.one, self.other = (cell.id for cell in self.cells)
        self.asked, self.refuses, self.said, self.prepared = [], (), [], []

    def request(self, words=(), **conduct):
        return CampaignCall(self.folder, {**slurm_conduct(self.conduct), **SHORT, **conduct}, "0a1b2c3d", NOW, words)

    def go(self, *, sure=True, **conduct):
        request = self.request(**conduct)
        return slurm.run_campaign_on_slurm(
            cell_plan.make_plan(self.cells, request.conduct, self.folder), request, sure=sure
        )

    def preview(self, *words):
        request = self.request(words)
        return [
            entry.cell.id
            for entry in slurm.preview_submission(
                cell_plan.make_plan(self.cells, request.conduct, self.folder), request
            )
        ]

    def recorded(self, status="done", token="before", cells=None):
        """Write the records of the cells."""
        for cell in self.cells:
            if cells is None or cell.id in cells:
                leave_record(self.folder, cell, status=status, token=token)

    def earlier(self, state=None):
        """Write a batch of an earlier start that has the first cell; what the controller says of it, or nothing."""
        made = leave_batch(self.folder, "earlier-0", [[self.one]], utc=EARLIER)
        if state:
            self.programs.answer("squeue", squeue_line(made, 0, state, node="n1"))

    def submit(self, array):
        self.asked.append([entry.cell.id for task in array.tasks for entry in task])
        batch = array.make_batch()
        if len(self.asked) in self.refuses:
            dataclasses.replace(batch, refused="limit").save()
            raise SchedulerError("sbatch refused 1 job: limit")
        batch.save()
        return batch

    def follow(self, _folder, workers):
        for key in list(workers.open):
            batch = workers.batch(key)
            self.recorded("done", batch.token, batch.cells[key[1]])
            workers.close_finished([key])


@pytest.fixture
def scene(folder, point, programs, clock, monkeypatch):
    points = [copy.deepcopy(point) for _ in range(2)]
    points[1]["storage"]["root"] = "/elsewhere"
    scene = Scene(folder, points, programs)
    programs.answer("scontrol", "ClusterName = toy")
    programs("srun")
    programs("sbatch")
    clock(fleet, scheduler)
    monkeypatch.setattr(Array, "submit", lambda array, *_: scene.submit(array))
    monkeypatch.setattr(fleet, "follow_fleet", scene.follow)
    monkeypatch.setattr(datasets, "datasets_for_jobs", lambda *words: scene.prepared.append(words) or {})
    monkeypatch.setattr(slurm.console, "say", scene.said.append)
    return scene


@pytest.mark.parametrize(
    ("limit", "answer", "error"),
    [(1.99, None, r"2\.0 node-hours, at most 8\.0 after requeues .* no terminal"), (2, None, None), (2.01, None, None),
     (1.5, True, None), (100, False, "nothing was submitted")],
)  # fmt: skip
def test_without_a_terminal_no_more_is_submitted_than_the_site_lets_pass_unasked(
    limit, answer, error, scene, monkeypatch
):
    """Two jobs of an hour each."""
    monkeypatch.setattr(slurm.console, "ask_for_yes", lambda _: answer)
    site = {**scene.conduct["site"], "ask_above_node_hours": limit}

    with pytest.raises(CampaignError, match=error) if error else contextlib.nullcontext() as caught:
        assert scene.go(sure=False, site=site) is False

    assert sorted(scene.asked) == ([] if error else sorted([[scene.one], [scene.other]]))
    assert not error or "--yes" in caught.value.hint


def test_the_site_says_how_many_processes_make_data_on_its_login_node(scene):
    scene.go(site={**scene.conduct["site"], "login_processes": 5})

    (_, _, _, processes, by_jobs), *_ = scene.prepared
    assert (processes, by_jobs) == (5, set())


def test_so_much_data_that_a_job_makes_them_need_a_yes(scene, monkeypatch):
    monkeypatch.setattr(slurm.console, "ask_for_yes", lambda _: None)

    with pytest.raises(UsageError, match=r"site\.make_data=ask.*no terminal"):
        scene.go(sure=False, site={**scene.conduct["site"], "login_data_gb": 0})

    assert scene.asked == scene.prepared == []


def test_nothing_is_submitted_to_a_cluster_that_does_not_answer(scene):
    scene.programs("scontrol", "exit 1")

    with pytest.raises(SchedulerError, match="nothing was submitted"):
        scene.go()

    assert scene.asked == []


REFUSED = "sbatch refused 1 job: limit; "
NOTHING = "nothing to run: 2 of 2 cells are done"


@pytest.mark.parametrize(
    ("before", "conduct", "submitted", "said"),  # whether cells are recorded, one is in a job, and what is refused
    [
        ((True, True, ()), {"redo": True}, ["other"], None),  # a job of an earlier start does the one anew
        ((True, False, (2,)), {"redo": True}, ["one", "other", "again"], f"{REFUSED}the missing cells are submitted"),
        ((False, False, (2,)), {"detach": True}, ["one", "other"], f"{REFUSED}the same command submits"),
        ((True, False, ()), {"detach": True}, [], NOTHING),
        ((False, False, ()), {"detach": True}, ["one", "other"], None),
    ],
)
def test_a_start_submits_what_is_missing(before, conduct, submitted, said, scene):
    recorded, earlier, scene.refuses = before
    if recorded:
        scene.recorded()
    if earlier:
        scene.earlier()

    is_refused = scene.refuses and "detach" in conduct
    with pytest.raises(SchedulerError) if is_refused else contextlib.nullcontext():
        assert scene.go(**conduct) is ("detach" in conduct and bool(submitted))

    if submitted[2:]:
        assert scene.asked.pop() == scene.asked[1]
    assert sorted(scene.asked) == sorted([getattr(scene, name)] for name in submitted[:2])
    assert [line.startswith(said) for line in scene.said if said and said[:8] == line[:8]] == [True] * bool(said)
    assert (NOTHING in scene.said) is (said == NOTHING)


def test_a_preview_shows_what_would_be_submitted_and_not_what_is_in_a_job(scene, capsys):
    scene.earlier("RUNNING")

    todo = scene.preview()

    assert todo == [scene.other]
    assert capsys.readouterr().out.count("sbatch would get") == 1
    assert "jobs of an earlier command have 1 cell; this command would follow these jobs" in scene.said


def test_a_preview_knows_that_a_job_is_over_and_writes_nothing_down(scene):
    scene.earlier("CANCELLED")

    todo = scene.preview()

    assert sorted(todo) == sorted([scene.one, scene.other])
    assert read_batches(scene.folder)[0].open_workers() == [0]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", None])
def test_this_machine_does_not_work_beside_jobs_that_live_or_may_live(state, scene):
    scene.earlier(state)

    with pytest.raises(EnvironmentFaultError, match="1 job of this campaign") as caught:
        slurm.refuse_while_jobs_live(scene.folder)

    assert f"campaign cancel {scene.folder.root}" in caught.value.hint
    scene.earlier("CANCELLED")
    slurm.refuse_while_jobs_live(scene.folder)
    assert read_batches(scene.folder)[0].ended == {0: {"code": "CANCELLED", "node": "n1"}}


def test_a_workstation_that_never_saw_a_cluster_asks_none(scene):
    leave_batch(scene.folder, cluster="local")

    slurm.refuse_while_jobs_live(scene.folder)

    assert scene.programs.calls == []


@pytest.mark.parametrize("how", ["go", "preview"])
def test_what_the_cluster_would_refuse_is_refused_before_data_are_made(how, scene, monkeypatch):
    made = []
    monkeypatch.setattr(datasets, "datasets_for_jobs", lambda *_: made.append(1))
    scene.programs("sbatch", "echo sbatch: error: invalid partition specified: nowhere >&2; exit 1")

    with pytest.raises(SchedulerError, match="invalid partition specified: nowhere"):
        getattr(scene, how)()

    assert (made, scene.asked) == ([], [])
    assert set(scene.programs.calls) & {"sbatch --test-only"}


TIME = "cluster.timeout_min"


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        ([f"{TIME}=5"], [f"{TIME}=9"], f"{TIME}=9 (the jobs have {TIME}=5)"),
        ([], [f"{TIME}=5", f"{TIME}=9"], f"{TIME}=9 (the jobs have the default)"),
        (["+cluster.extra.nice=1"], [], "no cluster.extra.nice (the jobs have cluster.extra.nice=1)"),
        (["cluster.qos=a", "threads=1"], ["threads=2", "cluster.qos=a"], None),
    ],
)
def test_words_of_the_cluster_that_do_not_reach_a_queued_cell_are_said(before, now, line, scene):
    scene.earlier("PENDING")
    asked = {"token": "earlier", "utc": EARLIER, "words": before, "order_seed": 0, "cells": [scene.one]}
    campaign = open_existing(scene.folder.root)[1]
    write_json(scene.folder.marker, {**campaign, "requests": [asked]})

    scene.preview(*now)

    late = [each for each in scene.said if "does not apply to" in each or "to submit these cells" in each]
    cancel = f"`python -m campaign cancel {scene.folder.root}`"
    cure = f"to submit these cells with the new options: {cancel}, then this command"
    assert late == ([f"{line} does not apply to 1 cell in these jobs", cure] if line else [])


LIMITS = "MaxNodes=2 MaxTime=01:30:00 MaxCPUsPerNode=UNLIMITED State=UP MaxMemPerNode=1000"
DEBUG = f"PartitionName=debug Default=YES {LIMITS}"
LONG = "PartitionName=long Default=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 MaxCPUsPerNode=4 State=UP"


@pytest.fixture
def nodes(programs):
    """A function that says what nodes the cluster has, and what sbatch answers to a test of a script."""
    programs("srun")

    def have(*lines, partitions=(DEBUG, LONG), sbatch="exit 0"):
        programs.answer("scontrol", *partitions)
        programs.answer("sinfo", *lines)
        programs("sbatch", sbatch)

    have("PARTITION=debug CPUS=2 STATE=idle", "PARTITION=debug CPUS=8 STATE=idle", "PARTITION=long CPUS=16 STATE=mixed")
    return have


@pytest.fixture
def examine(folder, nodes):
    """Examine the jobs of these words."""

    def examined(*words):
        cells, conduct = make_cells(grid("cluster=slurm", *words))
        entries = cell_plan.make_plan(cells, conduct, folder).to_do
        slurm.require_runnable(
            list(submission.make_arrays(entries, CampaignCall(folder, conduct, "0a1b2c3d", "2026", words), 1001))
        )

    return examined


@pytest.mark.parametrize(
    ("words", "message", "cure"),
    [
        ("threads=1,4 cluster.cpus_per_task=2", "threads=4 with cluster.cpus_per_task=2", "cluster.cpus_per_task=4"),
        ("threads=9", "threads=9: partition debug gives a job at most 8 CPUs of a node", "threads=8 or less"),
        (
            "threads=5 cluster.partition=long",
            "threads=5: partition long gives a job at most 4 CPUs",
            "threads=4 or less",
        ),
        (
            "cluster.cpus_per_task=9",
            "cluster.cpus_per_task=9: partition debug gives a job at most 8 CPUs",
            "cluster.cpus_per_task=8 or less",
        ),
    ],
)
def test_more_threads_than_a_job_has_cpus_are_refused_with_the_cure(words, message, cure, examine):
    with pytest.raises(UsageError, match=message) as caught:
        examine(*words.split())

    assert caught.value.hint.startswith(cure)


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("threads=8", ""),
        ("threads=9 cluster.cpus_per_task=8 cluster.oversubscribe=true", ""),
        ("threads=8 cluster.partition='long,debug'", ""),  # of any of the partitions
        ("cluster.timeout_min=91 cluster.partition='debug,long'", ""),
        ("cluster.timeout_min=90 cluster.mem_gb=1.048 nodes=2", ""),
        ("cluster.timeout_min=91", "cluster.timeout_min=91: partition debug allows 90 min (MaxTime)"),
        ("cluster.mem_gb=1.1", "memory=1050: partition debug allows 1000 MiB (MaxMemPerNode)"),
        ("nodes=3", "nodes=3: partition debug allows 2 nodes (MaxNodes)"),
        ("cluster.timeout_min=2881 cluster.partition=long", "partition long allows 2880 min"),
    ],
)
def test_a_limit_with_which_a_job_would_wait_for_ever_is_said(words, warning, examine, programs, capsys):
    examine(*words.split())

    said = capsys.readouterr().err
    assert warning in said
    assert (programs.asked[-1], bool(said)) == ("sbatch", bool(warning))


def test_a_partition_that_is_down_is_said(examine, nodes, capsys):
    nodes("PARTITION=debug CPUS=8 STATE=idle", partitions=(DEBUG.replace("State=UP", "State=DOWN"),))

    examine()

    assert "partition debug is down" in capsys.readouterr().err


UNAVAILABLE = "echo allocation failure: Requested node configuration is not available >&2; exit 1"
TOO_MANY = "echo sbatch: error: AssocMaxSubmitJobLimit >&2; exit 1"


@pytest.mark.parametrize(
    ("sbatch", "warning"),
    [
        (UNAVAILABLE, "not available; 2 nodes of the partition cannot be used now"),  # Slurm would take the job
        (TOO_MANY, ""), ("exit 0", ""),  # how many jobs there are now is left to the submission
    ],
)  # fmt: skip
def test_what_may_be_taken_all_the_same_is_not_refused(sbatch, warning, examine, nodes, capsys):
    nodes("PARTITION=debug CPUS=8 STATE=idle", *["PARTITION=debug CPUS=8 STATE=drained"] * 2, sbatch=sbatch)

    examine("threads=1,2")

    said = capsys.readouterr().err
    assert warning in said
    assert bool(warning) is bool(said)


def test_what_sbatch_s_own_test_refuses_is_refused_before_anything_is_made(examine, nodes):
    nodes("PARTITION=debug CPUS=8 STATE=idle", sbatch=UNAVAILABLE)

    with pytest.raises(SchedulerError, match="refuses 2 jobs: allocation failure: Requested node configuration"):
        examine("threads=1,2")


def test_a_cluster_that_says_nothing_of_its_partitions_refuses_nothing(examine, nodes, programs):
    programs("scontrol", "exit 1")

    examine("threads=9", "cluster.timeout_min=1000")
