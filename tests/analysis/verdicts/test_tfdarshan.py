"""What the paper of tf-Darshan claims, held against records of profiled cells."""

import pytest

from analysis.verdicts import claims, tfdarshan
from analysis.verdicts.checklist import verdicts
from analysis.verdicts.judge import DIFFERS, HOLDS, NOT_COMPARABLE, NOT_MEASURED
from tests.analysis.claims_factory import curve, told
from tests.analysis.record_factory import of_benchmark, record, run
from tests.analysis.training_factory import frames, step, training

IMAGENET = {"opens": 100, "reads": 200, "sequential": 0.5, "consecutive": 0.5, "read_sizes": [100, 0, 0, 100, *[0] * 6]}
MALWARE = {
    "opens": 100, "reads": 600, "sequential": 0.83, "consecutive": 0.83, "read_sizes": [100, 0, 0, 0, 500, *[0] * 5],
}  # fmt: skip


def imagenet(storage="lustre", threads=1, rate=3.0, load_s=96.0, **calls):
    """Return a profiled cell of AlexNet whose three runs took about 100 s."""
    profile = IMAGENET | {"read_mb_per_s": rate} | calls
    runs = [step(n, 100.0 + n / 100, load_s=load_s, profile=profile) for n in (1, 2, 3)]
    made = training(runs, storage=storage, threads=threads, profile={"posix": "trace"})
    made["cell"]["settings"]["dataset"] = {**made["cell"]["settings"]["dataset"], "name": "imagenet_subset"}
    return made


def malware(threads=1, rate=94.0, staging=None, **calls):
    """Return a profiled cell of Malware from hdd."""
    made = imagenet("hdd", threads, **{**MALWARE, "rate": rate}, **calls)
    made["cell"]["benchmark"] = "malware"
    made["cell"]["settings"]["dataset"] |= {"name": "malware"}
    made["cell"]["settings"] |= {"benchmark": {"name": "malware"}} | ({"staging": staging} if staging else {})
    return of_benchmark(made, "malware", f"malware-t{threads}-{staging}") | {"cell": made["cell"] | {
        "id": f"malware-t{threads}-{staging}", "kind": "training", "figure": "wall_s", "unit": "s", "better": "lower",
    }}  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "calls", "verdict"),
    [
        (tfdarshan.TWICE, {}, HOLDS),
        (tfdarshan.TWICE, {"reads": 300}, DIFFERS),
        (tfdarshan.NOTHING, {}, HOLDS),
        (tfdarshan.NOTHING, {"read_sizes": [10, 0, 0, 190, *[0] * 6]}, DIFFERS),
        (tfdarshan.NEITHER, {}, HOLDS),
        (tfdarshan.NEITHER, {"sequential": 0.9}, DIFFERS),
        (tfdarshan.WAITS["alexnet"], {}, HOLDS),
        (tfdarshan.WAITS["alexnet"], {"load_s": 20.0}, DIFFERS),
    ],
)
def test_reads_of_small_files_are_counted(claim, calls, verdict):
    assert told(claim, imagenet(**calls))["verdict"] == verdict


def test_images_of_others_are_not_imagenet():
    made = imagenet()
    made["cell"]["settings"]["dataset"] |= {"name": "caltech101"}

    assert told(tfdarshan.TWICE, made)["verdict"] == NOT_MEASURED


def test_how_long_an_emulated_step_waits_says_nothing():
    made = imagenet()
    made["cell"]["settings"]["accelerator"] = {"name": "emulated", "step_s": 0.1}

    assert told(tfdarshan.WAITS["alexnet"], made)["verdict"] == NOT_COMPARABLE


@pytest.mark.parametrize(("many", "verdict"), [(24.0, HOLDS), (12.0, DIFFERS)])
def test_28_threads_are_held_against_one(many, verdict):
    row = told(tfdarshan.SCALES, imagenet(), imagenet(threads=28, rate=many))

    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(many / 3))


