"""Records of legal values that cannot be true are told by key."""

import copy
import json
from pathlib import Path

import pytest

from jobs.judging.judge import judge_record
from jobs.model.record import contradictions

RECORD = json.loads((Path(__file__).parents[2] / "acceptance" / "stored" / "record.json").read_text(encoding="utf-8"))


def told(of_run=(), of_cell=(), **changes):
    """Return what contradicts itself in the example of the contract with its first run, and its cell, changed."""
    made = copy.deepcopy(RECORD) | changes
    made["runs"][0] |= dict(of_run)
    made["cell"] |= dict(of_cell)
    return [*contradictions(judge_record(made, made["terms"]))]


def test_the_example_of_the_contract_contradicts_nothing():
    assert told() == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"run": 1}, "2 of its runs have the number 1"),
        ({**RECORD["runs"][1], "run": 9}, "2 of its runs have the same start, 2026-11-21T09:00:0"),
        ({"images_per_s": 1000.0}, "runs[0].images_per_s is 1000, and images / wall_s is 512 / 1.31 (run 0)"),
        ({"images_per_s": 512 / 1.31 * 1.0011}, "runs[0].images_per_s is 391.27"),
        ({"read_mb_per_s": 20.0}, "runs[0].read_mb_per_s is 20, and bytes_read / wall_s is 57.344 / 1.31"),
        ({"write_mb_per_s": 20.0, "bytes_written": 5}, "runs[0].write_mb_per_s is 20"),
        ({"images": 600, "images_per_s": 600 / 1.31}, "runs[0].images is 600, but images_asked is 512"),
    ],
)
def test_figures_of_a_run_that_cannot_be_true_together_are_told_by_key(change, why):
    assert told(change)[0].startswith(why)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"marked_s": 1.0, "program": {"cpu_s": 2.0}}, None),
        ({"marked_s": 3.0}, "runs[0].marked_s is 3, but wall_s, which includes it, is 1.31"),
        ({"elapsed_s": 1.2}, "runs[0].wall_s is 1.31, but elapsed_s, which includes it, is 1.2"),
        ({"program": {"read_bytes": 9}, "device_bytes": 9}, None),
        ({"program": {"read_bytes": 10}, "device_bytes": None}, None),
        (
            {"program": {"read_bytes": 10}, "device_bytes": 9},
            "runs[0].program.read_bytes is 10, but device_bytes, which includes it, is 9",
        ),
        ({"program": {"cpu_s": 1e6}}, "runs[0].program.cpu_s is 1e+06, more CPU time than 4 cores have (run 0)"),
    ],
)
def test_what_a_program_did_is_within_its_run(change, why):
    made = judge_record(copy.deepcopy(RECORD), RECORD["terms"])
    made["provenance"] = made["provenance"] | {"cores": 4}
    made["runs"][0] |= {"program": {"cpu_s": 0.5}, "elapsed_s": 1.4, "marked_s": None} | change

    found = [*contradictions(made)]

    assert len(found) == bool(why)
    assert not why or found[0].startswith(why)


@pytest.mark.parametrize(
    ("change", "figure", "why"),
    [
        ({}, "loss", "runs[0] is valid, but its loss is None"), ({"loss": "x"}, "loss", "but its loss is 'x'"),
        ({"loss": -1.0}, "loss", "but its loss is -1.0"), ({"loss": 0}, "loss", None),
        ({"write_mb_per_s": 0}, "write_mb_per_s", "but its write_mb_per_s is 0"),
    ],
)  # fmt: skip
def test_a_run_that_counts_has_its_figure(change, figure, why):
    found = told({"role": "measured", **change}, {"figure": figure})

    assert [why in each for each in found] == ([True] if why else [])
    assert told(change, {"figure": figure}) == []  # a warm-up needs none


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"settings": {"threads": 1, "batch_size": 1}}, "cell.settings.prefetch is missing, but benchmark=micro"),
        ({"settings": RECORD["cell"]["settings"] | {"\x1b": 8}}, r"cell.settings has '\x1b'"),
        ({"settings": RECORD["cell"]["settings"] | {"x": {"y": ["\n"]}}}, r"cell.settings has '\n'"),
    ],
)
def test_settings_that_no_cell_has_are_told(change, why):
    assert told(of_cell=change)[0].startswith(why)
    assert told(of_cell={"benchmark": "toy", "settings": {}}) == []
    assert told(of_cell={"benchmark": "command", "settings": {"benchmark": {"argv": ["python", "-c", "a\nb"]}}}) == []


def test_a_name_of_an_emulated_storage_stands_in_lines_too():
    emulated = RECORD["provenance"] | {"emulated": {"storage": {"name": "\x1b"}}}

    assert told(provenance=emulated) == [r"provenance.emulated has '\x1b', which is not printable"]
