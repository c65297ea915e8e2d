"""What is read beside the record: the trace of the run in the middle, and medians of the profiles."""

import os

import numpy as np
import pytest

from campaign.advice import evidence
from tests.campaign.advice.conftest import verdicts_of

TRACE = """\
"epoch","elapsed","model/hdd",,,"io pressure",,"total cpu usage",,,,,"phase"
"epoch","s","req","depth","busy","some","full","usr","sys","idl","wai","stl","phase"
1.0,0,,,²,,,,,,,,"iteration"
2.0,1,200,1,90.5,40,30,10,5,60,25,0,"iteration"
3.0,2,200,1,69.5,20,30,10,5,80,5,0,"iteration"
3.5,2,200,1,20.0,30,50,10,5,85,5,0,"iteration"
4.0,3,0,0,0,0,0,0,0,100,0,0,"tail"
"""


@pytest.fixture
def traced(folder, leave):
    """A cell of four runs, of which the first one is the upper of the two in the middle; and where its trace is."""
    made = leave("threads=1", runs=4)
    for number, run in enumerate(made["runs"]):
        run["trace"] = {"file": f"../trace-{number}.csv"}
    return made, folder.cell(made["cell"]["id"]) / "trace-0.csv"


def test_of_a_trace_the_mean_over_the_iteration_counts(traced, folder):
    made, path = traced
    path.write_text(TRACE)

    verdicts = verdicts_of(folder)
    assert evidence.gather_evidence(verdicts, verdicts.judge(made)).trace == {
        "model/hdd busy": 60.0, "I/O pressure": 30.0, "processors idle": 75.0
    }  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda _: None,
        os.mkfifo,
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.write_bytes(b"\xff\n\xff\n"),
        lambda path: path.write_text("a,b"),
    ],
)
def test_a_trace_that_cannot_be_read_tells_nothing(make, traced, folder):
    made, path = traced
    make(path)

    verdicts = verdicts_of(folder)
    assert evidence.gather_evidence(verdicts, verdicts.judge(made)).trace == {}


@pytest.mark.parametrize("runs", [3, 4])
def test_of_runs_and_their_profiles_the_medians_count(runs, known):
    calls = {"opens": 3, "stats": 0, "read_s": 2.0, "meta_s": 1.0, "bytes_read": 57_344_000}

    found = known("threads=1", "benchmark=alexnet", profile=calls, steps={"number": 2, "first_load_s": 0.5}, runs=runs)

    factors = [1 / faster for faster in (1, 0.99, 1.02, 1.01)[:runs]]
    middle = np.median(factors)
    assert {name: found.profile[name] for name in calls} == pytest.approx(
        calls | {"read_s": 2.0 * middle, "meta_s": 1.0 * middle}
    )
    assert (found["wall_s"], found["load_s"]) == pytest.approx((10.0 * middle, 9.9 * middle))
    assert (found.steps.first_s, found.steps.number) == (pytest.approx(0.5 * middle), 2)
    assert sorted(found.rates["wall_s"]) == pytest.approx(sorted(10.0 * factor for factor in factors))
