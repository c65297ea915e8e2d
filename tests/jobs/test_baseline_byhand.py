"""A baseline by hand: its figures on standard output, without Hydra, submitit or a campaign."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def by_hand(*words):
    command = [sys.executable, "-m", "jobs.baseline", *map(str, words), "--engine", "builtin"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("access", ["write", "read", "random_read"])
def test_the_figures_of_one_run_are_json_on_standard_output(access, disk):
    done = by_hand(disk, "--access", access, "--file-mb", 60, "--threads", 2)

    figures = json.loads(done.stdout)
    assert done.returncode == (0 if figures["status"] == "valid" else 1)
    assert figures["bytes_asked"] == figures["bytes_written" if access == "write" else "bytes_read"]
    assert figures["bytes_asked"] <= 4 * 16 * 2**20
    assert {check["rule"] for check in figures["checks"]} >= {"complete", "time_adds_up", "quiet"}
    assert not list(disk.glob("baseline/written-*"))


def test_an_engine_that_is_missing_ends_in_three_and_a_folder_of_somebody_elses_in_two(disk, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (disk / "baseline").mkdir()
    (disk / "baseline" / "thesis.tex").write_text("mine")

    refused = by_hand(disk, "--file-mb", 1)
    missing = subprocess.run(
        [sys.executable, "-m", "jobs.baseline", str(disk / "other"), "--engine", "ior", "--file-mb", "1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (refused.returncode, missing.returncode) == (2, 3)
    assert "not ours" in refused.stderr
    assert "no program ior" in missing.stderr
