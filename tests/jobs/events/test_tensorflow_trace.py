"""TensorFlow's own profiler as an observer of a run: its window, its table, its figures."""

import json

import pytest

from analysis.__main__ import main
from jobs.observe.profilers import TensorFlowObserver
from tests.jobs.jobs_factory import check, make_request


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
