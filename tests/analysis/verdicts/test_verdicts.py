import json

import pytest

from analysis.verdicts.all_claims import EQUAL, EXCESS
from tests.analysis.claims_factory import checklist, told
from tests.analysis.record_factory import id_of, left, unstable
from tests.analysis.training_factory import grid, step, training

HERE, THERE = {"threads": 1, "storage": "hdd"}, {"threads": 2, "storage": "ssd"}


def shaky(runtimes):
    return unstable(training(runtimes, **HERE))


def test_equal_runtimes_hold_with_the_evidence_of_every_cell():
    places = (("hdd", 1, 100.0), ("ssd", 2, 104.0), ("hdd", 4, 101.0))
    made = [training([base, base + 1, base + 3], storage=name, threads=n) for name, n, base in places]

    row = told(EQUAL, *made)

    # Medians 101, 105 and 102; ranges 100-103, 104-107 and 101-104: 1 s between them, 7 s in all.
    assert row["ours"] == pytest.approx(4 / 102)
    assert json.loads(row["interval"]) == pytest.approx([1 / 102, 7 / 102], abs=1e-6)
    assert row["tolerance"] == pytest.approx(0.08)
    assert row["verdict"] == "holds"
    assert set(row["cells"].split()) == {id_of(each) for each in made}
    assert "V.B" in row["source"]


@pytest.mark.parametrize(
    ("here", "there", "verdict", "why"),
    [
        (training([100.0] * 3, limit=0.02, **HERE), training([104.5] * 3, limit=0.02, **THERE), "differs", ""),
        (training([100.0] * 3, limit=0.04, **HERE), training([104.5] * 3, limit=0.04, **THERE), "holds", ""),
        # The strictest tolerance counts.
        (training([100.0] * 3, limit=0.06, **HERE), training([104.0] * 3, limit=0.01, **THERE), "differs", ""),
        # Noise makes no claim hold; what it cannot explain differs all the same.
        (shaky([80.0, 100.0, 150.0]), training([103.0] * 3, **THERE), "not comparable", "unstable"),
        (shaky([95.0, 100.0, 110.0]), training([200.0] * 3, **THERE), "differs", ""),
        # Two storages and two thread counts are needed, and cells that are done, with prefetch and with their input.
        (training([100.0] * 3, threads=4, storage="hdd"), training([100.0] * 3, storage="ssd"), "not measured", ""),
        (training([100.0] * 3, **HERE), training([100.0] * 3, threads=4, storage="hdd"), "not measured", ""),
        (training([100.0], **HERE), left(training([100.0], **THERE), "failed"), "not measured", ""),
        (training([100.0], prefetch=0, **HERE), training([100.0], prefetch=0, **THERE), "not measured", ""),
        (training([100.0], control="no_io", **HERE), training([100.0], control="no_io", **THERE), "not measured", ""),
    ],
)
def test_runtimes_are_equal_within_twice_the_sites_tolerance(here, there, verdict, why):
    row = told(EQUAL, here, there)

    assert row["verdict"] == verdict
    assert why in row["why"]


@pytest.mark.parametrize("kind", ["host", "accelerator", "accelerators of a cell", "tensorflow", "conditions"])
def test_what_mixes_hosts_accelerators_or_versions_is_not_comparable(kind):
    one, other = training([100.0] * 3, **HERE), training([100.0] * 3, **THERE)
    if kind == "host":
        other["provenance"]["host"] = "node2"
    elif kind == "tensorflow":
        other["provenance"]["versions"]["tensorflow"] = "2.16.0"
    elif kind == "conditions":
        for each in other["runs"]:
            each["conditions"]["machine"]["quota_cores"] = 0.5
    elif kind == "accelerator":
        other["runs"] = [step(n, 100.0, accelerator="gpu (K80)") for n in (1, 2, 3)]
    else:  # within both cells
        for made in (one, other):
            made["runs"] = [step(n, 100.0, accelerator=it) for n, it in enumerate(("cpu", "gpu", "gpu"), 1)]

    row = told(EQUAL, one, other)

    assert row["verdict"] == "not comparable"
    assert "mixed" in row["why"]


@pytest.mark.parametrize(
    ("limit", "of_site", "verdict", "why"),
    [(0.04, 0.04, "differs", ""), (0.06, 0.06, "holds", ""), (0.07, 0.07, "not comparable", "too wide to compare"),
     (0.06, 0.01, "not comparable", "looser checks than the site's: checks.spread_max=0.06 (the site's: 0.01)")],
)  # fmt: skip
def test_looser_checks_than_the_sites_widen_no_tolerance(limit, of_site, verdict, why):
    made = [training([wall] * 3, limit=limit, **place) for wall, place in ((100.0, HERE), (110.0, THERE))]
    made[0]["terms"]["of_site"]["spread_max"] = of_site

    row = told(EQUAL, *made)

    assert row["verdict"] == verdict
    assert why in row["why"]
    assert ("judged by" in row["why"]) == (verdict == "not comparable")


def test_sets_of_one_cell_say_nothing_of_equality_where_others_can_be_compared():
    several = [training([100.0], **place) for place in (HERE, THERE)]
    of_figure_7 = [training([100.0], threads=8, batch_size=n) for n in (16, 32)]

    assert told(EQUAL, *several, *of_figure_7)["verdict"] == "not comparable"


def test_an_excess_needs_a_partner_that_is_done():
    lone, without = training([100.0]), left(training([110.0], prefetch=0), "invalid")

    assert told(EXCESS, lone)["verdict"] == "not measured"
    assert told(EXCESS, lone, without)["verdict"] == "not measured"


def test_an_excess_as_long_as_the_wait_for_input_holds_pair_by_pair():
    rows = checklist(*grid(("hdd", "ssd")))

    pairs = rows[rows["pair"] != ""]
    assert pairs["pair"].tolist() == [f"{storage}, threads {n}" for storage in ("hdd", "ssd") for n in (1, 2, 4, 8)]
    assert set(pairs["verdict"]) == {"holds"}
    assert told(EXCESS, *grid(("hdd", "ssd")))["verdict"] == "holds"


def test_an_excess_unlike_the_wait_differs_and_with_it_the_whole():
    ahead, none = training([100.0, 101.0, 103.0]), training([150.0, 151.0, 152.0], prefetch=0, load_s=20.0)

    row = told(EXCESS, ahead, none, *grid(("hdd",)))

    # 151 - 101 = 50 s of excess, 20 s of waiting, in 151 s.
    assert row["ours"] == pytest.approx(30 / 151)
    assert json.loads(row["interval"]) == pytest.approx([(150 - 103 - 20) / 151, (152 - 100 - 20) / 151], abs=1e-6)
    assert row["verdict"] == "differs"
    assert "holds: 4 of 5 pairs" in row["why"]
    assert "worst: local, threads 4" in row["why"]


def test_sets_that_must_not_be_mixed_have_verdicts_of_their_own():
    walls = ((32, 100.0), (64, 200.0))
    made = [training([wall] * 3, batch_size=b, **place) for b, wall in walls for place in (HERE, THERE)]

    rows = checklist(*made)
    rows = rows[rows["claim"] == EQUAL.text]

    assert rows["verdict"].tolist() == ["holds", "holds"]
    assert ["batch 32" in each for each in rows["about"]] == [True, False]
