"""The command that is named measures the cell that is meant, and nothing else, whoever wrote its record."""

import copy
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from campaign.cells import record
from campaign.cells.cell import make_cell
from campaign.cli import cell_command as command
from campaign.cli import run
from campaign.config import command_line
from campaign.config.collect import collect_points, make_cells
from campaign.errors import UsageError
from tests.campaign.fake_template import TERMS
from tests.campaign.work_lists import grid

RESULTS = Path("results").resolve()
EMPTY = {"cell": {"settings": {}}, "campaign": {"words": []}}


def recorded(*words, point=None):
    """The record of the first cell of the grid of these words, or of this point of it."""
    point = point or grid(*(word for word in words if word[:1] != "-" and word != "redo=true"))[0]
    return record.make_record(make_cell(point), {"token": "t", "words": ["threads=7", "+paper=fig4"]}, {}, TERMS)


def asked_for(words):
    """The ids of the cells that a command would run."""
    split = command_line.parse_command_line(words)
    return [entry.cell.id for entry in run.restrict_plan(run.plan_points(collect_points(words)), split.only).entries]


@pytest.mark.parametrize(
    ("words", "changes", "told"),
    [
        (["threads=1", "redo=true", "--yes"], {"threads": 8}, ["threads=8"]),
        (["benchmark=micro,alexnet", "threads=1,2", "prefetch=0,1"], {"prefetch": 1}, ["threads=1", "prefetch=1"]),
    ],
)
def test_the_words_are_of_the_cells_settings_but_for_what_is_changed(words, changes, told):
    made = recorded(*words)

    found = command.arguments_for(made, changes, RESULTS)

    assert found == told
    assert asked_for(found) == [command.changed_cell_id(made, changes)]


@pytest.mark.parametrize(
    "words",
    [
        ["dataset=folder", 'dataset.path="/my/images, (odd)"', "dataset.name=mine"],
        ["dataset=caltech101", "dataset.name=mine", "benchmark=alexnet", "accelerator=emulated"],
        ["benchmark=alexnet", "checkpoint=burst_buffer", "checkpoint.fast.root=/f", "checkpoint.slow.root=/s",
         "checkpoint.every=3"],
        ["benchmark=alexnet", "checkpoint=site", "checkpoint.name=scratch", "checkpoint.root=/x", "checkpoint.every=3"],
        ["benchmark=alexnet", "checkpoint=hdd", "checkpoint.root=/x", "checkpoint.every=3"],
        ["benchmark=malware", "dataset=malware", "profile.posix=trace"],
        ["benchmark=hepcnn", "dataset=hep_paper", "nodes=2", "sync=barrier", "reader=offsets"],
        ["benchmark=climate", "dataset=climate_smoke"],
        ["benchmark=stream", "storage=hdd", "storage.root=/mnt/hdd", "staging=smallest"],
        ["benchmark=baseline", "benchmark.access=random_read", "threads=8"],
        ["storage=site", "storage.name=scratch", "storage.root=/x", "threads=3"],
    ],
)  # fmt: skip
def test_of_any_cell_it_measures_the_very_cell(words):
    made = recorded(*words)

    assert asked_for(command.arguments_for(made, {}, RESULTS)) == [made["cell"]["id"]]


def test_what_no_word_names_is_the_configurations_own_choice(point):
    assert {group: point[group]["name"] for group in command.USUAL} == command.USUAL


def test_of_a_recipe_one_cell_is_asked_for():
    made = recorded(point=collect_points(["threads=range(1,4)", "+paper=fig7", "+size=smoke"])[1])

    assert asked_for(command.arguments_for(made, {"prefetch": 3}, RESULTS)) == [
        command.changed_cell_id(made, {"prefetch": 3})
    ]


@pytest.mark.parametrize("own", [True, False])
def test_a_baseline_has_the_data_of_the_cell_whatever_its_benchmark(own):
    made = (
        recorded("benchmark.preprocess=false", "threads=1")
        if own
        else recorded("benchmark=alexnet", "dataset.files=640")
    )

    found = command.arguments_for(
        made, {"benchmark.name": "baseline", "benchmark.access": "random_read", "threads": (1, 8)}, RESULTS
    )
    cells, _ = make_cells(collect_points(found))

    assert [cell.settings["threads"] for cell in cells] == [1, 8]
    assert {cell.benchmark for cell in cells} == {"baseline"}
    assert all(cell.settings["dataset"] == made["cell"]["settings"]["dataset"] for cell in cells)


