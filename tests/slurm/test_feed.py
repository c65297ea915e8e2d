"""`feed` on two nodes of a real Slurm."""

import json

import pytest

from tests.judged import records_of
from tests.slurm.campaigns import WORDS

pytestmark = pytest.mark.long
OWN = (
    "accelerator=own", "accelerator.sample_bytes=20000", "accelerator.batch=2", "accelerator.step_s=0.2",
    "threads=1", "iterations=10", "benchmark.file_mb=20", "--most", "2", "--runs", "2", "--yes", "--json",
)  # fmt: skip
LOOSE = [word for word in WORDS if word.startswith(("cluster", "checks."))]


def test_two_nodes_have_as_many_accelerators_each_which_meet_and_the_worst_of_all_decides(campaign):
    storage = campaign.cwd / "data"
    storage.mkdir()
    done = campaign("feed", f"storage={storage}", "nodes=2", *OWN, *LOOSE, timeout_s=800)

    assert done.returncode == 0, done.stdout + done.stderr
    (answer,) = json.loads(done.stdout)
    assert (answer["nodes"], len(answer["probes"]) >= 2) == (2, True)
    cells = {each["cell"]: each for each in answer["probes"]}
    for recorded in records_of(campaign.cwd / "feed"):
        probe = cells.get(recorded["cell"]["id"])
        for run in recorded["runs"] if probe else ():
            assert [rank["node"] for rank in run["ranks"]] == ["n1", "n2"]
            shares = [row["au_percent"] for row in run["accelerators"]]
            assert (len(shares), min(shares)) == (2 * probe["accelerators"], run["au_percent"])
