"""Where ours must lie for a claim to hold, at its exact limits, and what leaves a claim open, whatever it claims."""

import math
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.claims import claim as of
from analysis.claims.cell_sets import cells_of
from analysis.claims.claim import DIGITS, FLAT, ORDER, SITE, Claim, Finding
from analysis.claims.judge_claim import judge_finding
from tests.analysis.claims_factory import at
from tests.analysis.record_factory import record, unstable
from tests.analysis.training_factory import frames

UP, DOWN = math.inf, -math.inf
TINY = 5e-324
NUMBERS = st.floats(0.001, 1000)


def cells_in(*made):
    return tuple(cells_of(frames(*made)[0]))


@cache
def one_cell():
    return cells_in(at(record([100.0] * 3), "twin"))


def held(predicate, ours, low=None, high=None, made=None, **claim):
    """Return the row of one cell, of which ours was found with this interval, of a site whose spread may be 4 %."""
    cells = cells_in(*made) if made else one_cell()
    told = Claim("paper", "text", "place", "", "", iter, iter, predicate, "{words}", **claim)
    ends = (ours if end is None else end for end in (low, high))
    return judge_finding(told, Finding(ours, *ends, "", cells, {"words": "words"}))


@pytest.mark.parametrize(
    ("predicate", "low", "high"),
    [
        (of.equal_to("2.0", SITE), 2 * (1 - 0.08), 2 * (1 + 0.08)),
        (of.equal_to("2.0", DIGITS), 2 * (1 - 0.025), 2 * (1 + 0.025)),
        (of.equal_to("6e2", DIGITS), 600 * (1 - 0.5 * 100 / 600), 600 * (1 + 0.5 * 100 / 600)),
        (of.equal_to("2.0", SITE, DIGITS), 2 * (1 - (0.08 + 0.025)), 2 * (1 + (0.08 + 0.025))),
        (of.equal_to(0.5, SITE), 0.5 * (1 - 0.08), 0.5 * (1 + 0.08)),
        (of.equal_to(1.0, 0.1), 1 - 0.1, 1 + 0.1),
        (of.at_least("2.6", SITE), 2.6 * (1 - 0.08), UP),
        (of.below_bound("0.04"), DOWN, math.nextafter(0.04, DOWN)),
        (of.Predicate(1.0, 2.0), 1.0, 2.0),
        (FLAT, -0.08, 0.08),
        (of.POSITIVE, TINY, UP),
        (ORDER, math.nextafter(1, UP), UP),
    ],
)
def test_a_claim_holds_to_its_exact_limits_and_differs_beyond(predicate, low, high):
    inside = [each for each in (low, high) if math.isfinite(each)]
    beyond = [math.nextafter(end, way) for end, way in ((low, DOWN), (high, UP)) if math.isfinite(end)]

    assert {held(predicate, ours)["verdict"] for ours in inside} == {"holds"}
    assert {held(predicate, ours)["verdict"] for ours in beyond} == {"differs"}


@given(NUMBERS, NUMBERS, NUMBERS)
def test_of_an_order_the_whole_interval_is_on_its_side_and_of_a_number_ours_alone(ours, down, up):
    low, high = ours - down, ours + up
    whole, alone = (held(predicate, ours, low, high)["verdict"] for predicate in (ORDER, of.Predicate(1.0, UP)))

    assert (whole == "holds") == (low > 1)
    assert (alone == "holds") == (ours >= 1)


@given(NUMBERS, st.lists(st.floats(0.001, 0.06), min_size=1, max_size=3))
def test_the_strictest_site_says_how_far_ours_may_be_off_and_what_was_found_never_does(number, limits):
    cells = [{"spread_limit": limit} for limit in limits]
    low, high, tolerance = of.equal_to(number, SITE).widened_range([*cells, {"spread_limit": math.nan}])

    assert tolerance == 2 * min(limits)
    assert (number - low, high - number) == (pytest.approx(number * tolerance), pytest.approx(number * tolerance))


