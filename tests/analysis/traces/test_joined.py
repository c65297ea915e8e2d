"""Traces beside what else was seen of a run: POSIX calls, a time log, a system trace."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.timelog.log import Events
from analysis.traces import joined, posix, runtime, system
from jobs.profiler import runtime as tables
from tests.analysis.traces.spaces import space, written

BEGAN = 10**18
STEP = [("campaign step", 0, 100, 1), ("campaign step", 100, 200, 2), ("campaign input", 0, 60)]
POOL = [("ReadFile:ReadFile", 10, 40), ("ReadFile:ReadFile", 50, 80), ("ReadFile:ReadFile", 110, 120)]
OTHER_POOL = [("ReadFile:ReadFile", 20, 90)]
LINES = [("python", STEP), ("tf_data/1", POOL), ("tf_data/2", OTHER_POOL)]
# Thread, start and end in µs, bytes.
CALLS = [(7, 12, 20, 100), (7, 20, 25, 0), (7, 52, 79, 200), (9, 30, 80, 400), (7, 95, 99, 50), (7, 111, 119, 25)]


def profile(calls, began=BEGAN):
    threads, starts, ends, sizes = zip(*calls, strict=True)
    kinds = [posix.READ if size else posix.END for size in sizes]
    edges = {"start_s": np.array(starts) / 1e6, "end_s": np.array(ends) / 1e6}
    frame = pd.DataFrame({"file": 0, "thread": threads, "bytes": sizes, "kind": kinds, **edges})
    return posix.Profile(began, 1.0, ["a"], np.zeros(1, bool), np.zeros(1), frame, 0, np.zeros(0))


@pytest.fixture
def traced(tmp_path):
    return runtime.read(written(tmp_path / "a.xplane.pb", LINES))


def test_calls_are_those_of_the_operation_that_their_thread_is_in(traced):
    found = joined.calls(traced, profile(CALLS))

    assert (found["operations"], found["calls"], found["calls_outside"]) == (4, 5, 1)
    assert (found["bytes"], found["bytes_outside"]) == (725, 50)
    assert found["operations_s"] == pytest.approx(140e-6)
    assert found["calls_s"] == pytest.approx((8 + 5 + 27 + 50 + 8) * 1e-6)
    assert found["neither_s"] == pytest.approx((140 - 98) * 1e-6)
    assert found["bytes_of_each_step"] == [750, 25]


def test_calls_before_all_steps_and_a_trace_without_reads_are_in_none(tmp_path):
    each = runtime.read(written(tmp_path / "a.xplane.pb", [("python", STEP)]))

    found = joined.calls(each, profile([(7, 10, 20, 5)], began=BEGAN - 10**9))

    assert (found["operations"], found["calls"], found["calls_outside"]) == (0, 0, 1)
    assert found["bytes_of_each_step"] == [0, 0]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)), max_size=8))
def test_the_time_in_calls_is_that_of_calls_one_after_the_other(parts):
    """Of each operation, calls of these lengths after these pauses."""
    at = dict.fromkeys(range(3), 0)
    rows = []
    for group, pause, taken in parts:
        rows.append((group, at[group] + pause, at[group] + pause + taken))
        at[group] = rows[-1][2]

    group, start, end = np.array(rows, np.int64).reshape(-1, 3).T

    assert joined.union_by(group, start, end) * 1e9 == pytest.approx(sum(taken for *_, taken in parts))


def test_what_went_on_during_an_action_of_the_time_log(traced):
    column = np.zeros(1, np.int64)
    times = {"start_ns": np.array([BEGAN + 30_000]), "end_ns": np.array([BEGAN + 150_000])}
    events = Events(**{name: times.get(name, column) for name in Events._fields})

    found = joined.time_log(traced, SimpleNamespace(events=events, actions=["load"]))

    assert found["load"]["all"] == pytest.approx(120e-6)
    assert found["load"]["read"] == pytest.approx((90 - 30 + 10) * 1e-6)
    assert found["load"]["input wait"] == pytest.approx(30e-6)


def test_a_system_trace_gives_bytes_to_steps_by_the_rate_of_its_intervals(tmp_path):
    marks = [("campaign step", 0, 10**6, 1), ("campaign step", 10**6, 3 * 10**6, 2)]
    each = runtime.read(written(tmp_path / "a.xplane.pb", [("python", marks)]))
    samples = pd.DataFrame({"elapsed_s": [0.0, 2.0, 4.0], "read_mb_per_s": [np.nan, 10.0, 20.0]})

    found = joined.system(each, system.Trace("dsk/sda", samples, BEGAN / 1e9))

    assert found["mb_of_each_step"] == pytest.approx([10.0, 30.0])


@pytest.mark.parametrize("late_s", [-9, 9])
def test_what_was_seen_at_another_time_is_refused(late_s, traced):
    samples = pd.DataFrame({"elapsed_s": [0.0, 4.0], "read_mb_per_s": [np.nan, 10.0]})
    times = {name: np.array([BEGAN + late_s * 10**9]) for name in ("start_ns", "end_ns")}
    events = Events(**{name: times.get(name, np.zeros(1, np.int64)) for name in Events._fields})

    for join, other in (
        (joined.calls, profile(CALLS, BEGAN + late_s * 10**9)),
        (joined.system, system.Trace("dsk/sda", samples, BEGAN / 1e9 + late_s)),
        (joined.system, system.Trace("dsk/sda", samples, 0.0)),  # which does not say when it began
        (joined.time_log, SimpleNamespace(events=events, actions=["load"])),
    ):
        with pytest.raises(system.TraceError, match="not of the time"):
            join(traced, other)


def test_the_command_joins_what_a_run_left(tmp_path, capsys):
    from jobs.profiler import Profile  # noqa: PLC0415

    (tmp_path / "data").write_bytes(bytes(5000))
    with Profile("trace", only=[tmp_path]) as window:
        (tmp_path / "data").read_bytes()
    window.save(tmp_path / "profile-1.npz")
    began, ended = window.window.started_ns, window.window.ended_ns
    took = (ended - began) // 1000 + 1
    lines = [("python", [("campaign step", 0, took, 1)]), ("tf_data/1", [("ReadFile:ReadFile", 0, took)])]
    tables.write(tmp_path / "tensorflow-1.npz", tables.table(space(lines, began_ns=began)))
    words = ["trace", str(tmp_path / "tensorflow-1.npz"), "--posix", str(tmp_path / "profile-1.npz")]

    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]["posix"]
    assert (found["bytes"], found["calls_outside"], found["bytes_of_each_step"]) == (5000, 0, [5000])
    assert main(words) == 0
    assert "1 read operations" in capsys.readouterr().out
    assert main([*words[:2], "--posix", str(tmp_path / "none.npz")]) == 2
    assert "profile missing" in capsys.readouterr().err
