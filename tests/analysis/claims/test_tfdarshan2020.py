"""What the paper of tf-Darshan claims, held against records of profiled cells."""

import json

import pytest

from analysis.claims import chien2018
from analysis.claims import tfdarshan2020 as tfdarshan
from analysis.claims.judge_claim import NOT_COMPARABLE, NOT_MEASURED
from tests.analysis.claims_factory import checklist, curve, told
from tests.analysis.record_factory import record, run
from tests.analysis.training_factory import step, training

IMAGENET = {"opens": 100, "reads": 200, "sequential": 0.5, "consecutive": 0.5, "read_sizes": [100, 0, 0, 100, *[0] * 6]}
MALWARE = {
    "opens": 100, "reads": 600, "sequential": 0.83, "consecutive": 0.83, "read_sizes": [100, 0, 0, 0, 500, *[0] * 5],
}  # fmt: skip


def imagenet(storage="lustre", threads=1, rate=3.0, *, load_s=96.0, dataset="imagenet_subset", how=None, **calls):  # noqa: PLR0913
    """Return a profiled cell of AlexNet whose three runs took about 100 s; `how` is more of `training`."""
    profile = IMAGENET | {"read_mb_per_s": rate} | calls
    runs = [step(n, 100.0 + n / 100, load_s=load_s, profile=profile) for n in (1, 2, 3)]
    settings = {"profile": {"posix": "trace"}, "dataset__name": dataset} | (how or {})
    return training(runs, storage=storage, threads=threads, **settings)


def malware(threads=1, rate=94.0, staging=None, **calls):
    """Return a profiled cell of Malware from hdd."""
    made = imagenet("hdd", threads, rate, dataset="malware", **(MALWARE | calls))
    made["cell"]["settings"] |= {"benchmark": {"name": "malware"}} | ({"staging": staging} if staging else {})
    merit = {"kind": "training", "figure": "wall_s", "unit": "s", "better": "lower"}
    made["cell"] |= {"benchmark": "malware", "id": f"malware-t{threads}-{staging}"} | merit
    return made


def saving(**calls):
    """Return a profiled cell of AlexNet that saved ten checkpoints."""
    made = imagenet("hdd", 4, **calls)
    made["cell"]["settings"]["checkpoint"] = {"name": "hdd", "every": 1, "keep": 10, "mode": "sync"}
    for each in made["runs"][1:]:
        each["checkpoints_asked"] = 10
    return made


def staged(rate):
    """Return a cell of which a model served the staged files, behind the one without."""
    made = malware(rate=rate, staging="smallest")
    made["provenance"]["emulated"] = {"staging": {"read_mb_per_s": 1600}}
    return [malware(), made]


def compared(cost):
    """Return a cell, the same profiled, which takes so many times as long, and one whose profile was divided."""
    seen, divided = (
        record([rate] * 3, storage="hdd", profile={"posix": "trace"} | more)
        for rate, more in ((100.0 / cost, {}), (50.0, {"every": 5}))
    )
    return [*curve("hdd", {4: 100.0}), seen, divided]


@pytest.mark.parametrize(
    ("claim", "quantity"),
    [
        (tfdarshan.WAITS["alexnet"], lambda run: run["load_s"] / run["wall_s"]),
        (tfdarshan.TWICE, lambda run: run["profile"]["reads"] / run["profile"]["opens"]),
        (tfdarshan.HALF_SMALL_READS, lambda run: run["profile"]["read_sizes"][0] / run["profile"]["reads"]),
        (tfdarshan.NEITHER, lambda run: 1 - run["profile"]["sequential"]),
        (chien2018.STEP, lambda run: run["compute_s"] * 64 / run["images"]),
    ],
)
def test_a_quantity_of_a_cell_is_that_of_each_run_and_its_interval_their_range(claim, quantity):
    # The ratio of the medians, 30 s of 100 s, is not the median of the ratios.
    changes = ((100.0, 10.0, 9088, 300), (60.0, 50.0, 4544, 150), (200.0, 30.0, 6400, 250))
    runs = []
    for number, (wall_s, load_s, images, reads) in enumerate(changes, 1):
        calls = {
            "reads": reads,
            "read_sizes": [int(load_s), *[0] * 8, reads - int(load_s)],
            "sequential": load_s / wall_s,
        }
        runs.append(step(number, wall_s, load_s=load_s, images=images, profile=IMAGENET | calls))
    cell = training(runs, storage="lustre", threads=1, profile={"posix": "trace"}, dataset__name="imagenet_subset")

    (row,) = [row for _, row in checklist(cell).iterrows() if row["claim"] == claim.text]

    least, median, most = sorted(map(quantity, runs))
    assert row["ours"] == pytest.approx(median)
    assert json.loads(row["interval"]) == pytest.approx([least, most], abs=1e-6)


@pytest.mark.parametrize(
    ("claim", "made", "verdict"),
    [
        # Images of others are not ImageNet.
        (tfdarshan.TWICE, [imagenet(dataset="caltech101")], NOT_MEASURED),
        # Files that were open before the window were not opened in it.
        (tfdarshan.TWICE, [imagenet(opens=0)], NOT_MEASURED),
        (tfdarshan.TWICE, [record([run(n, 100.0, profile=IMAGENET) for n in (1, 2, 3)], profile={"posix": "counters"})],
         NOT_MEASURED),
        # A step of an emulated accelerator is as long as it was told to be, and a control is no training.
        (tfdarshan.WAITS["alexnet"], [imagenet(how={"step_s": 0.1})], NOT_COMPARABLE),
        (tfdarshan.WAITS["alexnet"], [imagenet(how={"control": "no_io"})], NOT_MEASURED),
        (tfdarshan.WAITS["alexnet"], [imagenet(how={"control": "no_compute"})], NOT_MEASURED),
        # Other rules than of small files were followed.
        (tfdarshan.STAGED, [malware(), malware(rate=200.0, staging="all")], NOT_MEASURED),
        (tfdarshan.STAGED, [malware(), malware(rate=200.0, staging="largest")], NOT_MEASURED),
    ],
)  # fmt: skip
def test_what_says_nothing_of_a_claim_gives_no_verdict(claim, made, verdict):
    assert told(claim, *made)["verdict"] == verdict


def test_the_calls_of_each_checkpoint_are_told():
    row = told(tfdarshan.STREAMS, saving(stream_writes=220))

    assert "22 in each of 10 checkpoints" in row["why"]
    assert (row["unit"], row["published"]) == ("calls", "1,400 in ten checkpoints")


def test_the_second_paper_has_rows_where_anything_was_profiled_and_none_elsewhere():
    with_profile, without = checklist(imagenet()), checklist(*curve("hdd", {1: 100.0, 2: 150.0}))

    assert {claim.text for claim in (*chien2018.CLAIMS, *tfdarshan.CLAIMS)} == set(with_profile["claim"])
    assert not {claim.text for claim in tfdarshan.CLAIMS} & set(without["claim"])
    left = with_profile[with_profile["claim"] == tfdarshan.STAGED.text].iloc[0]
    assert (left["verdict"], "+paper=tfdarshan_fig12" in left["measure"]) == (NOT_MEASURED, True)
