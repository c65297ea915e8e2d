"""A benchmark of somebody's own: one module and one file of values, and everything else follows.

And an observer of somebody's own: one module, and its figures stand in every run; one more line declares a column.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.judged import records_of

ROOT = Path(__file__).parents[2]
BENCHMARK = """
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.model.declared import Setting
from jobs.model.settings import NodeWithName
from jobs.ready_run import ReadyRun


class Keys(NodeWithName):
    size: Annotated[int, Meta(ge=1, le=10), Setting("how much there is to do")] = 1


@contextmanager
def begin(request):
    size = request["settings"]["benchmark"]["size"]

    def measure(watched):
        with watched:
            start = time.perf_counter()
            sum(range(size * 100_000))
            wall_s = time.perf_counter() - start
        return {"wall_s": wall_s, "work_s": wall_s, "sums_per_s": size / wall_s}

    yield ReadyRun(measure, Path(request["dataset"]))


BENCHMARK = Benchmark(
    name="toy",
    version=1,
    kind="storage",
    keys=Keys,
    begin=begin,
    figure=Figure("sums_per_s", "sums/s"),
    data="nothing",
    settings=("benchmark", "storage"),
    wall_parts=("work_s",),
)
"""
VALUES = "defaults:\n  - /declared/benchmark/toy@_here_\n  - _self_\n\nname: toy\n"
OBSERVER = """
from jobs.observe.observer import Observer


class Toy(Observer):
    gives = ("toy", "step_p99_s")

    def start(self):
        self.seen = ["start"]

    def stop(self, *, failed):
        self.seen.append("stop")

    def metrics(self):
        return {"toy": self.seen, "step_p99_s": len(self.seen) / 8}


OBSERVERS = (Toy,)
"""
COLUMN = '    step_p99_s: Annotated[float, Metric("s")]'
LOUD = (  # others work here
    "checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.spread_max=100", "checks.stolen_max=1000",
    "checks.delayed_max=1", "checks.throttled_max=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the packages with a benchmark and an observer more."""
    folder = tmp_path_factory.mktemp("house")
    for package in ("analysis", "campaign", "conf", "jobs"):
        shutil.copytree(ROOT / package, folder / package)  # with their bytecode, which takes seconds to make
    (folder / "jobs/benchmarks/toy.py").write_text(BENCHMARK)
    (folder / "conf/benchmark/toy.yaml").write_text(VALUES)
    (folder / "jobs/observe/toy.py").write_text(OBSERVER)
    model = folder / "jobs/model/results.py"
    model.write_text(model.read_text().replace("    wall_s: ", f"{COLUMN}\n    wall_s: "))
    (folder / "tensorflow.py").write_text("")  # in its place, for it is imported for seconds and the toy needs none
    return folder


def python(house, folder, *words):
    environment = {**os.environ, "PYTHONPATH": str(house), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_new_benchmark_and_observer_are_planned_run_judged_recorded_and_drawn(house, tmp_path):
    done = python(house, tmp_path, "campaign", "-m", "benchmark=toy", "benchmark.size=1,2", "runs=3", *LOUD)

    assert done.returncode == 0, done.stderr
    found = records_of(tmp_path / "results")
    records = sorted(found, key=lambda record: record["cell"]["settings"]["benchmark"]["size"])
    sizes = [record["cell"]["settings"]["benchmark"]["size"] for record in records]
    described = {key: records[0]["cell"][key] for key in ("benchmark", "kind", "figure", "unit", "better")}
    assert (sizes, {record["status"] for record in records}) == ([1, 2], {"done"})
    assert described == {
        "benchmark": "toy", "kind": "storage", "figure": "sums_per_s", "unit": "sums/s", "better": "higher",
    }  # fmt: skip
    rules = {check["rule"] for check in records[0]["runs"][1]["checks"]}
    assert rules - {"unthrottled"} == {"time_adds_up", "quiet", "unstolen", "undelayed", "same_conditions"}
    assert records[0]["checks"][0]["observed"] is not None  # the spread of its own rate
    assert {tuple(run["toy"]) for record in records for run in record["runs"]} == {("start", "stop")}
    with (tmp_path / "results" / "tables" / "medians.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert {row["benchmark"] for row in rows} == {"toy"}
    assert {row[f"step_p99_s{end}"] for row in rows for end in ("", "_min", "_max")} == {"0.25"}
    assert max(float(row["spread"]) for row in rows) > 0  # of its merit, whichever column is declared first
    assert [path for path in tmp_path.glob("results/figures/*.csv") if "sums/s" in path.read_text()]


def test_a_new_benchmark_has_its_own_options_and_a_value_out_of_their_range_is_refused(house, tmp_path):
    by_hand = python(house, tmp_path, "jobs", "toy", str(tmp_path), "--size", "2")
    refused = python(house, tmp_path, "campaign", "benchmark=toy", "benchmark.size=11")

    assert json.loads(by_hand.stdout)["sums_per_s"] > 0, by_hand.stderr
    assert refused.returncode == 2
    assert "benchmark.size=11 is out of range" in refused.stderr
    assert "legal: 1 to 10" in refused.stderr
