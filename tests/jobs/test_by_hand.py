"""A benchmark by hand: its figures on standard output, without Hydra, submitit or a campaign."""

import json
import os
import subprocess
import sys

import pytest

from tests.jobs.jobs_factory import truncate, write_jpegs

BUSY = ("quiet", "time_adds_up")  # others may take the processor, or the disk
BLOCKED = ("hydra", "omegaconf", "submitit", "pandas", "matplotlib")


@pytest.fixture
def without_the_campaign(tmp_path):
    """An environment in which what `jobs/` must not need cannot be imported."""
    for name in BLOCKED:
        folder = tmp_path / "blocked" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"raise ModuleNotFoundError('{name} is blocked', name='{name}')\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "blocked")}


def by_hand(environment, *words):
    command = [sys.executable, "-m", "jobs", "micro", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_figures_are_json_on_standard_output_and_nothing_else_is(without_the_campaign, disk):
    write_jpegs(disk / "data", 24)

    done = by_hand(without_the_campaign, disk / "data", "--threads", 2, "--batch-size", 8, "--image-size", 32)

    figures = json.loads(done.stdout)
    assert (figures["images"], figures["image_errors"], len(figures["step_load_s"])) == (24, 0, 3)
    assert all(check["passed"] for check in figures["checks"] if check["rule"] not in BUSY)
    assert done.returncode == (0 if figures["status"] == "valid" else 1)  # others may be loud meanwhile
    assert sorted(path.name for path in disk.iterdir()) == ["blocked", "data"]


@pytest.mark.parametrize("words", [(), ("--help",), ("--threads", "many", "folder"), ("--cache", "hot", "folder")])
def test_usage_errors_end_with_two_and_help_with_zero(without_the_campaign, words):
    done = by_hand(without_the_campaign, *words)

    assert done.returncode == (0 if words == ("--help",) else 2)
    assert "usage: python -m jobs micro" in done.stdout + done.stderr


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_a_folder_without_images_ends_with_two_and_a_hint(without_the_campaign, tmp_path, folder):
    (tmp_path / "empty").mkdir()

    done = by_hand(without_the_campaign, tmp_path / folder)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "\n\nhint: " in done.stderr


@pytest.fixture
def data(disk):
    write_jpegs(disk / "data", 24)
    return disk / "data"


@pytest.mark.parametrize(("more", "code", "status"), [([], 1, "invalid"), (["--read-only"], 0, "valid")])
def test_an_invalid_run_ends_with_one_and_says_why_and_without_decoding_it_is_valid(job, data, more, code, status):
    truncate(data / "005.jpg")

    figures, ended = job("by_hand", words=[str(data), "--image-size", "32", *more])

    assert (ended, figures["status"]) == (code, status)
    assert ("005.jpg" in str(figures["reason"])) is bool(code)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--batch-size", "5"], {"steps": 5}),
        (["--batch-size", "5", "--iterations", "2"], {"steps": 2, "images": 10}),
        (["--cache", "warm"], {"first": "warm"}),
        (["--cache", "as_is"], {"first": "complete"}),
        ([], {"first": "cold"}),
    ],
)
def test_each_word_has_its_effect(job, data, words, expected):
    figures, _ = job("by_hand", words=[str(data), "--image-size", "32", *words])

    seen = {"steps": len(figures["step_load_s"]), "images": figures["images"], "first": figures["checks"][0]["rule"]}
    assert {key: seen[key] for key in expected} == expected
