"""Each claim of the paper held against records made by hand: what holds, what differs, what says nothing of it."""

import json

import pytest

from analysis.claims import chien2018 as claims
from tests.analysis.claims_factory import at, baseline, checklist, curve, of_single_runs, told
from tests.analysis.record_factory import id_of, left, record, scattered, unstable
from tests.analysis.saving_factory import paper_like, saved
from tests.analysis.training_factory import grid, step, training

HDD, SSD, OPTANE, LUSTRE = (
    {1: 100, 2: 165, 4: 195, 8: 230}, {1: 100, 2: 195, 4: 300, 8: 400}, {1: 100, 2: 198, 4: 300, 8: 500},
    {1: 100, 2: 199, 4: 390, 8: 780},
)  # fmt: skip
FAST = [*curve("ssd", SSD), *curve("optane", OPTANE)]
# 1000 images/s of 112 kB are 112 MB/s.
PIPELINE = curve("hdd", {1: 500.0, 2: 1000.0})
READ_AND_MADE = curve("ssd", {1: 100.0, 8: 400.0})
BUFFER = "optane to hdd"
MODEL = "hdd is a disk model, 163 MB/s read, queue 32"
HERE, THERE = {"threads": 1, "storage": "hdd"}, {"threads": 2, "storage": "ssd"}


def table_1(site="blackdog", *, access="read", rates=(163.0,) * 3, emulated=None, file_mb=5000, **settings):
    """Return the baseline of hdd as a site measured it."""
    made = at(baseline("hdd", access, rates, emulated=emulated, **settings), site)
    made["cell"]["settings"]["benchmark"]["file_mb"] = file_mb
    return made


def in_order(access, *rates):
    """Return baselines of the paper's storages, slowest first, with these MB/s (or these of each run)."""
    runs = (each if isinstance(each, list) else [each] * 3 for each in rates)
    return [baseline(name, access, each) for name, each in zip(claims.TABLE_1, runs, strict=False)]


def read_alone(rate):
    return [*READ_AND_MADE, *curve("ssd", {1: 200.0, 8: rate}, benchmark__preprocess=False)]


def varying(made, share, site):
    """Return a cell whose farthest run is by this share from the median."""
    return [at(unstable(made([100.0 - 100 * share, 100.0, 100.1])), site)]


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


def batches(*walls, slower=1, **settings):
    """Return trainings of these runtimes with prefetch, and so many times as long without."""
    return [
        training([wall * times] * 3, threads=8, batch_size=size, prefetch=prefetch, **settings)
        for prefetch, times in ((1, 1), (0, slower))
        for size, wall in zip((16, 32, 64), walls, strict=True)
    ]


def targets(hdd, ssd, optane):
    return [saved(name, [wall] * 3) for name, wall in (("hdd", hdd), ("ssd", ssd), ("optane", optane))]


def of_bytes(size, **settings):
    made = saved("hdd", [150.0] * 3, **settings)
    for run in made["runs"]:
        for line in run.get("checkpoints", ()):
            line["bytes"] = size
    return [made]


def drained(slow, exposed, runs=slice(None)):
    """Return a burst buffer's training whose last snapshot was on the slow storage so many seconds after its end."""
    made = saved(BUFFER, [150.0] * 3, (1.5, 1.5, slow))
    for run in made["runs"][runs]:
        if "checkpoints" in run:
            run["checkpoints"][-1]["exposed_s"] = exposed
    return [made]


def buffered(blocked_s=2.0, **settings):
    """Return a checkpoint straight to hdd, which takes 5.2 s, and one through a burst buffer in front of it."""
    through = saved(BUFFER, [160.0] * 3, (blocked_s, blocked_s, 7.0), **settings)
    return [saved("hdd", [180.0] * 3, (5.2,) * 3), through]


def on_gpu(compute_s, site):
    return [at(training([step(n, 400.0, compute_s=compute_s, accelerator="gpu (K80)") for n in (1, 2, 3)]), site)]


THREADS = [*runtimes("hdd", {1: 240.0, 4: 180.0, 8: 160.0}), *runtimes("ssd", {1: 200.0})]
SIX, ALONE, WAITED = reading("hdd", 6.0, 5.0), saved("optane", [150.0] * 3), training([100.0, 101.0, 103.0])


