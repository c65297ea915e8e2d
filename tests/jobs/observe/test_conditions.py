"""What is recorded of the machine: all of it, true, and nothing that is secret."""

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from jobs.observe import conditions
from tests.jobs.jobs_factory import ROOT

# ruff: noqa: SLF001 - the parts are tested one by one


def git(folder, *words):
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_facts_are_those_that_other_programs_tell(tmp_path):
    facts = conditions.describe_node(tmp_path)

    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    there_is_none = conditions.describe_node(tmp_path / "not-mounted")
    assert {**facts, "device": "unknown", "mount": "unknown"} == there_is_none
    assert facts["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert facts["python"] == platform.python_version()
    assert facts["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts["affinity"] == sorted(os.sched_getaffinity(0))
    assert len(facts["affinity"]) <= facts["cores"]
    assert facts["versions"]["tfio-campaign"] != "unknown"
    if (ROOT / ".git").exists():
        assert facts["git"]["commit"] == git(ROOT, "rev-parse", "HEAD")


def test_only_named_variables_of_slurm_are_recorded(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JWT", "eyJhbGciOi-secret")
    monkeypatch.setenv("SLURM_SOMETHING_NEW", "eyJhbGciOi-secret")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")

    facts = conditions.describe_node(tmp_path)

    assert facts["slurm"] == {"SLURM_JOB_ID": "4711"}
    assert "secret" not in json.dumps(facts)


@pytest.fixture
def checkout(tmp_path):
    room = tmp_path / "repository" / "jobs"
    room.mkdir(parents=True)
    (room / "conditions.py").write_text("code\n")
    (room.parent / "campaign.py").write_text("code\n")
    try:
        git(room, "init", "--quiet", "..")
    except OSError:
        pytest.skip("git is not installed")
    git(room, "add", "..")
    git(room, "commit", "--quiet", "--message", "first")
    return room


def test_a_checkout_is_told_by_its_commit_and_is_dirty_when_a_file_of_it_changed(checkout):
    (checkout.parent / "results.json").write_text("{}")  # git does not know it
    clean = conditions._git_commit(checkout)
    (checkout.parent / "campaign.py").write_text("other code\n")

    assert clean == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False}
    assert conditions._git_commit(checkout) == {**clean, "dirty": True}


def test_a_wheel_inside_the_checkout_of_somebody_else_or_outside_of_any_has_no_commit(checkout, tmp_path):
    wheel = checkout.parent / "venv/site-packages/jobs"
    wheel.mkdir(parents=True)
    (wheel / "conditions.py").write_text("code\n")

    assert (
        conditions._git_commit(wheel) == conditions._git_commit(tmp_path) == {"commit": "unknown", "dirty": "unknown"}
    )
