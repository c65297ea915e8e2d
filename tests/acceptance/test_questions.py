"""What a user asks is answered by the arithmetic of the numbers that stand beside the answer (behaviours 11 and 12)."""

import os
import sys
from statistics import median

import pytest

from tests.acceptance import door

READ = "import pathlib, sys\nfor each in pathlib.Path(sys.argv[1]).iterdir(): each.read_bytes()\n"
OWN = {"sample_bytes": 1_000_000, "batch": 2, "step_s": 0.1}
"""An accelerator of one's own: it needs 20 MB/s, and 18 at its minimum of 90 %."""


def asked(folder, *words):
    """Ask, and ask again; returns both answers."""
    return door.cli(*words, cwd=folder), door.cli(*words, cwd=folder)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory):
    """A program reads four files of 1 MB, five times cold and five times warm; returns the answers and the folder."""
    folder = tmp_path_factory.mktemp("stall")
    (folder / "data").mkdir()
    for number in range(4):
        (folder / "data" / f"{number}.bin").write_bytes(os.urandom(1 << 20))
    os.sync()
    (folder / "read.py").write_text(READ)
    words = ("stall", "--data", "data", "--runs", "5", "--json", *door.SHARED)
    return folder, asked(folder, *words, "--", sys.executable, "read.py", "{data}")


def test_the_share_of_a_stall_is_that_of_its_own_medians(stalled):
    folder, (done, _) = stalled

    assert done.code == 0, done.err
    (program,) = done.json["programs"]
    cold, warm, whole = program["cold"], program["warm"], program["whole"]
    assert cold["runs"] >= 5 <= warm["runs"]
    assert program["data_bytes"] == 4 << 20
    assert cold["disk_bytes"] >= 4 << 20 > 20 * warm["disk_bytes"]
    assert whole["pairs"] >= 5
    for kind, said in (("cold", cold["wall_s"][0]), ("warm", warm["wall_s"][0])):
        (runs,) = (
            [run["wall_s"] for run in record["runs"] if run["role"] == "measured" and run["status"] == "valid"]
            for record in door.judged(folder / "stall")
            if record["cell"]["page_cache"] == kind
        )
        assert said == pytest.approx(median(runs))
        assert whole[f"{kind}_s"] == pytest.approx(said)
    assert whole["seconds"] == pytest.approx(whole["cold_s"] - whole["warm_s"])
    assert whole["share"] == pytest.approx(1 - whole["warm_s"] / whole["cold_s"])
    assert whole["interval_s"][0] <= whole["seconds"] <= whole["interval_s"][1]
    assert whole["decided"] is (whole["interval_s"][0] > 0)


def test_the_same_question_runs_nothing_again(stalled):
    _, (first, again) = stalled

    assert again.code == 0
    assert again.json["programs"] == first.json["programs"]


def test_measure_has_a_table_and_two_sentences_and_measures_nothing_again(tmp_path):
    (tmp_path / "disk").mkdir()
    words = ("measure", "disk", "threads=1", *door.TINY, "iterations=3", "runs=3", "--yes")

    first = door.cli(*words, "--json", cwd=tmp_path)
    again = door.cli(*words, cwd=tmp_path)

    assert (first.code, again.code) == (0, 0), first.err + again.err
    recorded = door.records(tmp_path / "results")
    assert len(first.json["cells"]) == len(recorded) == 5
    kinds = [(record["cell"]["benchmark"], record["cell"]["settings"].get("threads")) for record in recorded]
    assert sorted(map(str, kinds)) == sorted(
        map(str, [("baseline", None), ("baseline", 1), ("baseline", 2), ("micro", 1), ("micro", 1)])
    )
    rates = {
        record["cell"]["id"]: median(run["read_mb_per_s"] for run in record["runs"] if run["role"] == "measured")
        for record in recorded
    }
    told = {cell["cell"]: cell["mb_per_s"] for cell in first.json["cells"]}
    assert told == pytest.approx(rates)
    feeds, helps = first.json["says"][-2:]
    assert "images/s" in feeds
    assert str(tmp_path / "disk") in feeds
    assert helps
    assert feeds in again.out
    assert door.records(tmp_path / "results") == recorded
    assert not list((tmp_path / "disk").glob("*.bin"))


def test_feed_says_what_an_accelerator_of_ones_own_needs(tmp_path):
    (tmp_path / "disk").mkdir()
    own = [f"accelerator.{key}={value}" for key, value in OWN.items()]

    done = door.cli("feed", "storage=./disk", "accelerator=own", *own, "--dry-run", "--json", cwd=tmp_path)

    assert done.code == 0
    (answer,) = done.json
    assert answer["demand_mb_per_s"] == pytest.approx(OWN["batch"] * OWN["sample_bytes"] / OWN["step_s"] / 1e6)
    assert (answer["accelerator"], answer["feeds"], answer["not"], answer["probes"]) == ("own", None, None, [])
    assert not list((tmp_path / "disk").iterdir())