@pytest.mark.parametrize(
    ("claim", "made", "verdict", "ours"),
    [
        (claims.READ["hdd"], [table_1("twin", emulated=True)], "holds", 163.0),
        (claims.READ["hdd"], [table_1(rates=(170.0,) * 3, limit=0.01)], "differs", 170.0),
        (claims.READ["hdd"], [table_1(file_mb=500)], "not comparable", 163.0),
        (claims.WRITTEN["lustre"], [at(baseline("lustre", "write", [991.0] * 3), "tegner")], "holds", 991.0),
        *((claim, in_order(access, 10.0, 20.0, 30.0, 45.0), "holds", 1.5) for access, claim in claims.FASTER.items()),
        (claims.FASTER["write"], in_order("write", 10.0, 9.5, 30.0, 45.0), "differs", 0.95),
        # Of one speed is in no order: the interval holds 1.
        (claims.FASTER["read"], in_order("read", 10.0, [20, 20, 20.2], [20, 20.1, 20.2], 40.0), "differs", 1.005),
        (claims.SPREAD["micro", "blackdog"], varying(record, 0.009, "blackdog"), "holds", 0.009),
        (claims.SPREAD["micro", "tegner"], varying(record, 0.041, "tegner"), "differs", 0.041),
        (claims.SPREAD["alexnet", "tegner"], varying(training, 0.054, "tegner"), "holds", 0.054),
        (claims.SPREAD["alexnet", "tegner"], varying(training, 0.054, "mysite"), "not comparable", 0.054),
        (claims.DOUBLED, [*curve("hdd", {1: 100.0, 2: 120.0}), *FAST], "holds", 1.95),
        # The lower of the middle two of four.
        (claims.DOUBLED, [*curve("hdd", {1: 100, 2: 120}), *curve("ssd", {1: 100, 2: 149}), *FAST[4:],
                          *curve("lustre", LUSTRE)], "differs", 1.49),
        (claims.FAST_DOUBLE, [*curve("hdd", {1: 100.0, 2: 165.0}), *FAST], "holds", 195 / 165),
        (claims.FAST_DOUBLE, [*curve("hdd", {1: 100.0, 2: 196.0}), *FAST], "differs", 195 / 196),
        # Where the paper has one machine, storages of several hosts are none.
        (claims.FAST_DOUBLE, [*curve("hdd", HDD, host="node9"), *FAST], "not comparable", 195 / 165),
        (claims.SOON_FLAT, curve("hdd", HDD), "holds", (165 / 100) / (230 / 195)),
        (claims.SOON_FLAT, curve("hdd", HDD | {8: 330.0}), "differs", (165 / 100) / (330 / 195)),
        (claims.LUSTRE_BEST, [*curve("lustre", LUSTRE, host="node9"), *FAST[4:]], "holds", 780 / 500),
        (claims.LUSTRE_BEST, [*curve("lustre", LUSTRE), *curve("optane", OPTANE | {8: 781.0})], "differs", 780 / 781),
        (claims.BELOW_IOR, [*PIPELINE, table_1()], "holds", 163 / 112),
        (claims.BELOW_IOR, [*PIPELINE, table_1(rates=[100.0] * 3)], "differs", 100 / 112),
        (claims.PREPROCESSING, read_alone(900.0), "holds", 900 / 400),
        (claims.PREPROCESSING, read_alone(390.0), "differs", 390 / 400),
        (claims.SCALING["hdd", 2], curve("hdd", HDD), "holds", 1.65),
        (claims.SCALING["hdd", 2], curve("hdd", {1: 100.0, 2: 180.0}), "differs", 1.80),
        (claims.SCALING["lustre", 8], [*curve("lustre", LUSTRE), *curve("ssd", SSD)], "holds", 7.8),
        (claims.EQUAL, equal(100.0, 104.5, limit=0.04), "holds", 4.5 / 102.25),
        (claims.EQUAL, equal(100.0, 104.5, limit=0.02), "differs", 4.5 / 102.25),
        (claims.EXCESS, grid(("hdd", "ssd")), "holds", 0),
        (claims.THREADS_ON_HDD, [*THREADS, *runtimes("ssd", {8: 190.0})], "holds", (240 / 160) / (200 / 190)),
        (claims.THREADS_ON_HDD, [*THREADS, *runtimes("ssd", {8: 120.0})], "differs", (240 / 160) / (200 / 120)),
        # The paper has no lustre without prefetch.
        (claims.THREADS_ON_HDD, [*THREADS, *runtimes("ssd", {8: 190.0}), *runtimes("lustre", {1: 400.0, 8: 100.0})],
         "holds", (240 / 160) / (200 / 190)),
        (claims.READS_MORE, SIX, "holds", 6 / 5),
        (claims.READS_MORE, reading("hdd", 5.0, 5.0), "differs", 1),
        (claims.LESS_ON_SSD, [*SIX, *reading("ssd", 5.5, 5.0)], "holds", (6 / 5) / (5.5 / 5)),
        (claims.LESS_ON_SSD, [*SIX, *reading("ssd", 7.0, 5.0)], "differs", (6 / 5) / (7 / 5)),
        (claims.BATCH, batches(100.0, 80.0, 70.0, slower=2), "holds", 80 / 70),
        (claims.BATCH, batches(100.0, 80.0, 90.0, slower=2), "differs", 80 / 90),
        (claims.BATCH, batches(100.0, 80.0, 70.0, slower=2, step_s=1.5), "not comparable", 80 / 70),
        # 9,088 images in batches of 64 are 142 steps.
        (claims.STEP, on_gpu(142 * 1.5, "tegner"), "holds", 1.5),
        (claims.STEP, on_gpu(142 * 0.4, "tegner"), "differs", 0.4),
        (claims.STEP, on_gpu(142 * 1.5, "mysite"), "not comparable", 1.5),
        (claims.TARGETS, paper_like(), "holds", (150.5 + 26.5) / (150.5 + 18)),
        (claims.TARGETS, targets(170.0, 160.0, 165.0), "differs", 160 / 165),
        (claims.TARGETS, targets(170.0, 160.0, 160.0), "differs", 1),
        (claims.LIKE_FAST, [ALONE, saved(BUFFER, [161.9] * 3)], "holds", 11.9 / 150),
        (claims.LIKE_FAST, [ALONE, saved(BUFFER, [163.0] * 3)], "differs", 13 / 150),
        (claims.GAIN, buffered(1.0), "holds", 5.2),
        (claims.GAIN, buffered(2.2), "differs", 5.2 / 2.2),
        (claims.GAIN, buffered(host="node2"), "not comparable", 2.6),
        (claims.SNAPSHOT, of_bytes(551e6), "holds", 551),
        # It says nothing of the site, nor does a thinner network of the paper's.
        (claims.SNAPSHOT, of_bytes(704e6), "not comparable", 704),
        (claims.SNAPSHOT, of_bytes(600e6, benchmark__width=0.125), "not comparable", 600),
        (claims.LATER, drained(6.5, 0.0), "holds", 6.5 / 1.5),
        (claims.LATER, drained(1.5, 0.0), "differs", 1),
        (claims.DRAIN, drained(6.5, 4.0), "holds", 4),
        # One run of several that copied on is no copying after the end.
        (claims.DRAIN, drained(6.5, 0.4, slice(-1, None)), "differs", 0),
    ],
)  # fmt: skip
def test_a_claim_holds_or_differs(claim, made, verdict, ours):
    row = told(claim, *made)

    units = {claims.STEP: "s", claims.DRAIN: "s", claims.SNAPSHOT: "MB", claims.READ["hdd"]: "MB/s"}
    units |= dict.fromkeys((claims.LIKE_FAST, claims.EQUAL, claims.EXCESS, *claims.SPREAD.values()), "share")
    units[claims.WRITTEN["lustre"]] = "MB/s"
    assert (row["verdict"], row["unit"]) == (verdict, units.get(claim, "times"))
    assert row["ours"] == pytest.approx(ours, rel=0.01 if claim in claims.SPREAD.values() else 1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("claim", "made"),
    [
        (claims.READ["hdd"], [baseline("hdd", "random_read", [163.0] * 3)]),
        (claims.READ["hdd"], [baseline("scratch", "read", [163.0] * 3)]),
        (claims.READ["hdd"], [table_1(cache="warm")]),
        (claims.FASTER["read"], in_order("read", 10.0, 20.0, 30.0)),
        (claims.DOUBLED, curve("ssd", SSD)),
        (claims.FAST_DOUBLE, [*curve("hdd", HDD), *curve("ssd", SSD)]),
        (claims.BELOW_IOR, [*PIPELINE, baseline("ssd", "read", [163.0] * 3)]),
        (claims.SOON_FLAT, curve("hdd", HDD, cache="warm")),
        (claims.SOON_FLAT, [left(each, "failed") for each in curve("hdd", HDD)]),
        # Two storages and two thread counts are needed, and cells that are done, with prefetch and with their input.
        (claims.EQUAL, [training([100.0] * 3, threads=4, storage=name) for name in ("hdd", "ssd")]),
        (claims.EQUAL, [training([100.0] * 3, threads=n, storage="hdd") for n in (1, 4)]),
        (claims.EQUAL, [equal(100.0, 100.0)[0], left(equal(100.0, 100.0)[1], "failed")]),
        (claims.EQUAL, equal(100.0, 100.0, prefetch=0)),
        (claims.EQUAL, equal(100.0, 100.0, control="no_io")),
        (claims.EXCESS, [WAITED]),
        (claims.EXCESS, [WAITED, left(training([110.0], prefetch=0), "invalid")]),
        (claims.THREADS_ON_HDD, THREADS[:3]),
        (claims.READS_MORE, reading("ssd", 6.0, 5.0)),
        (claims.BATCH, batches(100.0, 80.0, 70.0)[:4]),
        (claims.STEP, [at(training([400.0] * 3, step_s=1.5), "tegner")]),
        (claims.TARGETS, targets(170.0, 160.0, 150.0)[:2]),
        (claims.LIKE_FAST, [saved("ssd", [150.0] * 3), saved(BUFFER, [150.0] * 3)]),
        (claims.SNAPSHOT, [saved("hdd", [150.0] * 3)]),
        (claims.DRAIN, [saved("hdd", [150.0] * 3)]),
        (claims.GAIN, [saved(BUFFER, [160.0] * 3, (1.0, 1.0, 7.0)), saved("ssd", [170.0] * 3)]),
        # Training does not stand still for these.
        (claims.GAIN, [saved(each, [160.0] * 3, mode="async") for each in (BUFFER, "hdd")]),
    ],
)
def test_a_claim_of_which_cells_are_missing_is_not_measured(claim, made):
    assert told(claim, *made)["verdict"] == "not measured"


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
