"""TensorFlow's own profiler as an observer of a run: its window, its table, its figures."""

import json

import pytest

from analysis.__main__ import main
from jobs.events import step_times, tensorflow_trace
from jobs.events.table import EventsError
from jobs.observe.profilers import TensorFlowObserver
from tests.jobs.events.spaces import space, table, traced
from tests.jobs.jobs_factory import check, make_request

STEP = [("campaign step", 0, 100, 1), ("campaign input", 0, 60), ("campaign compute", 60, 90)]
POOL = [("ReadFile:ReadFile", 5, 40), ("DecodeJpeg:DecodeJpeg", 40, 50), ("ExecutorState::Process", 0, 90)]


def profiled(template, request, asked, held):
    request["settings"] |= {"profile": {"posix": "none", "tensorflow": asked}, "batch_size": 4, "prefetch": 1}
    request["tensorflow"] = str(held / "tensorflow-0.npz")
    return template.run(request, held / "run.log", 60)


def told(path, capsys):
    assert main(["trace", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)[0]


def test_a_window_of_a_run_becomes_a_table_whose_figures_the_analysis_finds_too(
    shared_images, template, tmp_path, capsys
):
    run = profiled(template, make_request(shared_images, tmp_path / "held"), "2-4", tmp_path)
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
    run = profiled(template, make_request(shared_images, tmp_path / "held"), asked, tmp_path)
    found = run["tensorflow"]

    assert found.get("steps") == steps_seen
    assert (found["error"] is None) is (steps_seen is not None)
    assert run["status"] == "valid" or "quiet" in run["reason"]
    assert (tmp_path / "tensorflow-0.npz").exists() is (steps_seen is not None)


def test_a_run_that_is_to_be_compared_has_no_profiler():
    settings = {"profile": {"posix": "none", "tensorflow": "all"}}

    assert TensorFlowObserver({"settings": settings, "tensorflow": None}, None).metrics() == {}


def test_the_table_has_times_of_the_clock_and_no_frames(tmp_path):
    read = tensorflow_trace.read_trace(table(tmp_path / "a.npz", [("python", STEP), ("tf_data/1", POOL)]))

    assert read.events["start"].tolist() == [10**18 + each * 1000 for each in (0, 60, 5, 40)]
    names = [read.events.words["name"][op] for op in read.events["name"]]
    assert names[2:] == ["ReadFile:ReadFile", "DecodeJpeg:DecodeJpeg"]
    assert (read.steps.number.tolist(), step_times.record_metrics(read)["waited_s"]) == ([1], 60e-6)
    assert step_times.record_metrics(traced([("python", STEP), ("tf_data/1", POOL)])) == step_times.record_metrics(read)


def test_a_damaged_table_is_refused(tmp_path, capsys):
    path = table(tmp_path / "tensorflow-1.npz", [("python", STEP), ("tf_data/1", POOL)])
    whole = path.read_bytes()
    odd = traced([("python", STEP)])
    odd.events.columns["name"] = odd.events["name"] + 1000
    tensorflow_trace.write_table(path, odd)

    assert main(["trace", str(path)]) == 2
    for cut in range(0, len(whole), 200):
        path.write_bytes(whole[:cut])
        assert main(["trace", str(path)]) == 2
    assert "it is damaged" in capsys.readouterr().err


def test_a_trace_that_tensorflow_could_not_write_whole_is_refused(tmp_path):
    (tmp_path / "vm.xplane.pb").write_bytes(space([("python", STEP)]).SerializeToString()[:-5])

    with pytest.raises(EventsError, match="cut off"):
        tensorflow_trace.read_trace(tmp_path / "vm.xplane.pb")
