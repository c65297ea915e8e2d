"""Each claim of the paper held against records made by hand: what holds, what differs, what says nothing of it."""

import json

import pytest

from analysis.claims import chien2018 as claims
from tests.analysis.claims_factory import at, baseline, checklist, curve, of_single_runs, told
from tests.analysis.record_factory import id_of, scattered
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import grid, step, training

HDD, LUSTRE = {1: 100, 2: 165, 4: 195, 8: 230}, {1: 100, 2: 199, 4: 390, 8: 780}
BUFFER = "optane to hdd"
MODEL = "hdd is a disk model, 163 MB/s read, queue 32"
HERE, THERE = {"threads": 1, "storage": "hdd"}, {"threads": 2, "storage": "ssd"}


def table_1(site="blackdog", *, access="read", rates=(163.0,) * 3, emulated=None, file_mb=5000, **settings):
    """Return the baseline of hdd as a site measured it."""
    made = at(baseline("hdd", access, rates, emulated=emulated, **settings), site)
    made["cell"]["settings"]["benchmark"]["file_mb"] = file_mb
    return made


def equal(here, there, **settings):
    """Return trainings of two storages and thread counts that took so many seconds."""
    return [training([wall] * 3, **place, **settings) for wall, place in ((here, HERE), (there, THERE))]


def runtimes(storage, by_threads):
    """Return trainings without prefetch: a runtime in s for each number of threads."""
    return [training([wall] * 3, threads=n, storage=storage, prefetch=0) for n, wall in by_threads.items()]


def reading(storage, ahead, none):
    """Return trainings that read so many MB each second with prefetch and without."""
    return [
        training(
            [step(n, 100.0, read_mb_per_s=mb, bytes_read=int(mb * 1e8)) for n, mb in enumerate(scattered(rate), 1)],
            threads=8, storage=storage, prefetch=prefetch,
        )
        for prefetch, rate in ((1, ahead), (0, none))
    ]  # fmt: skip


def buffered(blocked_s=2.0, **settings):
    """Return a checkpoint straight to hdd, which takes 5.2 s, and one through a burst buffer in front of it."""
    through = saved(BUFFER, [160.0] * 3, (blocked_s, blocked_s, 7.0), **settings)
    return [saved("hdd", [180.0] * 3, (5.2,) * 3), through]


SIX, WAITED = reading("hdd", 6.0, 5.0), training([100.0, 101.0, 103.0])


@pytest.mark.parametrize(
    ("claim", "made"),
    [
        (claims.GAIN, buffered()),
        (claims.LIKE_FAST, [saved("optane", scattered(150.0)), saved(BUFFER, scattered(155.0))]),
        (claims.READS_MORE, SIX),
        (claims.SCALING["hdd", 2], curve("hdd", {1: 100.0, 2: 165.0})),
    ],
)
def test_the_interval_of_a_claim_is_what_its_runs_allow_one_by_one(claim, made):
    assert json.loads(told(claim, *made)["interval"]) == pytest.approx(of_single_runs(claim, *made), abs=1e-6)


@pytest.mark.parametrize(
    ("claim", "made", "interval"),
    [
        (claims.READ["hdd"], [table_1(rates=(160.0, 161.0, 166.0))], [160, 166]),
        # Medians 101, 105 and 102; ranges 100-103, 104-107 and 101-104: 1 s between them, 7 s in all.
        (claims.EQUAL, [training([wall, wall + 1, wall + 3], storage=name, threads=n)
                        for name, n, wall in (("hdd", 1, 100.0), ("ssd", 2, 104.0), ("hdd", 4, 101.0))],
         [1 / 102, 7 / 102]),
        # 151 - 101 = 50 s of excess, 20 s of waiting, in 151 s.
        (claims.EXCESS, [WAITED, training([150.0, 151.0, 152.0], prefetch=0, load_s=20.0)], [27 / 151, 32 / 151]),
    ],
)  # fmt: skip
def test_the_interval_of_a_claim_is_from_the_least_to_the_most_of_its_runs(claim, made, interval):
    row = told(claim, *made)

    assert json.loads(row["interval"]) == pytest.approx(interval, abs=1e-6)
    assert set(row["cells"].split()) == {id_of(each) for each in made}


def test_an_excess_is_told_pair_by_pair_and_with_one_that_differs_the_whole_does():
    ahead, none = WAITED, training([150.0, 151.0, 152.0], prefetch=0, load_s=20.0)
    rows = checklist(*grid(("hdd", "ssd")))
    whole = told(claims.EXCESS, ahead, none, *grid(("hdd",)))

    pairs = rows[rows["pair"] != ""]
    assert pairs["pair"].tolist() == [f"{storage}, threads {n}" for storage in ("hdd", "ssd") for n in (1, 2, 4, 8)]
    assert set(pairs["verdict"]) == {"holds"}
    assert (whole["verdict"], whole["ours"]) == ("differs", pytest.approx(30 / 151))
    assert "holds: 4 of 5 pairs" in whole["why"]
    assert "worst: local, threads 4" in whole["why"]


def test_sets_that_must_not_be_mixed_have_verdicts_of_their_own_and_those_of_one_cell_none_of_equality():
    rows = checklist(*equal(100.0, 100.0, batch_size=32), *equal(200.0, 200.0), *runtimes("ssd", {8: 100.0}))
    alone = checklist(*equal(100.0, 100.0), *(training([100.0] * 3, threads=8, batch_size=n) for n in (16, 32)))

    rows, alone = (each[each["claim"] == claims.EQUAL.text] for each in (rows, alone))
    assert rows["verdict"].tolist() == ["holds", "holds"]
    assert ["batch 32" in each for each in rows["about"]] == [True, False]
    assert alone["verdict"].tolist() == ["holds"]


def test_of_two_pipelines_the_one_nearer_to_the_published_ratio_counts():
    both = [*curve("hdd", {1: 100.0, 2: 120.0}), *curve("hdd", {1: 200.0, 2: 330.0}, benchmark__preprocess=False)]

    row = told(claims.SCALING["hdd", 2], *both)

    assert row["ours"] == pytest.approx(1.65)
    assert row["why"] == "hdd, 2 threads over one: Fig 4 1.20, Fig 5 1.65, the nearer counts"


def test_the_papers_gain_comes_with_all_that_it_rests_on():
    row = told(claims.GAIN, *(made := buffered()))

    assert (row["verdict"], row["unit"], row["tolerance"]) == ("holds", "times", pytest.approx(0.08))
    assert "runtime 180 s and 160 s" in row["why"]
    assert set(row["cells"].split()) == {id_of(each) for each in made}


@pytest.mark.parametrize(("model", "emulated"), [(True, "storage"), (MODEL, "emulated (model): storage")])
def test_one_storage_that_is_no_model_makes_no_verdict_of_the_model(model, emulated):
    slow, fast = curve("hdd", HDD), curve("lustre", LUSTRE)
    for each in (*slow, *fast):
        each["cell"]["settings"]["storage"]["emulated"] = MODEL if each in fast else model

    assert told(claims.LUSTRE_BEST, *slow, *fast)["emulated"] == emulated
