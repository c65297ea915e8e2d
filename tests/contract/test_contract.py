"""A real, tiny campaign: what its user is told, and that what it writes is what the analysis reads.

``record.json`` beside this file is the contract, key by key, the only bridge between the two: the campaign must write
every key in it, with a value of its kind, and the analysis is tested on it (tests/analysis).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.traces import system
from campaign.__main__ import run_guarded
from tests.campaign.command_line import TINY, CommandLine
from tests.judged import records_of

CONTRACT = json.loads((Path(__file__).parents[1] / "acceptance" / "stored" / "record.json").read_text(encoding="utf-8"))
OF_MICRO = (
    *TINY, "storage.exclusive=lock", "runs=2", "benchmark.image_size=32", "trace.interval_s=0.1", "trace.tail_s=0.15",
    "checks.time_error_max=0.6",
)  # fmt: skip
WORDS = ("-m", "benchmark=micro,alexnet", "threads=1,2", "benchmark.width=0.02", *OF_MICRO)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished campaign of both of the first paper's benchmarks, and a way to give more commands in its place."""
    speak = CommandLine(tmp_path_factory.mktemp("finished"))
    speak.first = speak(*WORDS)
    assert speak.first.returncode == 0, speak.first.stderr
    return speak


@pytest.fixture(scope="module")
def results(finished):
    return finished.cwd / "results"


@pytest.fixture(scope="module")
def record(results):
    return min(_records(results, "micro"), key=lambda each: each["cell"]["settings"]["threads"])


@pytest.fixture(scope="module")
def training(results):
    """A record of the mini-application."""
    return _records(results, "alexnet")[0]


def _steps(results, recorded, run):
    """The lists of steps of a run, which lie beside its record."""
    return np.load(results / "records" / recorded["cell"]["id"] / run["steps"]["file"], allow_pickle=False)


def _records(results, benchmark=""):
    return records_of(results, f"{benchmark}*")


def test_one_command_ends_in_records_tables_and_figures_and_talks_in_plain_lines(finished, results):
    said = finished.first

    assert len(_records(results)) == 4
    for path in ("figures/fig4.pdf", "figures/fig4.png", "figures/fig4.csv", "tables/medians.md", "tables/medians.csv"):
        assert (results / path).stat().st_size > 0
        assert path in said.stdout.replace(str(results) + "/", "")
    assert "paper's hdd" in said.stdout
    assert "[8/8]" in said.stderr
    assert "images/s" in said.stderr
    assert "\x1b" not in said.stderr + said.stdout
    assert sorted(path.name for path in finished.cwd.iterdir()) == ["data", "results"]


def test_each_run_is_cold_and_proved(results):
    for record in _records(results, "micro"):
        for run in record["runs"]:
            passed = {check["rule"]: check["passed"] for check in run["checks"]}
            rules = ("cold", "device_bytes", "complete", "same_data", "time_adds_up", "quiet")
            assert {passed[rule] for rule in rules} == {True}
            assert False not in passed.values()  # of a short run some rules cannot tell
            assert run["resident_fraction"] == 0
            assert run["images"] == 24
            assert run["bytes_read"] == record["dataset"]["bytes"]


def test_the_status_tells_the_same_to_people_and_to_programs(finished, monkeypatch, capsys):
    monkeypatch.chdir(finished.cwd)

    assert run_guarded(["status"]) == 0
    assert "4 cells: 4 done" in capsys.readouterr().out
    assert run_guarded(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"done": 4}


def test_show_tells_every_run_and_every_check_of_a_cell_named_by_its_hash(finished, record, monkeypatch, capsys):
    monkeypatch.chdir(finished.cwd)
    cell = record["cell"]["id"]

    assert run_guarded(["show", cell.rpartition("-")[2]]) == 0
    told = capsys.readouterr().out
    assert run_guarded(["show", cell, "campaign_dir=results", "--json"]) == 0

    assert told.count("device_bytes ok") == 2
    assert "again: python -m campaign -m benchmark=micro,alexnet threads=1,2" in told
    said = json.loads(capsys.readouterr().out)
    bound, advice, not_advised = (said.pop(key) for key in ("bound", "advice", "not_advised"))
    assert said == record | {"end": None}
    assert f"\nbound by {bound['word']}: " in told
    assert (not_advised, advice["value"] > 0) == (None, True)


def test_the_same_command_with_json_prints_the_state_of_its_cells_and_nothing_else(finished):
    again = finished(*WORDS, "--json")

    said = json.loads(again.stdout)
    assert (again.returncode, said["counts"], len(said["cells"])) == (0, {"done": 4}, 4)
    assert "nothing to run" in again.stderr
    assert {*map(json.dumps, said["cells"].values())} == {'{"status": "done", "missing": 0, "at_most": 0}'}


def test_show_of_an_unknown_or_ambiguous_cell_says_so(finished, monkeypatch, capsys):
    monkeypatch.chdir(finished.cwd)

    codes = run_guarded(["show", "nothing"]), run_guarded(["show", "micro"])

    said = capsys.readouterr().err
    assert codes == (2, 2)
    assert "no recorded cell 'nothing'" in said
    assert "matches 2 cells" in said


@pytest.mark.long
def test_a_pipe_that_nobody_reads_ends_quietly(finished):
    front = finished.start("--dry-run", "-m", "seed=range(3000)")

    head = subprocess.run(["head", "-1"], stdin=front.stdout, capture_output=True, text=True, check=True)
    front.stdout.close()
    said = front.stderr.read()
    front.wait(timeout=60)
    front.stderr.close()

    assert head.stdout.startswith("micro-")
    assert front.returncode == 141
    assert "Traceback" not in said
    assert "BrokenPipe" not in said


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_error(closed, finished):
    words = [sys.executable, "-m", "campaign", "status"]

    assert subprocess.run(words, cwd=finished.cwd, preexec_fn=lambda: os.close(closed), check=False).returncode == 0


