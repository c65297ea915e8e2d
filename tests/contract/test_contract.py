"""What the campaign writes is what the analysis reads: `record.json` and the traces beside it, and nothing else.

``record.json`` beside this file is the contract, key by key: the campaign must write every key in it, with a value of
its kind, and the analysis is tested on it (tests/analysis). The record under test is of a real, tiny campaign.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.traces import system

CONTRACT = json.loads((Path(__file__).parent / "record.json").read_text(encoding="utf-8"))
WORDS = (
    "threads=1", "runs=2", "dataset.files=16", "dataset.median_bytes=3000", "dataset.width=64", "dataset.height=64",
    "dataset.classes=2", "batch_size=8", "checks.other_cpu_max=1000", "checks.other_mb_per_s_max=100000",
    "trace.interval_s=0.1", "trace.tail_s=0.3", "checks.time_error_max=0.2",
)  # fmt: skip


def campaign(folder, *words):
    """Run a campaign in a new folder; return where its results are."""
    command = [sys.executable, "-m", "campaign", *WORDS, *words]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return folder / "results"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of both of the paper's benchmarks."""
    words = "-m", "benchmark=micro,alexnet", "benchmark.image_size=32", "benchmark.width=0.02"
    return campaign(tmp_path_factory.mktemp("contract"), *words)


@pytest.fixture(scope="module")
def record(results):
    (path,) = results.glob("records/micro-*/record.json")
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def training(results):
    """The record of the mini-application."""
    (path,) = results.glob("records/alexnet-*/record.json")
    return json.loads(path.read_text())


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


def test_the_figures_of_a_run_follow_from_its_raw_events(record):
    for run in record["runs"]:
        assert run["load_s"] == pytest.approx(sum(run["step_load_s"]))
        assert len(run["step_load_s"]) == 2
        assert run["images_per_s"] == pytest.approx(16 / run["wall_s"])
        assert run["read_mb_per_s"] == pytest.approx(record["dataset"]["bytes"] / 1e6 / run["wall_s"])
        assert run["load_s"] + run["other_s"] == pytest.approx(run["wall_s"], rel=0.2)


def test_the_analysis_reads_it_to_the_same_figures(results, record):
    table = pd.read_csv(results / "tables" / "medians.csv").set_index("cell")

    rate = table.loc[record["cell"]["id"], "images_per_s"]
    assert rate == pytest.approx(record["runs"][1]["images_per_s"], rel=1e-6)


def test_the_analysis_reads_a_trace_to_the_bytes_of_the_run(results, record):
    (folder,) = results.glob("records/micro-*")
    for run in record["runs"]:
        trace = system.read(folder / run["trace"]["file"])

        seconds = trace.samples["elapsed_s"].diff()
        assert (trace.samples["read_mb_per_s"] * seconds).sum() * 1e6 >= record["dataset"]["bytes"]
        assert set(trace.samples["phase"]) == {"iteration", "tail"}


@pytest.mark.long
def test_of_the_mini_application_the_analysis_makes_every_figure_and_table(tmp_path):
    emulated = "-m", "benchmark=alexnet", "accelerator=emulated", "accelerator.step_s=0.1", "benchmark.image_size=32"
    trained = campaign(tmp_path, *emulated, "prefetch=0,1", "benchmark.control=none,no_io,no_compute")
    table = pd.read_csv(trained / "tables" / "medians.csv")
    plain = table[table["benchmark.control"] == "none"]

    assert set(table["status"]) == {"done"}
    assert set(table["accelerator"]) == {"emulated"}
    assert len(plain) == 2
    assert plain[["between", "input_share", "no_io_s", "no_compute_s"]].notna().all(axis=None)
    assert {path.name for path in (trained / "figures").glob("*.pdf")} == {"fig6.pdf", "fig8.pdf"}
    assert "done" in set(pd.read_csv(trained / "figures" / "fig8.csv")["status"])
    assert (trained / "tables" / "verdicts.csv").exists()


def test_the_parts_of_a_training_make_up_its_wall_time(training):
    for run in training["runs"]:
        assert sum(run[part] for part in run["wall_parts"]) == pytest.approx(run["wall_s"], rel=0.2)
        assert run["compute_s"] == pytest.approx(sum(run["step_compute_s"]))