@pytest.mark.parametrize(
    ("claim", "calls", "verdict"),
    [
        (tfdarshan.WHOLE, {}, HOLDS),
        (tfdarshan.WHOLE, {"read_sizes": [400, 0, 0, 0, 200, *[0] * 5]}, DIFFERS),
        (tfdarshan.FOLLOWS, {}, HOLDS),
        (tfdarshan.FOLLOWS, {"consecutive": 0.4}, DIFFERS),
    ],
)
def test_reads_of_large_files_are_counted(claim, calls, verdict):
    made = malware()
    for each in made["runs"][1:]:
        each["profile"] |= calls

    assert told(claim, made)["verdict"] == verdict


@pytest.mark.parametrize(("many", "verdict"), [(77.0, HOLDS), (99.0, DIFFERS)])
def test_16_threads_from_hdd_are_held_against_one(many, verdict):
    assert told(tfdarshan.FEWER, malware(), malware(16, many))["verdict"] == verdict


@pytest.mark.parametrize(("rate", "verdict"), [(112.0, HOLDS), (98.0, DIFFERS)])
def test_staged_files_are_held_against_those_that_are_not(rate, verdict):
    staged = malware(rate=rate, staging="smallest")
    staged["provenance"]["emulated"] = {"staging": {"read_mb_per_s": 1600}}

    row = told(tfdarshan.STAGED, malware(), staged)

    assert (row["verdict"], row["published"]) == (verdict, "1.19 times")


@pytest.mark.parametrize("rule", ["all", "largest"])
def test_what_is_staged_by_other_rules_says_nothing_of_small_files(rule):
    assert told(tfdarshan.STAGED, malware(), malware(rate=200.0, staging=rule))["verdict"] == NOT_MEASURED


@pytest.mark.parametrize("control", ["no_io", "no_compute"])
def test_a_control_is_no_training_that_waits(control):
    made = imagenet()
    made["cell"]["settings"]["benchmark"]["control"] = control

    assert told(tfdarshan.WAITS["alexnet"], made)["verdict"] == NOT_MEASURED


def test_files_that_were_open_before_the_window_give_no_verdict():
    assert told(tfdarshan.TWICE, imagenet(opens=0))["verdict"] == NOT_MEASURED


@pytest.mark.parametrize(("cost", "verdict"), [(1.05, HOLDS), (1.4, DIFFERS)])
def test_a_profile_is_held_against_the_cell_without(cost, verdict):
    plain = curve("hdd", {4: 100.0})[0]
    seen = record([100.0 / cost] * 3, storage="hdd", profile={"posix": "trace"})
    divided = record([50.0] * 3, storage="hdd", profile={"posix": "trace", "every": 5})

    row = told(tfdarshan.OVERHEAD, plain, seen, divided)

    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(cost - 1))


def saving(**calls):
    """Return a profiled cell of AlexNet that saved ten checkpoints."""
    made = imagenet("hdd", 4, **calls)
    made["cell"]["settings"]["checkpoint"] = {"name": "hdd", "every": 1, "keep": 10, "mode": "sync"}
    for each in made["runs"][1:]:
        each["checkpoints_asked"] = 10
    return made


def test_fwrite_calls_of_checkpoints_are_counted():
    row = told(tfdarshan.STREAMS, saving(stream_writes=220))

    assert (row["verdict"], row["ours"]) == (HOLDS, 220)
    assert "22 in each of 10 checkpoints" in row["why"]


def test_the_second_paper_has_rows_where_anything_was_profiled_and_none_elsewhere():
    with_profile, without = (
        verdicts(*frames(*made)[:2]) for made in ([imagenet()], curve("hdd", {1: 100.0, 2: 150.0}))
    )

    assert {claim.text for claim in (*claims.CLAIMS, *tfdarshan.CLAIMS)} == set(with_profile["claim"])
    assert not {claim.text for claim in tfdarshan.CLAIMS} & set(without["claim"])
    left = with_profile[with_profile["claim"] == tfdarshan.STAGED.text].iloc[0]
    assert (left["verdict"], "+paper=tfdarshan_fig12" in left["measure"]) == (NOT_MEASURED, True)


def test_a_profile_of_another_benchmark_proves_nothing_of_these():
    made = record([run(n, 100.0, profile=IMAGENET) for n in (1, 2, 3)], profile={"posix": "counters"})

    assert told(tfdarshan.TWICE, made)["verdict"] == NOT_MEASURED