@pytest.mark.long
def test_a_full_device_for_the_words_is_told_and_no_traceback(finished):
    words = [sys.executable, "-m", "campaign", "report"]

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, cwd=finished.cwd, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_asking_again_runs_nothing_and_a_new_point_runs_alone(finished, results):
    before = _records(results)

    again, more = finished(*WORDS), finished("threads=1,2,3", *OF_MICRO)

    assert (again.returncode, more.returncode) == (0, 0)
    assert "nothing to run: 4 of 4 cells are done" in again.stderr
    assert "running 1 cell, 2 runs" in more.stderr
    after = _records(results)
    assert [each for each in after if each in before] == before
    assert len(after) == 5


def _kind(value):
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def _differences(expected, found, where=""):
    """Keys that are missing and values of another kind; `null` and `unknown` stand for anything."""
    if expected in (None, "unknown") or found in (None, "unknown"):
        return []
    if _kind(expected) != _kind(found):
        return [f"{where}: {_kind(expected)} expected, {found!r} found"]
    if isinstance(expected, dict):
        missing = [f"{where}.{key}: missing" for key in expected if key not in found]
        return missing + [
            line
            for key in expected.keys() & found
            for line in _differences(expected[key], found[key], f"{where}.{key}")
        ]
    if isinstance(expected, list) and expected and found:
        return _differences(expected[0], found[0], f"{where}[0]")
    return []


def test_the_campaign_writes_what_the_contract_says(record):
    assert _differences(CONTRACT, record) == []


def test_a_missing_key_or_another_kind_would_be_found(record):
    broken = {**record, "status": 3}
    del broken["runs"]

    assert _differences(CONTRACT, broken) == [".runs: missing", ".status: str expected, 3 found"]


def test_the_words_of_status_and_role_are_the_contracts(record):
    assert record["schema"] == 1
    assert record["status"] == "done"
    assert [run["role"] for run in record["runs"]] == ["warmup", "measured"]
    assert {run["status"] for run in record["runs"]} == {"valid"}


def test_the_record_says_what_its_benchmark_is_for(record, training):
    cells = (record["cell"], training["cell"])

    said = [{key: cell[key] for key in ("kind", "figure", "unit", "better")} for cell in cells]
    assert said == [
        {"kind": "pipeline", "figure": "images_per_s", "unit": "images/s", "better": "higher"},
        {"kind": "training", "figure": "wall_s", "unit": "s", "better": "lower"},
    ]
    assert record["runs"][0][record["cell"]["figure"]] > 0


def test_the_figures_of_a_run_follow_from_its_raw_events(results, record):
    for run in record["runs"]:
        with _steps(results, record, run) as steps:
            assert run["load_s"] == pytest.approx(steps["step_load_s"].sum())
            assert (run["steps"]["number"], run["steps"]["first_load_s"]) == (3, steps["step_load_s"][0])
        assert run["images_per_s"] == pytest.approx(24 / run["wall_s"])
        assert run["read_mb_per_s"] == pytest.approx(record["dataset"]["bytes"] / 1e6 / run["wall_s"])
        assert run["load_s"] + run["other_s"] == pytest.approx(run["wall_s"], rel=0.6)


def test_the_analysis_reads_it_to_the_same_figures(results, record):
    table = pd.read_csv(results / "tables" / "medians.csv").set_index("cell")

    rate = table.loc[record["cell"]["id"], "images_per_s"]
    assert rate == pytest.approx(record["runs"][1]["images_per_s"], rel=1e-6)


def test_the_analysis_reads_a_trace_to_the_bytes_of_the_run(results, record):
    folder = results / "records" / record["cell"]["id"]
    for run in record["runs"]:
        trace = system.read_trace(folder / run["trace"]["file"])

        seconds = trace.samples["elapsed_s"].diff()
        assert (trace.samples["read_mb_per_s"] * seconds).sum() * 1e6 >= record["dataset"]["bytes"]
        assert set(trace.samples["phase"]) == {"iteration", "tail"}


@pytest.mark.long
def test_of_the_mini_application_the_analysis_makes_every_figure_and_table(tmp_path):
    emulated = "benchmark=alexnet", "accelerator=emulated", "accelerator.step_s=0.1"
    grid = "benchmark.width=0.02", "prefetch=0,1", "benchmark.control=none,no_io,no_compute"
    done = CommandLine(tmp_path)("-m", *OF_MICRO, "threads=1", *emulated, *grid)
    assert done.returncode == 0, done.stderr
    trained = tmp_path / "results"
    table = pd.read_csv(trained / "tables" / "medians.csv")
    plain = table[table["benchmark.control"] == "none"]

    assert set(table["status"]) == {"done"}
    assert set(table["accelerator"]) == {"emulated"}
    assert len(plain) == 2
    assert plain[["between", "input_share", "no_io_s", "no_compute_s"]].notna().all(axis=None)
    assert {path.name for path in (trained / "figures").glob("*.pdf")} == {"fig6.pdf", "fig8.pdf"}
    assert "done" in set(pd.read_csv(trained / "figures" / "fig8.csv")["status"])
    assert (trained / "tables" / "verdicts.csv").exists()


def test_the_parts_of_a_training_make_up_its_wall_time(results, training):
    for run in training["runs"]:
        assert sum(run[part] for part in run["wall_parts"]) == pytest.approx(run["wall_s"], rel=0.6)
        with _steps(results, training, run) as steps:
            assert run["compute_s"] == pytest.approx(steps["step_compute_s"].sum())
