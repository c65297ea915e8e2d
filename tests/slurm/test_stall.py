"""A program's cold and warm runs on a real Slurm: one job, in which they take turns."""

import json
import os
from pathlib import Path

import pytest

from jobs.system import page_cache
from tests.judged import records_of
from tests.slurm.campaigns import WORDS

pytestmark = pytest.mark.long
_OF_JOBS = tuple(word for word in WORDS if word.startswith(("cluster", "checks")))


def test_both_kinds_are_one_job_and_take_turns_there(campaign):
    (campaign.cwd / "data").mkdir()
    for number in range(4):
        (campaign.cwd / "data" / f"{number}.bin").write_bytes(os.urandom(1 << 20))
    page_cache.sync_file_system(campaign.cwd)

    done = campaign("stall", "--json", "--data", "data", *_OF_JOBS, "--", "cat", *(f"data/{n}.bin" for n in range(4)))

    assert done.returncode == 0, done.stderr
    (program,) = json.loads(done.stdout)["programs"]
    assert program["whole"]["pairs"] == 5
    records = records_of(campaign.cwd / "stall")
    assert len({run["job"] for record in records for run in record["runs"]}) == 1
    turns = sorted((run["started_utc"], record["cell"]["page_cache"]) for record in records for run in record["runs"])
    assert [claim for _, claim in turns[:2]] == [claim for _, claim in turns[3:1:-1]]  # there and back
    assert Path(campaign.cwd / "stall" / "report.html").exists()


def test_without_data_it_asks_for_them(campaign):
    done = campaign("stall", *_OF_JOBS, "--", "true")

    assert done.returncode == 2
    assert "--data DIR: on Slurm, stall does not run the program first to find them" in done.stderr