@pytest.mark.parametrize(
    ("ours", "low", "high", "verdict"),
    [
        # Noise makes no claim hold, nor differ; what it cannot explain does all the same.
        (2.0, 1.5, 2.5, "not comparable"), (3.0, 2.0, 4.0, "not comparable"), (3.0, 2.5, 4.0, "differs"),
        (2.0, 1.9, 2.1, "holds"),
    ],
)  # fmt: skip
def test_an_unstable_cell_leaves_a_claim_open_unless_the_whole_interval_agrees(ours, low, high, verdict):
    row = held(of.equal_to("2.0", SITE), ours, low, high, [unstable(record([100.0, 101.0, 102.0]))])

    assert row["verdict"] == verdict
    assert ("unstable: the runs of " in row["why"]) == (verdict == "not comparable")


def smoke(made):
    return made | {"campaign": made["campaign"] | {"size": "smoke"}}


EMULATED, MODELLED = (at(record([100.0] * 3, storage__emulated=mark), "twin") for mark in (True, "hdd is a disk model"))
PLAIN, NUMBER = at(record([100.0] * 3), "twin"), of.equal_to("2.0", SITE)
LOOSE = record([100.0] * 3, limit=0.06)
LOOSE["terms"]["of_site"]["spread_max"] = 0.01


@pytest.mark.parametrize(
    ("made", "predicate", "claim", "why"),
    [
        ([PLAIN], NUMBER, {"machine": "blackdog"}, "a number of the paper's own blackdog, and this is site twin"),
        ([EMULATED], NUMBER, {"machine": "blackdog"}, "this is site twin"),
        ([EMULATED], NUMBER, {"machine": "blackdog", "emulable": True}, ""),
        ([at(record([100.0] * 3), "tegner")], NUMBER, {"machine": "blackdog or tegner"}, ""),
        ([smoke(PLAIN)], NUMBER, {}, "size smoke is a small version"),
        ([smoke(EMULATED)], NUMBER, {"emulable": True}, "size smoke"),
        ([smoke(MODELLED)], NUMBER, {}, "size smoke"),
        ([smoke(MODELLED)], NUMBER, {"emulable": True}, ""),
        ([smoke(PLAIN)], FLAT, {}, ""),
        ([record([100.0] * 2)], NUMBER, {}, "fewer than 3 valid runs"),
        ([record([100.0] * 3, limit=0.07)], NUMBER, {}, "too wide to compare"),
        ([LOOSE], NUMBER, {}, "looser checks than the site's: checks.spread_max=0.06 (the site's: 0.01)"),
        ([PLAIN], NUMBER, {"hindrance": lambda cells: f"{len(cells)} cell"}, "1 cell"),
        ([PLAIN, record([100.0] * 3, threads=1, host="node9")], NUMBER, {}, "mixed: hosts node1, node9"),
        ([PLAIN, record([100.0] * 3, threads=1, host="node9")], NUMBER, {"compares": of.STORAGES}, "mixed: hosts"),
        ([PLAIN, record([100.0] * 3, storage="hdd", host="node9")], NUMBER, {"compares": of.STORAGES}, ""),
        ([PLAIN, record([100.0] * 3, threads=1, host="node9")], NUMBER, {"compares": of.EACH}, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_held_against_a_claim_is_not_comparable_and_says_why(made, predicate, claim, why):
    row = held(predicate, 0.0 if predicate is FLAT else 2.0, made=made, **claim)

    assert (row["verdict"], why in row["why"]) == ("not comparable" if why else "holds", True)
    assert row["why"].endswith("words")


def test_where_no_record_names_a_tolerance_nothing_is_compared():
    assert math.isnan(NUMBER.widened_range([{"spread_limit": math.nan}])[2])


def test_what_differs_says_the_models_own_figures_or_why_nothing_follows():
    told = held(of.equal_to("9", SITE), 2.0, made=[MODELLED])
    doubted = held(of.equal_to("9", SITE), 2.0, doubt="of another network")

    assert (told["verdict"], told["why"]) == ("differs", "words; hdd is a disk model")
    assert (doubted["verdict"], doubted["why"]) == ("not comparable", "words; of another network")
