"""What is read beside the record: the trace of the run in the middle, and medians of the profiles."""

import os

import pytest

from campaign.advice import evidence

TRACE = """\
"epoch","elapsed","model/hdd",,,"io pressure",,"total cpu usage",,,,,"phase"
"epoch","s","req","depth","busy","some","full","usr","sys","idl","wai","stl","phase"
1.0,0,,,²,,,,,,,,"iteration"
2.0,1,200,1,90.5,40,30,10,5,60,25,0,"iteration"
3.0,2,200,1,69.5,20,30,10,5,80,5,0,"iteration"
4.0,3,0,0,0,0,0,0,0,100,0,0,"tail"
"""


@pytest.fixture
def traced(folder, leave):
    """A cell of three runs; the path of the trace of the second, which is the one in the middle."""
    made = leave("threads=1", trace={"file": "../trace-1.csv"})
    return made, folder.cell(made["cell"]["id"]) / "trace-1.csv"


def test_of_a_trace_the_iteration_counts(traced, folder):
    made, path = traced
    path.write_text(TRACE)

    assert evidence.gathered(folder, made).trace == {
        "model/hdd busy": 80.0, "I/O pressure": 30.0, "processors idle": 70.0
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

    assert evidence.gathered(folder, made).trace == {}


def test_of_runs_and_their_profiles_the_medians_count(folder, leave):
    calls = {"opens": 3, "stats": 0, "read_s": 2.0, "meta_s": 1.0, "bytes_read": 7}

    found = evidence.gathered(folder, leave("threads=1", profile=calls))

    assert (found.profile, found["wall_s"], found["load_s"]) == (calls, 10.0, 9.9)
