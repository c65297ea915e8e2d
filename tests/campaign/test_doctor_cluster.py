"""What `doctor` finds out of a cluster: a Slurm of scripts, whose sbatch runs the probe job here and now."""

import os

import pytest

from campaign import doctor_cluster
from campaign.cells import cell_plan
from campaign.config.collect import make_cells
from campaign.worker.batch import CampaignCall
from tests.campaign.work_lists import grid

CONFIG = "ClusterName = toy\nSLURM_VERSION = 22.05.8\nAccountingStorageType = accounting_storage/none\n"
RUN = 'for word in "$@"; do :; done; bash "$word"; echo 77'


@pytest.fixture(autouse=True)
def clients(programs):
    """A cluster that takes every script and runs what is wrapped."""
    for name in ("srun", "squeue", "scancel", "sinfo"):
        programs(name)
    programs.answer("scontrol", *CONFIG.splitlines())
    programs("sbatch", f'[ "$1" = --test-only ] && exit 0\n{RUN}')


@pytest.fixture
def examined(folder, clock):
    """What is found with these words; nobody waits."""
    clock(doctor_cluster)

    def look(*words):
        points = grid("cluster=slurm", *words)
        cells, conduct = make_cells(points)
        request = CampaignCall(folder, conduct, "doctor", "2026-11-21", words)
        storages = [{**point["storage"], "cold": True} for point in points]
        return list(
            doctor_cluster.examine_cluster(cell_plan.make_plan(cells, conduct, folder).entries, storages, request)
        )

    return look


def _of(findings, what):
    return [finding for finding in findings if finding.what == what]


@pytest.fixture
def no_tensorflow(tmp_path, monkeypatch):
    """A package of that name that is imported in no time, also by the job."""
    (tmp_path / "light").mkdir()
    (tmp_path / "light" / "tensorflow.py").write_text("__version__ = '0.light'", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "light"))


def test_a_node_is_examined_where_it_is(examined, no_tensorflow, tmp_path, folder):
    findings = examined(f"storage.root={tmp_path}")

    (nodes,) = _of(findings, "nodes")
    assert nodes.passed
    assert f"read and wrote {folder.root}" in nodes.message
    host = os.uname().nodename
    assert _of(findings, "tensorflow")[0].message.startswith(f"{host}: 0.light")
    assert _of(findings, "write")[0].message == f"{host}: {tmp_path} can be written"
    assert list(folder.root.glob(".tfio-doctor*")) == []


def test_the_step_before_the_code_that_a_node_cannot_do_is_named(examined):
    (nodes,) = _of(examined("cluster.modules=[cuda/12.2]"), "nodes")

    assert nodes.passed is False
    assert "a job failed at `module load cuda/12.2 || exit 3`: " in nodes.message
    assert "module: command not found" in nodes.message
    assert "site.modules" in nodes.hint


@pytest.mark.parametrize(
    ("squeue", "passed", "said"),
    [
        ("echo 'PENDING (Priority)'", None, "PENDING (Priority)"),
        ("echo 'CONFIGURING (None)'", None, "CONFIGURING"),
        ("exit 1", None, "the scheduler does not answer"),
        ("exit 0", False, "its files are not visible"),
        ("echo 'RUNNING (None)'", False, "its files are not visible"),
    ],
    ids=["it waits", "it is made ready", "nobody knows", "the nodes do not share the folder", "nor while it runs"],
)
def test_a_job_that_nobody_saw_begin_is_no_proof_of_anything(squeue, passed, said, programs, examined):
    programs("sbatch", '[ "$1" = --test-only ] || echo 77')
    programs("squeue", squeue)

    (nodes,) = _of(examined(), "nodes")

    assert nodes.passed is passed
    assert said in nodes.message


def test_a_script_that_slurm_refuses_is_told_in_its_words(programs, examined):
    programs("sbatch", "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1")

    findings = examined("cluster.partition=nowhere")

    assert _of(findings, "submission")[0].passed is False
    assert "invalid partition specified: nowhere" in _of(findings, "submission")[0].message
    message = "sbatch did not accept the probe job: invalid partition specified: nowhere"
    assert _of(findings, "nodes")[0].message == message
