"""Each claim of the paper on the mini-application and its checkpoints, held against records made by hand."""

import json

import pytest

from analysis.verdicts import all_claims as claims
from tests.analysis.claims_factory import at, curve, of_single_runs, told
from tests.analysis.record_factory import id_of, scattered, unstable
from tests.analysis.saving_factory import paper_like, saved
from tests.analysis.training_factory import step, training

BUFFER = "optane to hdd"


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
    return made


def drained(slow, exposed, runs=slice(None)):
    """Return a burst buffer's training whose last snapshot was on the slow storage so many seconds after its end."""
    made = saved(BUFFER, [150.0] * 3, (1.5, 1.5, slow))
    for run in made["runs"][runs]:
        if "checkpoints" in run:
            run["checkpoints"][-1]["exposed_s"] = exposed
    return made


def buffered(blocked_s=2.0, **settings):
    """Return a checkpoint straight to hdd, which takes 5.2 s, and one through a burst buffer in front of it."""
    through = saved(BUFFER, [160.0] * 3, (blocked_s, blocked_s, 7.0), **settings)
    return [saved("hdd", [180.0] * 3, (5.2,) * 3), through]


def on_gpu(compute_s, site):
    return [at(training([step(n, 400.0, compute_s=compute_s, accelerator="gpu (K80)") for n in (1, 2, 3)]), site)]


THREADS = [*runtimes("hdd", {1: 240.0, 4: 180.0, 8: 160.0}), *runtimes("ssd", {1: 200.0})]
HDD, ALONE = reading("hdd", 6.0, 5.0), saved("optane", [150.0] * 3)


@pytest.mark.parametrize(
    ("claim", "made", "verdict", "ours"),
    [
        (claims.THREADS_ON_HDD, [*THREADS, *runtimes("ssd", {8: 190.0})], "holds", (240 / 160) / (200 / 190)),
        (claims.THREADS_ON_HDD, [*THREADS, *runtimes("ssd", {8: 120.0})], "differs", (240 / 160) / (200 / 120)),
        # The paper has no lustre without prefetch.
        (
            claims.THREADS_ON_HDD,
            [*THREADS, *runtimes("ssd", {8: 190.0}), *runtimes("lustre", {1: 400.0, 8: 100.0})],
            "holds",
            (240 / 160) / (200 / 190),
        ),
        (claims.READS_MORE, HDD, "holds", 6 / 5),
        (claims.READS_MORE, reading("hdd", 5.0, 5.0), "differs", 1),
        (claims.LESS_ON_SSD, [*HDD, *reading("ssd", 5.5, 5.0)], "holds", (6 / 5) / (5.5 / 5)),
        (claims.LESS_ON_SSD, [*HDD, *reading("ssd", 7.0, 5.0)], "differs", (6 / 5) / (7 / 5)),
        (claims.BATCH, batches(100.0, 80.0, 70.0, slower=2), "holds", 80 / 70),
        (claims.BATCH, batches(100.0, 80.0, 90.0, slower=2), "differs", 80 / 90),
        (claims.BATCH, batches(100.0, 80.0, 70.0, slower=2, step_s=1.5), "not comparable", 80 / 70),
        # 9,088 images in batches of 64 are 142 steps.
        (claims.STEP, on_gpu(142 * 1.5, "tegner"), "holds", 1.5),
        (claims.STEP, on_gpu(142 * 0.4, "tegner"), "differs", 0.4),
        (claims.STEP, on_gpu(142 * 1.5, "mysite"), "not comparable", 1.5),
        (claims.TARGETS, paper_like(), "holds", (150.5 + 26.5) / (150.5 + 18)),
        (claims.TARGETS, targets(170.0, 160.0, 150.0), "holds", 170 / 160),
        (claims.TARGETS, targets(170.0, 160.0, 165.0), "differs", 160 / 165),
        (claims.TARGETS, targets(170.0, 160.0, 160.0), "differs", 1),
        (claims.LIKE_FAST, [ALONE, saved(BUFFER, [150.0] * 3)], "holds", 0),
        (claims.LIKE_FAST, [ALONE, saved(BUFFER, [161.9] * 3)], "holds", 11.9 / 150),
        (claims.LIKE_FAST, [ALONE, saved(BUFFER, [163.0] * 3)], "differs", 13 / 150),
        (claims.SNAPSHOT, [of_bytes(551e6)], "holds", 551),
        (claims.SNAPSHOT, [of_bytes(649e6)], "holds", 649),
        # It says nothing of the site, nor does a thinner network of the paper's.
        (claims.SNAPSHOT, [of_bytes(704e6)], "not comparable", 704),
        (claims.SNAPSHOT, [of_bytes(540e6)], "not comparable", 540),
        (claims.SNAPSHOT, [of_bytes(600e6, benchmark__width=0.125)], "not comparable", 600),
        (claims.LATER, [drained(6.5, 0.0)], "holds", 6.5 / 1.5),
        (claims.LATER, [drained(1.5, 0.0)], "differs", 1),
        (claims.DRAIN, [drained(6.5, 4.0)], "holds", 4),
        (claims.DRAIN, [drained(6.5, 0.0)], "differs", 0),
        # One run of several that copied on is no copying after the end.
        (claims.DRAIN, [drained(6.5, 0.4, slice(-1, None))], "differs", 0),
        (claims.GAIN, buffered(1.0), "holds", 5.2),
        (claims.GAIN, buffered(2.08), "holds", 2.5),
        (claims.GAIN, buffered(2.2), "differs", 5.2 / 2.2),
        (claims.GAIN, buffered(host="node2"), "not comparable", 2.6),
    ],
)
def test_a_claim_holds_or_differs(claim, made, verdict, ours):
    row = told(claim, *made)

    unit = {claims.STEP: "s", claims.DRAIN: "s", claims.SNAPSHOT: "MB", claims.LIKE_FAST: "share"}.get(claim, "times")
    assert (row["verdict"], row["ours"], row["unit"]) == (verdict, pytest.approx(ours, abs=1e-12), unit)


