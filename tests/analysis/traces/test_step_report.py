"""Traces beside what else was seen of a run: POSIX calls, a time log, a system trace."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.cli.trace import main
from analysis.traces import step_report, system
from jobs.events.table import Events
from tests.analysis.training_factory import trace_text
from tests.jobs.events import spaces
from tests.jobs.events.logs import REALTIME, event, stream
from tests.jobs.events.spaces import table, written
from tests.jobs.events.windows import window

BEGAN = 10**18
STEP = [("campaign step", 0, 100, 1), ("campaign step", 100, 200, 2), ("campaign input", 0, 60)]
POOL = [("ReadFile:ReadFile", 10, 40), ("ReadFile:ReadFile", 50, 80), ("ReadFile:ReadFile", 110, 120)]
OTHER_POOL = [("ReadFile:ReadFile", 20, 90)]
LINES = [("python", STEP), ("tf_data/1", POOL), ("tf_data/2", OTHER_POOL)]
# Thread, start and end in µs, bytes.
CALLS = [(7, 12, 20, 100), (7, 20, 25, 0), (7, 52, 79, 200), (9, 30, 80, 400), (7, 95, 99, 50), (7, 111, 119, 25)]


def profile(calls, began=BEGAN):
    return window([(thread, 1000 * start, 1000 * end, size) for thread, start, end, size in calls], began)


@pytest.fixture
def traced():
    return spaces.traced(LINES)


READS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15)), max_size=10)
SEEN = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=10)


def grid(rows):
    """The moments in any of the intervals, µs."""
    return {moment for _, start, taken in rows for moment in range(start, start + taken)}


@given(READS, SEEN)
def test_calls_and_operations_one_in_another_count_as_on_a_grid(reads, seen):
    lines = [(f"tf_data/{n}", [("a:ReadFile", at, at + taken) for of, at, taken in reads if of == n]) for n in range(3)]
    marks = [("campaign step", 0, 25, 1), ("campaign step", 25, 45, 2)]

    found = step_report.join_calls(
        spaces.traced([("python", marks), *lines]), profile([(of, at, at + taken, 1) for of, at, taken in seen])
    )

    operations = [grid(each for each in reads if each[0] == n) for n in range(3)]
    held = [[] for _ in operations]
    for thread in range(3):
        own = [each for each in seen if each[0] == thread]
        inside = [[each for each in own if each[2] and grid([each]) <= moments] for moments in operations]
        inside = [[*each, *(call for call in own if not call[2] and {call[1], call[1] - 1} & moments)]
                  for each, moments in zip(inside, operations, strict=True)]  # fmt: skip
        line = max(range(3), key=lambda n: len(inside[n]))
        held[line] += inside[line]
    spent = sum(len(grid(each)) for each in held)
    assert found["operations_s"] * 1e6 == pytest.approx(sum(map(len, operations)))
    assert (found["calls"], found["calls_s"] * 1e6) == (sum(map(len, held)), pytest.approx(spent))
    assert found["neither_s"] * 1e6 == pytest.approx(sum(map(len, operations)) - spent)
    assert (found["bytes"], found["bytes_outside"]) == (found["calls"], len(seen) - found["calls"])
    begun = [at for _, at, _ in seen]
    assert found["bytes_of_each_step"] == [sum(at < 25 for at in begun), sum(25 <= at < 45 for at in begun)]


def test_what_went_on_during_an_action_of_the_time_log(traced):
    times = {"start": np.array([BEGAN + 30_000]), "end": np.array([BEGAN + 150_000])}
    events = Events({}, **times, kind=np.zeros(1, np.int64))

    found = step_report.join_time_log(traced, SimpleNamespace(events=events, actions=["load"]))

    assert found["load"]["all"] == pytest.approx(120e-6)
    assert found["load"]["read"] == pytest.approx((90 - 30 + 10) * 1e-6)
    assert found["load"]["input wait"] == pytest.approx(30e-6)


def test_a_system_trace_gives_bytes_to_steps_by_the_rate_of_its_intervals():
    marks = [("campaign step", 0, 10**6, 1), ("campaign step", 10**6, 3 * 10**6, 2)]
    each = spaces.traced([("python", marks)])
    samples = pd.DataFrame({"elapsed_s": [0.0, 2.0, 4.0], "read_mb_per_s": [np.nan, 10.0, 20.0]})

    found = step_report.join_system(each, system.ReadTrace("dsk/sda", samples, BEGAN / 1e9))

    assert found["mb_of_each_step"] == pytest.approx([10.0, 30.0])


@pytest.mark.parametrize("late_s", [-9, 9])
def test_what_was_seen_at_another_time_is_refused(late_s, traced):
    samples = pd.DataFrame({"elapsed_s": [0.0, 4.0], "read_mb_per_s": [np.nan, 10.0]})
    events = Events({}, **{edge: np.array([BEGAN + late_s * 10**9]) for edge in ("start", "end")})

    for join, other in (
        (step_report.join_calls, profile(CALLS, BEGAN + late_s * 10**9)),
        (step_report.join_system, system.ReadTrace("dsk/sda", samples, BEGAN / 1e9 + late_s)),
        (step_report.join_system, system.ReadTrace("dsk/sda", samples, 0.0)),  # which does not say when it began
        (step_report.join_time_log, SimpleNamespace(events=events, actions=["load"])),
    ):
        with pytest.raises(system.TraceError, match="do not overlap with the steps"):
            join(traced, other)


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
