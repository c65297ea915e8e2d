"""A baseline by hand: its figures on standard output, without Hydra, submitit or a campaign."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def by_hand(*words, engine="builtin"):
    command = [sys.executable, "-m", "jobs", "baseline", *map(str, words), "--engine", engine]
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

    (disk / "other").mkdir()
    refused = by_hand(disk, "--file-mb", 1)
    missing = by_hand(disk / "other", "--file-mb", 1, engine="ior")

    assert (refused.returncode, missing.returncode) == (2, 3)
    assert "not ours" in refused.stderr
    assert "no program ior" in missing.stderr


def test_a_folder_that_is_not_there_is_not_made(disk):
    done = by_hand(disk / "scratch" / "mine", "--file-mb", 1)

    assert done.returncode == 2
    assert f"{disk / 'scratch' / 'mine'} is no folder" in done.stderr
    assert not list(disk.iterdir())


@pytest.mark.parametrize(
    ("flag", "value"), [("--file-mb", "0"), ("--transfer-mib", "-1"), ("--block-bytes", "x"), ("--threads", "0")]
)
def test_a_number_that_is_none_is_wrong_usage(disk, flag, value):
    done = by_hand(disk, flag, value)

    assert done.returncode == 2
    assert f"argument {flag}: {value} is not 1 or more" in done.stderr
    assert not list(disk.glob("baseline/*"))


def test_blocks_are_rounded_up_to_what_the_device_reads_at_least(disk):
    done = by_hand(disk, "--access", "random_read", "--file-mb", 16, "--block-bytes", 1000)

    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["read_bytes_each"] % 512 == 0


def test_what_the_operating_system_refuses_is_told_with_the_file(disk):
    (disk / "baseline").mkdir()
    lock = disk / "baseline" / ".tfio-baseline.lock"
    (disk / "baseline" / ".tfio-baseline").write_text("")
    lock.symlink_to(disk / "precious")

    done = by_hand(disk, "--file-mb", 16)

    assert done.returncode == 2
    assert str(lock) in done.stderr
    assert not (disk / "precious").exists()
