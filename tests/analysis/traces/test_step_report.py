"""Traces beside what else was seen of a run: POSIX calls, a time log, a system trace."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.cli.trace import main
from analysis.traces import step_report, system
from tests.analysis.training_factory import trace_text
from tests.jobs.events import spaces
from tests.jobs.events.logs import REALTIME, event, stream
from tests.jobs.events.spaces import table, written

BEGAN = 10**18
POOL = [("ReadFile:ReadFile", 10, 40), ("ReadFile:ReadFile", 50, 80), ("ReadFile:ReadFile", 110, 120)]


def test_a_system_trace_gives_bytes_to_steps_by_the_rate_of_its_intervals():
    marks = [("campaign step", 0, 10**6, 1), ("campaign step", 10**6, 3 * 10**6, 2)]
    each = spaces.traced([("python", marks)])
    samples = pd.DataFrame({"elapsed_s": [0.0, 2.0, 4.0], "read_mb_per_s": [np.nan, 10.0, 20.0]})

    found = step_report.join_system(each, system.ReadTrace("dsk/sda", samples, BEGAN / 1e9))

    assert found["mb_of_each_step"] == pytest.approx([10.0, 30.0])


def test_the_command_joins_what_a_run_left(tmp_path, capsys):
    from jobs.profiler import Profile  # noqa: PLC0415

    (tmp_path / "data").write_bytes(bytes(5000))
    with Profile("trace", only=[tmp_path]) as profiler:
        (tmp_path / "data").read_bytes()
    profiler.save(tmp_path / "profile-1.npz")
    began, ended = profiler.window.started_ns, profiler.window.ended_ns
    took = (ended - began) // 1000 + 1
    lines = [("python", [("campaign step", 0, took, 1)]), ("tf_data/1", [("ReadFile:ReadFile", 0, took)])]
    table(tmp_path / "tensorflow-1.npz", lines, began_ns=began)
    words = [str(tmp_path / "tensorflow-1.npz"), "--posix", str(tmp_path / "profile-1.npz")]

    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]["posix"]
    assert (found["bytes"], found["calls_outside"], found["bytes_of_each_step"]) == (5000, 0, [5000])
    assert main(words) == 0
    assert "1 read operations" in capsys.readouterr().out
    assert main([*words[:1], "--posix", str(tmp_path / "none.npz")]) == 2
    assert "profile missing\n\nhint: name files of the same run" in capsys.readouterr().err
    assert main([words[0], *words]) == 2
    assert "--posix, --timelog and --system need exactly one trace" in capsys.readouterr().err


def test_the_command_joins_a_time_log_and_a_system_trace(tmp_path, capsys):
    began = REALTIME // 10**9 * 10**9
    path = written(
        tmp_path / "a.xplane.pb", [("python", [("campaign step", 0, 10**7, 1)]), ("tf/1", POOL)], began_ns=began
    )
    log = stream(tmp_path / "a.timelog", [event("load", 30_000, 150_000)], at=10**6, realtime_ns=began)
    (tmp_path / "trace.csv").write_text(trace_text([3e6, 5e6] * 5).replace("1000000000.0", str(began / 1e9)))
    words = [str(path), "--timelog", str(log), "--system", str(tmp_path / "trace.csv")]

    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert (found["timelog"]["load"]["all"], found["timelog"]["load"]["read"]) == pytest.approx((120e-6, 50e-6))
    expected = {"source": "dsk/vda", "mb_of_each_step": [pytest.approx(40.0)], "edge_share": pytest.approx(0.2)}
    assert found["system"] == expected
    assert main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "40.0 MB were read in the steps, by the counter dsk/vda of the system trace" in told
    assert "the action load took 0.000120 s of the steps, with seconds of: read 0.0000500" in told


@pytest.mark.parametrize(("step_s", "rates"), [(2, [3e6, 5e6]), (10, [3e6] * 8)], ids=["long intervals", "short trace"])
def test_the_mb_read_in_the_steps_are_unknown_if_the_intervals_of_the_system_trace_are_too_long(
    step_s, rates, tmp_path, capsys
):
    began = REALTIME // 10**9 * 10**9
    path = written(tmp_path / "a.xplane.pb", [("python", [("campaign step", 0, step_s * 10**6, 1)])], began_ns=began)
    (tmp_path / "trace.csv").write_text(trace_text(rates).replace("1000000000.0", str(began / 1e9)))

    assert main([str(path), "--system", str(tmp_path / "trace.csv")]) == 0

    told = " ".join(capsys.readouterr().out.split())
    assert "the MB that were read in the steps are unknown: the intervals of the system trace are too long" in told
    assert "smaller trace.interval_s" in told
    assert "MB were read" not in told


STEP = [("campaign step", 0, 100, 1), ("campaign step", 100, 200, 2), ("campaign input", 0, 60)]


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([("python", [*STEP[:2]])], "undecided"),  # nothing else is known of the steps
        ([("python", [*STEP[:2], ("mine:Strange", 0, 199)])], "undecided"),
        ([("python", [*STEP[:2], ("a:MatMul", 0, 199)])], "not input-bound"),
        ([("python", STEP), ("tf_data/1", [("a:EagerPyFunc", 0, 200)])], "whether it reads or computes"),
        ([("python", STEP), ("tf_data/1", [("a:ReadFile", 0, 200)])], "storage"),
    ],
)
def test_the_verdict_of_a_trace_says_no_more_than_the_trace_shows(lines, word):
    assert word in step_report.step_metrics(spaces.traced(lines))["verdict"]["words"]
