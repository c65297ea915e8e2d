"""What happens is a code, which has a sentence; the exit codes stand in one table."""

import re
from pathlib import Path

import pytest

from campaign.cli import help as usage
from jobs.model import codes
from jobs.model.codes import ExitCode, JobEnd, RunEnd, Waiting


@pytest.mark.parametrize("code", RunEnd)
def test_each_end_of_a_run_has_a_sentence(code):
    end = {"code": code, "number": 9, "limit": 8, "seconds": 3.0, "threads": 4, "cpus": 1.5, "words": "its words"}

    text = codes.run_end_sentence(end)

    assert text
    assert "{" not in text
    assert codes.run_end_sentence({**end, "rank": 1, "late": "2 is late"}) == f"rank 1: {text}; 2 is late"


def test_an_end_that_lacks_what_its_sentence_names_is_odd():
    for end in ({"code": "killed"}, {"code": "exited"}, {"code": "killed", "number": 9999}, {"code": "no such"}):
        with pytest.raises((LookupError, ValueError)):
            codes.run_end_sentence(end)


@pytest.mark.parametrize("code", JobEnd)
def test_each_end_of_a_worker_has_a_sentence_that_names_what_is_known(code):
    end = {"code": code, "exit": 3, "signal": 9, "node": "n1", "words": "its words", "cure": "its cure"}

    text = codes.worker_sentence(end)

    assert "its words" in text
    assert ("its cure" in text) is (code == JobEnd.ERROR)
    assert (f"Slurm: {code}, exit code 3, signal 9 on n1" in text) is (code not in (JobEnd.ERROR, JobEnd.GONE))
    assert codes.run_end_sentence({"code": "worker_ended", "worker": end}) == f"interrupted: {text}"


@pytest.mark.parametrize("code", Waiting)
def test_each_wait_has_a_sentence_and_what_changes_each_moment_comes_last(code):
    wait = {"code": code, "words": "it", "holder": "them", "seconds": 5.0, "now": "2 s so far"}

    assert codes.wait_sentence(wait) == f"{codes.wait_sentence(wait, lasting=True)}; now 2 s so far"


def test_the_help_and_the_page_list_the_exit_codes(capsys):
    usage.main([])
    listed = ", ".join(f"{code:d} {code.meaning}" for code in ExitCode)
    page = (Path(__file__).parents[1] / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")

    assert f"Exit codes: {listed}." in " ".join(capsys.readouterr().out.split())
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    assert rows == [(f"{code:d}", code.meaning) for code in ExitCode]
