"""The command that is named measures the cell that is meant, and nothing else."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

from campaign.advice import command
from campaign.advice.rules import BASELINE
from campaign.cells import record
from campaign.cells.cell import make_cell
from campaign.cli import run
from campaign.config import command_line
from campaign.config.collect import collect
from campaign.config.points import cells_of
from tests.campaign.work_lists import grid

RESULTS = Path("results").resolve()
EMPTY = {"cell": {"settings": {}}, "campaign": {"words": []}}


def recorded(*words, point=None):
    """The record of the first cell of the grid of these words, or of this point of it."""
    point = point or grid(*(word for word in words if word[:1] != "-" and word != "redo=true"))[0]
    return record.new(make_cell(point), {"token": "t", "words": [*words]}, {})


def asked_for(words):
    """The ids of the cells that a command would run."""
    split = command_line.split(words)
    return [entry.cell.id for entry in run.restricted(run.planned(collect(split.hydra)), split.only).entries]


@pytest.mark.parametrize(
    ("words", "changes", "told"),
    [
        (["threads=1", "redo=true", "--yes"], {"threads": 8}, ["threads=8"]),
        (["-m", "benchmark=micro,alexnet", "threads=1,2", "prefetch=0,1"], {"prefetch": 1},
         ["benchmark=micro", "threads=1", "prefetch=1"]),
        (["storage.name=a", "storage.root=/a"], {"storage.name": "b", "storage.root": "/b"},
         ["storage.name=b", "storage.root=/b"]),
    ],
)  # fmt: skip
def test_the_words_are_the_cells_own_but_for_what_is_changed(words, changes, told):
    made = recorded(*words)

    found = command.words(made, changes, RESULTS)

    assert found == told
    assert asked_for(found) == [command.cell_with(made, changes)]


RECIPE = ("threads=range(1,4)", "+paper=fig7", "+size=smoke")


@pytest.fixture(scope="module")
def of_recipe():
    """The record of a cell in the middle of a recipe's grid."""
    return recorded(*RECIPE, point=collect(command_line.split(RECIPE).hydra)[1])


def test_of_a_recipe_one_cell_is_asked_for(of_recipe):
    found = command.words(of_recipe, {"prefetch": 3}, RESULTS)

    assert found[:-2] == [*RECIPE, "prefetch=3"]
    assert asked_for(found) == [command.cell_with(of_recipe, {"prefetch": 3})]


@pytest.mark.parametrize("own", [True, False])
def test_a_baseline_has_the_data_of_the_cell_whatever_its_benchmark(own, of_recipe):
    made = recorded("benchmark.preprocess=false", "threads=1") if own else of_recipe

    found = command.words(made, {**BASELINE, "threads": (1, 8)}, RESULTS)
    cells, _ = cells_of(collect(command_line.split(found).hydra))

    assert [cell.settings["threads"] for cell in cells] == [1, 8]
    assert {cell.benchmark for cell in cells} == {"baseline"}
    assert all(cell.settings["dataset"] == made["cell"]["settings"]["dataset"] for cell in cells)


def test_another_folder_than_the_usual_one_is_named(tmp_path):
    made = recorded("campaign_dir=elsewhere")

    assert command.words(made, {}, tmp_path) == [f"campaign_dir={tmp_path}"]
    assert command.in_words(["a b"]) == "python -m campaign 'a b'"


@given(st.text("aé ,=(){}[]~#'\"\\:*/1", min_size=1))
@example("it's")
@example('ends with "\\\\')
def test_a_folder_of_any_name_is_one_that_hydra_takes_for_itself(name):
    root = Path("/campaigns") / f"a{name}"

    (word,) = command.words(EMPTY, {}, root)

    found = OverridesParser.create().parse_override(word)
    assert (found.key_or_group, found.value()) == ("campaign_dir", str(root))


def test_the_word_that_names_a_paper_is_not_given_to_a_baseline():
    made = recorded("threads=1")
    made["campaign"]["words"] = ["reproduce", "paper=tfdarshan", "+size=smoke"]

    assert not any("paper" in word for word in command.words(made, {**BASELINE, "threads": (1, 8)}, RESULTS))


def test_what_is_changed_to_what_it_is_makes_no_other_cell(point):
    cell = make_cell(point)
    made = record.new(cell, {"token": "t", "words": []}, {})

    assert command.cell_with(made, {"threads": point["threads"], "profile.posix": "none"}) == cell.id
