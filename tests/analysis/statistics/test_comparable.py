"""What keeps cells from being compared that were measured under other conditions."""

import copy

import pytest

from analysis.records import read_records
from analysis.records.frame import rows_of
from analysis.statistics import comparable
from tests.analysis.record_factory import record, store
from tests.analysis.training_factory import table_of


def cell(*, host="node1", storage="hdd", threads=1, **changes):
    """Return a record whose runs had these conditions of `process`, `machine` and `disk` beside those of everyone."""
    made = record([100.0, 101.0, 102.0], storage=storage, threads=threads, host=host)
    for run in made["runs"]:
        run["conditions"] = {
            "process": {"nice": 0, **changes.get("process", {})},
            "machine": {"cpus": "2 of 2 cores", **changes.get("machine", {})},
            "storages": {storage: {"read_ahead_kb": "128", **changes.get("disk", {})}},
        }
    return made


def unlike(*records, **how):
    return comparable.forbidding_differences(rows_of(table_of(*records)), **how)


PRELOAD, ONE_CPU, AHEAD = {"LD_PRELOAD": "/x.so"}, {"cpus": "1 of 1 core"}, {"read_ahead_kb": "4"}


@pytest.mark.parametrize(
    ("changes", "across", "words"),
    [
        ({}, False, ""),
        ({"process": PRELOAD}, False, "mixed: LD_PRELOAD /x.so, unset"),
        ({"machine": ONE_CPU}, False, "mixed: cpus 1 of 1 core, 2 of 2 cores"),
        ({"disk": AHEAD}, False, "mixed: read_ahead_kb of hdd 128, 4"),
        ({"storage": "ssd", "disk": AHEAD}, True, ""),
        ({"storage": "ssd", "process": PRELOAD}, True, "mixed: LD_PRELOAD /x.so, unset"),
        ({"storage": "ssd", "machine": ONE_CPU}, True, "mixed: cpus 1 of 1 core, 2 of 2 cores"),
        ({"storage": "ssd", "machine": ONE_CPU, "host": "node2"}, True, ""),
        ({"storage": "ssd", "process": PRELOAD, "host": "node2"}, True, "mixed: LD_PRELOAD /x.so, unset"),
    ],
)
def test_cells_must_have_the_same_conditions_unless_they_are_of_another_storage_or_host(changes, across, words):
    assert unlike(cell(), cell(threads=2, **changes), across=across) == words


def test_a_cell_that_recorded_no_conditions_is_like_none_that_did():
    bare = cell(threads=2)
    for run in bare["runs"]:
        del run["conditions"]

    assert unlike(cell(), bare) == "mixed: conditions, which some cells have not recorded"
    assert unlike(bare, copy.deepcopy(bare)) == ""


def test_of_cells_under_other_conditions_there_is_no_ratio_and_the_table_says_why():
    _, two = rows_of(table_of(cell(), cell(threads=2, process=PRELOAD)))

    assert two["threads"] == 2
    assert two["scaling"] != two["scaling"]  # there is none
    assert two["no_scaling"] == "mixed: LD_PRELOAD /x.so, unset"


def test_cells_whose_calls_a_library_has_replaced_prove_nothing_even_if_it_did_so_in_all():
    replaced = {"process": {"interposed": "pread: /x.so"}}
    rows = rows_of(table_of(cell(**replaced), cell(threads=2, **replaced)))

    assert comparable.forbidding_differences(rows) == ""
    assert (
        comparable.reason_for_weak_proof(rows)
        == "a preloaded library has replaced calls of the C library (pread: /x.so)"
    )


@pytest.mark.parametrize(
    ("limit", "of_site", "why", "cure"),
    [
        (0.05, 0.04, "judged by looser checks", "measure without them, or put the tolerance into the site's file"),
        (0.5, 0.04, "judged by looser checks", "measure without them"),
        (0.5, 0.5, "judged by checks.spread_max=0.5, too wide", "measure with checks.spread_max=0.06 or less"),
    ],
)
def test_the_cure_of_looser_checks_is_one_that_helps(limit, of_site, why, cure):
    made = record([100.0] * 3, limit=limit)
    made["terms"]["of_site"]["spread_max"] = of_site

    (line,) = comparable.lines_on_looser_checks(rows_of(table_of(made)))

    assert why in line
    assert line.partition("; cure: ")[2].removesuffix(" (conf/site)") == cure


def test_a_run_under_other_conditions_than_the_first_that_counts_does_not_count(tmp_path):
    odd, honest = cell(), cell(threads=2)
    odd["runs"][2]["conditions"]["storages"]["hdd"]["read_ahead_kb"] = "4"
    honest["runs"][0]["conditions"]["storages"]["hdd"]["read_ahead_kb"] = "4"  # a warm-up

    found = read_records.read_records(store(tmp_path, odd, honest)).records

    statuses = {each.settings["threads"]: [run.status for run in each.runs] for each in found}
    assert statuses == {1: ["valid", "valid", "invalid", "valid"], 2: ["valid"] * 4}