@pytest.mark.parametrize(
    ("claim", "made"),
    [
        (claims.GAIN, buffered()),
        (claims.LIKE_FAST, [saved("optane", scattered(150.0)), saved(BUFFER, scattered(155.0))]),
        (claims.READS_MORE, HDD),
        (claims.SCALING["hdd", 2], curve("hdd", {1: 100.0, 2: 165.0})),
    ],
)
def test_the_interval_of_a_claim_is_what_its_runs_allow_one_by_one(claim, made):
    assert json.loads(told(claim, *made)["interval"]) == pytest.approx(of_single_runs(claim, *made), abs=1e-6)


@pytest.mark.parametrize(
    ("claim", "made"),
    [
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


def test_the_papers_gain_comes_with_all_that_it_rests_on():
    made = buffered()

    row = told(claims.GAIN, *made)

    assert (row["verdict"], row["unit"], row["tolerance"]) == ("holds", "times", pytest.approx(0.08))
    assert "runtime 180 s and 160 s" in row["why"]
    assert set(row["cells"].split()) == {id_of(each) for each in made}


def test_the_gain_is_not_comparable_where_an_unstable_cell_leaves_it_open():
    direct, buffer = buffered()
    shaky = unstable(direct)
    for place, run in enumerate(run for run in shaky["runs"] if "checkpoints" in run):
        for line in run["checkpoints"]:
            line["blocked_s"] -= place

    assert told(claims.GAIN, shaky, buffer)["verdict"] == "not comparable"


@pytest.mark.parametrize("model", [None, "hdd is a disk model"])
def test_the_gain_of_a_small_version_is_not_comparable_whatever_serves_its_storages(model):
    small = [each | {"campaign": each["campaign"] | {"size": "smoke"}} for each in buffered()]
    for settings in (each["cell"]["settings"] for each in small):
        target = settings["checkpoint"]
        for storage in (settings["storage"], target.get("fast", target), target.get("slow", target)):
            storage["emulated"] = model
    row = told(claims.GAIN, *small)

    assert row["verdict"] == "not comparable"
    assert row["emulated"].startswith("emulated (model)") == bool(model)
