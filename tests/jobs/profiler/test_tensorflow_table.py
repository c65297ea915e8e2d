"""TensorFlow's own profiler as an observer of a run: its window, its table, its figures."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis.traces
import jobs.profiler
from analysis.__main__ import main
from jobs.observe.tensorflow_profiler import Runtime
from jobs.profiler import ProfilerError, tensorflow_table
from tests.analysis.traces.spaces import space
from tests.jobs.jobs_factory import check, make_request

STEP = [("campaign step", 0, 100, 1), ("campaign input", 0, 60), ("campaign compute", 60, 90)]
POOL = [("ReadFile:ReadFile", 5, 40), ("DecodeJpeg:DecodeJpeg", 40, 50), ("ExecutorState::Process", 0, 90)]


def traced(template, request, asked, held):
    request["settings"] |= {"profile": {"posix": "none", "tensorflow": asked}, "batch_size": 4, "prefetch": 1}
    request["tensorflow"] = str(held / "tensorflow-0.npz")
    return template.run(request, held / "run.log", 60)


def told(path, capsys):
    assert main(["trace", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)[0]


def test_a_window_of_a_run_becomes_a_table_whose_figures_the_analysis_finds_too(
    shared_images, template, tmp_path, capsys
):
    run = traced(template, make_request(shared_images, tmp_path / "held"), "2-4", tmp_path)
    found = run["tensorflow"]

    assert check(run, "time_adds_up")["passed"] is True
    assert (found["file"], found["error"], found["steps"], found["dropped"]) == ("tensorflow-0.npz", None, 3, 0)
    assert 0 < found["stop_s"] <= run["other_s"]
    assert found["start_s"] > 0
    assert "profile" not in run
    assert sum(found["spent_s"].values()) == pytest.approx(found["steps_s"])
    shown = told(tmp_path / "tensorflow-0.npz", capsys)
    assert [each["step"] for each in shown["each_step"]] == [2, 3, 4]
    for time in ("spent_s", "exposed_s", "union_s"):
        for category, seconds in found[time].items():
            assert shown["seconds"][category][time] == pytest.approx(seconds, abs=1e-9), (time, category)
    for remedy, seconds in shown["verdict"]["remedies_s"].items():
        assert found["remedies_s"][remedy] == pytest.approx(seconds, abs=1e-9)
    waited = sum(run["step_load_s"][1:4])
    assert found["union_s"]["input wait"] <= waited
    assert found["union_s"]["read"] > 0
    assert found["uncategorised"] == 0


@pytest.mark.parametrize(("asked", "steps_seen"), [("all", 6), ("90-95", None)])
def test_all_steps_are_seen_with_the_profiler_beyond_the_clock_and_a_window_behind_the_end_says_so(
    asked, steps_seen, shared_images, template, tmp_path
):
    run = traced(template, make_request(shared_images, tmp_path / "held"), asked, tmp_path)
    found = run["tensorflow"]

    assert found.get("steps") == steps_seen
    assert (found["error"] is None) is (steps_seen is not None)
    assert run["status"] == "valid" or "quiet" in run["reason"]
    assert (tmp_path / "tensorflow-0.npz").exists() is (steps_seen is not None)


def test_a_run_that_is_to_be_compared_has_no_profiler():
    settings = {"profile": {"posix": "none", "tensorflow": "all"}}

    assert Runtime({"settings": settings, "tensorflow": None}, None).metrics() == {}


def test_the_table_has_times_of_the_clock_and_no_frames(tmp_path):
    table = tensorflow_table.table(space([("python", STEP), ("tf_data/1", POOL)]))

    assert table.events["start"].tolist() == [10**18 + each * 1000 for each in (0, 60, 5, 40)]
    assert [table.ops[op] for op in table.events["op"]][2:] == ["ReadFile:ReadFile", "DecodeJpeg:DecodeJpeg"]
    assert (table.frames, table.steps["number"].tolist(), tensorflow_table.figures(table)["waited_s"]) == (
        1,
        [1],
        60e-6,
    )


def test_events_beyond_the_room_are_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(tensorflow_table, "MOST_EVENTS", 3)

    assert tensorflow_table.table(space([("python", STEP), ("tf_data/1", POOL)])).dropped == 1


def test_a_damaged_table_is_refused(tmp_path, capsys):
    path = tmp_path / "tensorflow-1.npz"
    tensorflow_table.write(path, tensorflow_table.table(space([("python", STEP), ("tf_data/1", POOL)])))
    whole = path.read_bytes()
    table = tensorflow_table.table(space([("python", STEP)]))
    table.events["op"] += 1000
    tensorflow_table.write(path, table)

    assert main(["trace", str(path)]) == 2
    for cut in range(0, len(whole), 200):
        path.write_bytes(whole[:cut])
        assert main(["trace", str(path)]) == 2
    assert "it is damaged" in capsys.readouterr().err


def test_a_trace_that_tensorflow_could_not_write_whole_is_a_fault_that_is_told(tmp_path):
    (tmp_path / "vm.xplane.pb").write_bytes(space([("python", STEP)]).SerializeToString()[:-5])

    with pytest.raises(ProfilerError, match="cannot be read"):
        tensorflow_table.converted(tmp_path)


def test_both_rooms_have_one_table_of_categories():
    names = [Path(room.__file__).with_name("categories.json") for room in (analysis.traces, jobs.profiler)]

    assert names[0].read_bytes() == names[1].read_bytes()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1))
def test_the_length_of_a_union_is_that_of_a_grid(intervals):
    start, taken = np.array(intervals).T

    assert tensorflow_table._length([(start, start + taken)]) == len(  # noqa: SLF001
        {moment for begin, more in intervals for moment in range(begin, begin + more)}
    )
