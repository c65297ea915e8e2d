"""What the recipes of the papers ask for, what is said of the papers' claims, and what NERSC's data hold."""

from __future__ import annotations

import json
import math

import pytest

from tests.acceptance import door, goldens

SHORT = ("+paper=fig9 +size=smoke site=twin", "+paper=hepcnn +size=lab site=twin", "+paper=fig4 +size=paper site=twin")


def golden(name):
    return json.loads((door.GOLDENS / f"{name}.json").read_text("utf-8"))


def changed(found, expected, above=""):
    """List the keys of expected settings whose value is another one; keys may have been added, and none be null."""
    told = []
    for key, value in expected.items():
        at, ours = f"{above}{key}", found.get(key)
        told += changed(ours or {}, value, f"{at}.") if isinstance(value, dict) else [at] * (ours != value)
    return told


def test_every_recipe_of_every_size_is_held():
    assert {*goldens.GRIDS} == {*golden("recipes")}
    assert len(goldens.RECIPES) == 21


@pytest.mark.parametrize(
    "words", [*SHORT, *(pytest.param(each, marks=pytest.mark.long) for each in goldens.GRIDS if each not in SHORT)]
)
def test_a_recipe_asks_for_the_golden_cells_runs_and_settings(words, tmp_path):
    found, expected = goldens.grid(words, tmp_path), golden("recipes")[words]

    assert found["cells"] == expected["cells"]
    assert changed(found["settings"], expected["settings"]) == []


@pytest.mark.parametrize("change", goldens.CHANGES)
def test_of_each_claim_the_verdict_ours_and_the_published_number_are_the_golden_ones(change, tmp_path):
    found = goldens.verdicts(goldens.campaign("claims", tmp_path / "results", goldens.CHANGES[change]))

    expected = golden("verdicts")[change]
    assert found.keys() == expected.keys()
    for claim, rows in expected.items():
        ours = [[row[0], *row[2:]] for row in found[claim]], [row[1] for row in found[claim]]
        assert ours[0] == [[row[0], *row[2:]] for row in rows], claim
        assert ours[1] == [row[1] if row[1] is None else pytest.approx(row[1], rel=1e-9) for row in rows], claim


def test_the_claims_of_the_three_papers_are_judged_each_way():
    verdicts = {
        change: {row[0] for rows in said.values() for row in rows} for change, said in golden("verdicts").items()
    }

    assert len(golden("verdicts")["as measured"]) == 37 + 8 + 13
    assert all({"holds", "differs", "not comparable"} <= each for each in verdicts.values())
    both = [claim for claim, rows in golden("verdicts")["as measured"].items()
            if {row[0] for row in rows} != {row[0] for row in golden("verdicts")["exchanged"][claim]}]  # fmt: skip
    assert len(both) >= 15


@pytest.mark.parametrize(("recipe", "size"), [("hepcnn", "2,048 files, 495 GB"), ("cdb", "62,739 files, 3.8 TB")])
def test_nerscs_data_are_as_many_files_and_bytes_as_theirs(recipe, size, cli):
    told = cli(f"+paper={recipe}", "+size=paper", "site=twin", "--dry-run")

    assert size in told.out + told.err


@pytest.mark.long
def test_a_training_of_hepcnn_reads_and_steps_as_often_as_follows_from_its_parameters(cli, tmp_path):
    files, validation, samples, batch, epochs = 4, 2, 12, 5, 3
    words = (f"dataset.train_files={files}", f"dataset.validation_files={validation}", f"dataset.samples={samples}")
    more = ("dataset.image_size=16", f"batch_size={batch}", f"benchmark.epochs={epochs}", "benchmark.width=0.05")

    emulated = ("accelerator=emulated", "accelerator.step_s=0.01")
    done = cli("benchmark=hepcnn", "dataset=hep", *words, *more, *emulated, "runs=2", "min_valid_runs=1",
               *door.SHARED)  # fmt: skip

    assert done.code == 0, done.err
    (run,) = door.valid_runs(tmp_path / "results")
    steps = files * samples * epochs // batch
    training = math.ceil(steps * batch / samples)
    passes = (training - 1) // files
    assert run["loads"] == training + 1 + passes * validation
    assert run["steps"]["number"] == steps