REQUEST = {
    "words": [
        "reproduce", "--yes", "-m", "--only", "x", "+size=smoke", "paper=all", "threads=1,2", "cluster=local", "runs=3",
        "checks.peak_max=2", "redo=true", "detach=false", "campaign_dir=here", "profile.posix=trace",
        "++trace.tail_s=1",
    ]
}  # fmt: skip


def test_how_it_is_run_comes_from_a_request_of_the_users_own(site):
    mine = site("storages: {hdd: {root: /mnt/hdd}}\n")
    made = recorded("storage=hdd", "storage.root=/mnt/hdd", "threads=2")

    found = command.arguments_for(made, {}, RESULTS, {"words": [*REQUEST["words"], *mine]})

    own = ["cluster=local", "runs=3", "checks.peak_max=2", "++trace.tail_s=1", "site=mine"]
    assert found == [*mine[:2], *own, "storage=hdd", "threads=2"]  # its root is the site's


STORE = ("storage=s3", "storage.endpoint=http://host:1", "storage.bucket=b")


def test_an_address_is_named_only_where_the_user_asked_for_it():
    made = recorded(*STORE)

    strange, own = (command.arguments_for(made, {}, RESULTS, request) for request in (None, {"words": []}))

    assert not [word for word in strange if "://" in word]
    assert 'storage.endpoint="http://host:1"' in own or "storage.endpoint=http://host:1" in own


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("hydra.callbacks.a._target_", "os.system", "'hydra.callbacks.a._target_', which is no key"),
        ("site.prelude", ["touch /tmp/trace"], "'site.prelude', which is no key"),
        ("campaign_dir", "/theirs", "'campaign_dir', which is no key"),
        ("storage.root", "/x/${oc.env:HOME}", "which Hydra would replace"),
        ("threads", "${oc.env:HOME}", "which Hydra would replace"),
        ("benchmark.name", "../../theirs", "is no choice of benchmark"),
        ("storage.name", "../../theirs", "'no name'"),
        ("dataset.name", "x hydra/launcher=y", "'no name'"),
    ],
)
def test_a_setting_that_is_no_plain_value_of_a_key_makes_no_command(key, value, why):
    made = copy.deepcopy(recorded("threads=1"))
    node, (*path, last) = made["cell"]["settings"], key.split(".")
    for part in path:
        node = node.setdefault(part, {})
    node[last] = value

    if why == "'no name'":  # it is a word of one key, and its value is refused where the command is given
        with pytest.raises(UsageError, match=r"name="):
            asked_for(command.arguments_for(made, {}, RESULTS))
        return
    with pytest.raises(UsageError, match=why):
        command.arguments_for(made, {}, RESULTS)


def test_another_folder_than_the_usual_one_is_named(tmp_path):
    assert command.arguments_for(recorded(), {}, tmp_path) == [f"campaign_dir={tmp_path}"]
    assert command.format_command(["a b"]) == "python -m campaign 'a b'"


@settings(max_examples=5)
@given(st.text("aé ,=(){}[]~#'\"\\:*/1", min_size=1))
@example("it's")
@example('ends with "\\\\')
def test_a_text_of_any_characters_is_one_that_hydra_takes_for_itself(name):
    root = Path("/campaigns") / f"a{name}"

    (word,) = command.arguments_for(EMPTY, {}, root)
    found = OverridesParser.create().parse_override(word)

    assert (found.key_or_group, found.value()) == ("campaign_dir", str(root))


def test_what_is_changed_to_what_it_is_makes_no_other_cell(point):
    cell = make_cell(point)
    made = record.make_record(cell, {"token": "t", "words": []}, {}, TERMS)

    assert command.changed_cell_id(made, {"threads": point["threads"], "profile.posix": "none"}) == cell.id
