"""What `doctor` finds out of a cluster: a Slurm of scripts, whose sbatch runs the probe job here and now."""

import os
import sys

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


@pytest.mark.long
def test_a_storage_that_the_node_does_not_have_is_found_out(examined, no_tensorflow, tmp_path):
    findings = examined(f"storage.root={tmp_path}/not-mounted", "storage.shared=false")

    (storage,) = _of(findings, "storage")
    assert storage.passed is False
    assert f"there is no folder {tmp_path}/not-mounted" in storage.message


@pytest.mark.long
def test_a_relative_root_is_the_one_of_this_folder(examined, no_tensorflow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    findings = examined("storage.root=data")

    assert f"{tmp_path}/data can be written" in _of(findings, "write")[0].message


def test_code_that_the_node_does_not_have_is_found_out(programs, examined, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/moved/away/bin/python")

    (nodes,) = _of(examined(), "nodes")

    assert nodes.passed is False
    assert "a job failed at `/moved/away/bin/python -P -m campaign.doctor_node request`: " in nodes.message
    assert "No such file or directory" in nodes.message
    assert "install this code" in nodes.hint


def test_the_step_before_the_code_that_a_node_cannot_do_is_named(examined):
    (nodes,) = _of(examined("cluster.modules=[cuda/12.2]"), "nodes")

    assert nodes.passed is False
    assert "a job failed at `module load cuda/12.2 || exit 3`: " in nodes.message
    assert "module: command not found" in nodes.message
    assert "site.modules" in nodes.hint


@pytest.mark.long
def test_an_answer_that_something_else_printed_into_is_found_out(examined, no_tensorflow, tmp_path):
    (tmp_path / "light" / "sitecustomize.py").write_text("print('welcome')", encoding="utf-8")

    (nodes,) = _of(examined(f"storage.root={tmp_path}"), "nodes")

    assert nodes.passed is False
    assert "the probe job's answer cannot be read" in nodes.message


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


def test_a_job_that_is_cancelled_is_waited_for_until_it_writes_no_more(programs, examined):
    programs("sbatch", '[ "$1" = --test-only ] || echo 77')
    programs("squeue", f"[ $(grep -c squeue {programs.log}) -lt 4 ] && echo 'RUNNING (None)'; :")

    examined()

    assert programs.asked.count("squeue") == 4


@pytest.mark.parametrize(("asked_min", "time_min"), [(5, 5), (60, 10)])
def test_the_probe_asks_for_no_more_minutes_than_a_campaign(asked_min, time_min, programs, examined):
    programs("sbatch", "exit 1")

    examined(f"cluster.timeout_min={asked_min}")

    assert any(f" --time={time_min} " in call for call in programs.calls if call.startswith("sbatch"))


def test_a_trial_submission_that_hangs_is_given_up(programs, examined, monkeypatch):
    monkeypatch.setattr(doctor_cluster.client, "_SUBMIT_S", 0.2)
    programs("sbatch", "exec sleep 60")
    monkeypatch.setattr(doctor_cluster.client, "_TIMEOUT_S", 0.5)

    (submission,) = _of(examined(), "submission")

    assert submission.passed is None
    assert "sbatch timed out after" in submission.message


def test_a_script_that_slurm_refuses_is_told_in_its_words(programs, examined):
    programs("sbatch", "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1")

    findings = examined("cluster.partition=nowhere")

    assert _of(findings, "submission")[0].passed is False
    assert "invalid partition specified: nowhere" in _of(findings, "submission")[0].message
    message = "sbatch did not accept the probe job: invalid partition specified: nowhere"
    assert _of(findings, "nodes")[0].message == message


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda programs: (programs.folder / "srun").unlink(), "not found: srun"),
        (lambda programs: programs("scontrol", "exit 1"), "the controller does not answer"),
    ],
)
def test_what_ends_the_examination(spoil, message, programs, examined):
    spoil(programs)

    (only,) = examined()

    assert (only.what, only.passed, only.message) == ("slurm", False, message)


def test_variables_that_are_not_used_are_named(programs, examined, monkeypatch):
    programs("sbatch", "exit 1")
    for name in ("SBATCH_PARTITION", "SBATCH_ACCOUNT", "SLURM_CONF_OF_MINE"):
        monkeypatch.setenv(name, "mine")

    _, named = _of(examined(), "slurm")

    assert (named.passed, named.message) == (
        None, "the jobs of campaigns ignore the environment variables SBATCH_ACCOUNT, SBATCH_PARTITION",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "log", "told"),
    [
        ("none", None, (None, "for 300 s after its end (MinJobAge)")),
        ("none", "/dev/null", (True, "no sacct; /dev/null reports how jobs ended")),
        ("none", "/no/log", (None, "for 300 s")),
        ("slurmdbd", None, (True, "sacct reports how jobs ended")),
    ],
)
def test_it_is_said_how_long_the_end_of_a_job_is_known(kind, log, told, programs, examined):
    programs("sbatch", "exit 1")
    programs("sacct")
    own = [f"JobCompType = jobcomp/filetxt\nJobCompLoc = {log}"] if log else []
    programs.answer("scontrol", *CONFIG.replace("/none", f"/{kind}").splitlines(), *own)

    (found,) = _of(examined(), "accounting")

    assert (found.passed, told[1] in found.message) == (told[0], True), found.message
