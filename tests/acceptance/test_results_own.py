"""What users bring: a program that says its own rate, a storage to be measured alone, a benchmark and an observer."""

from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from tests.acceptance import door

# A program that says the next of the rates that lie beside its data, each time it is run.
RATES = """
import pathlib, sys
data = pathlib.Path(sys.argv[1])
count = data.with_suffix(".count")
number = int(count.read_text()) if count.exists() else 0
count.write_text(str(number + 1))
print("rate:", (data / "rates").read_text().split()[number])
"""
# A warm-up, then five measured runs. Of five to seven runs the interval of the median is min to max, of eight the
# second to the seventh: an outlier on each side leaves it at the eighth.
NARROW = [1.0, 90.0, 110.0, 100.0, 100.0, 100.0, 101.0, 101.0, 101.0, 0.0]
WIDE = [1.0, *(90.0, 110.0) * 5]
STEADY = [1.0, *[100.0] * 5, 0.0]


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """Ask for runs until the medians of three cells are known to 2 %, in ten runs at most; return the measured runs."""
    cwd = tmp_path_factory.mktemp("added")
    (cwd / "rates.py").write_text(RATES)
    folders = {name: cwd / name for name in ("narrow", "wide", "steady")}
    for folder, rates in zip(folders.values(), (NARROW, WIDE, STEADY), strict=True):
        folder.mkdir()
        (folder / "rates").write_text(" ".join(map(str, rates)) + "\n" * 4096)
    program = f"benchmark.argv=[{sys.executable},{cwd}/rates.py,'{{data}}']", "benchmark.metric='rate: ([0-9.]+)'"
    paths = "dataset=folder", f"dataset.path={','.join(map(str, folders.values()))}"
    until = "runs=6", "until_spread=0.02", "max_runs=10"
    done = door.cli("-m", "benchmark=command", *program, *paths, *until, *door.SHARED, cwd=cwd)
    assert done.code == 0, done.err
    found = {record["cell"]["settings"]["dataset"]["path"]: record["runs"] for record in door.records(cwd / "results")}
    return {name: found[str(folder)] for name, folder in folders.items()}, door.status(cwd / "results")


@pytest.mark.parametrize(("name", "rates", "runs"), [("narrow", NARROW, 9), ("wide", WIDE, 10), ("steady", STEADY, 6)])
def test_runs_are_added_until_the_interval_of_the_median_is_narrow_or_there_are_too_many(added, name, rates, runs):
    made = added[0][name]

    assert [(run["run"], run["role"]) for run in made] == [(n, "measured" if n else "warmup") for n in range(runs)]
    assert [run["printed"] for run in made] == rates[:runs]
    assert {each["status"] for each in added[1].values()} == {"done"}


SIZE = 8 * 2**20


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    """Write, read and read at random one file of 8 MiB on a storage."""
    cwd = tmp_path_factory.mktemp("baseline")
    (cwd / "mnt").mkdir()
    alone = "benchmark=baseline", "benchmark.engine=builtin", "benchmark.file_mb=8", "benchmark.transfer_mib=1"
    blocks = [word for word in door.TINY if word.startswith("dataset.")]
    accesses = "benchmark.access=write,read,random_read"
    done = door.cli("-m", *alone, accesses, *blocks, *door.SHARED, "runs=4", f"storage={cwd}/mnt", cwd=cwd)
    assert done.code == 0, done.err
    records = {record["cell"]["settings"]["benchmark"]["access"]: record for record in door.records(cwd / "results")}
    return SimpleNamespace(cwd=cwd, records=records, results=cwd / "results")


@pytest.mark.parametrize(("access", "did"), [("write", "written"), ("read", "read"), ("random_read", "read")])
def test_a_baseline_moves_its_file_past_the_page_cache_and_its_rate_follows(baseline, access, did):
    runs = baseline.records[access]["runs"]
    figure = "write_mb_per_s" if access == "write" else "read_mb_per_s"

    assert [run["role"] for run in runs] == ["warmup", *["measured"] * 3]
    for run in runs:
        moved = run[f"bytes_{did}"]
        if access == "random_read":
            # The file is larger, so that no block is read twice.
            assert moved == run["requests"] * run["read_bytes_each"]
            assert run["reads_per_s"] == pytest.approx(run["requests"] / run["wall_s"])
            assert SIZE <= moved <= baseline.records[access]["dataset"]["bytes"]
        else:
            assert (moved, run["requests"]) == (SIZE, 8)
        assert run["bytes_asked"] == moved
        assert run[figure] == pytest.approx(moved / 1e6 / run["wall_s"])
        of_device = run["written_bytes" if access == "write" else "device_bytes"]
        assert moved <= of_device <= 1.1 * moved
        assert (run["direct"], run["engine"]) == (True, "builtin")
        assert sum(run[part] for part in run["wall_parts"]) == pytest.approx(run["wall_s"], abs=1e-3)
    median = sorted(run[figure] for run in runs[1:])[1]
    rows = door.table(baseline.results, "medians").set_index("benchmark.access")
    assert rows.loc[access, figure] == pytest.approx(median)


def test_of_a_baseline_the_file_to_read_is_kept_and_the_written_one_is_not(baseline):
    folder = baseline.cwd / "mnt" / "baseline"
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))

    kept = {baseline.records[access]["dataset"]["file"] for access in ("read", "random_read")}
    assert {path.name for path in files} == kept
    assert baseline.records["write"]["dataset"]["file"] is None
    assert min(path.stat().st_size for path in files) == SIZE
    assert {row["access"] for _, row in door.table(baseline.results, "table1").iterrows()} >= {"read", "write"}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Copy the packages, and add a benchmark, an observer and the column of its number as CONTRIBUTING.md says."""
    folder = tmp_path_factory.mktemp("house")
    for package in ("analysis", "campaign", "conf", "jobs"):
        shutil.copytree(door.ROOT / package, folder / package)  # with their bytecode, which takes seconds to make
    toy = door.STORED / "toy"
    shutil.copy(toy / "benchmark.py", folder / "jobs" / "benchmarks" / "toy.py")
    shutil.copy(toy / "toy.yaml", folder / "conf" / "benchmark")
    shutil.copy(toy / "observer.py", folder / "jobs" / "observe" / "toy.py")
    model = folder / "jobs" / "model" / "results.py"
    column = '    step_p99_s: Annotated[float, Metric("s")]'
    model.write_text(model.read_text("utf-8").replace("    wall_s: ", f"{column}\n    wall_s: "), "utf-8")
    (folder / "tensorflow.py").write_text("")  # in its place, for it is imported for seconds and the toy needs none
    return folder


def test_a_benchmark_and_an_observer_of_ones_own_are_run_judged_recorded_and_drawn(house, tmp_path):
    words = "-m", "benchmark=toy", "benchmark.size=1,2", "runs=3", "checks.throttled_max=1", *door.SHARED

    done = door.cli(*words, cwd=tmp_path, PYTHONPATH=house)

    assert done.code == 0, done.err
    results = tmp_path / "results"
    records = {record["cell"]["settings"]["benchmark"]["size"]: record for record in door.records(results)}
    assert records.keys() == {1, 2}
    for size, record in records.items():
        described = [record["cell"][key] for key in ("benchmark", "kind", "figure", "unit", "better")]
        assert described == ["toy", "storage", "sums_per_s", "sums/s", "higher"]
        assert [run["role"] for run in record["runs"]] == ["warmup", "measured", "measured"]
        for run in record["runs"]:
            assert (run["toy"], run["step_p99_s"]) == (["start", "stop"], 0.25)
            assert run["sums_per_s"] == pytest.approx(size / run["wall_s"])
    rows = door.table(results, "medians")
    assert rows["benchmark"].tolist() == ["toy", "toy"]
    assert rows[["step_p99_s", "step_p99_s_min", "step_p99_s_max"]].to_numpy().tolist() == [[0.25] * 3] * 2
    for size, (_, row) in zip(rows["benchmark.size"], rows.iterrows(), strict=True):
        rates = [run["sums_per_s"] for run in records[size]["runs"][1:]]
        assert row["spread"] == pytest.approx((max(rates) - min(rates)) / (sum(rates) / 2))
    assert [path for path in results.glob("figures/*.csv") if "sums/s" in path.read_text("utf-8")]


def test_a_benchmark_of_ones_own_has_options_and_their_ranges(house, tmp_path):
    by_hand = door.cli("toy", tmp_path, "--size", 2, cwd=tmp_path, program="jobs", PYTHONPATH=house)
    refused = door.cli("benchmark=toy", "benchmark.size=11", cwd=tmp_path, PYTHONPATH=house)

    found = json.loads(by_hand.out)
    assert found["sums_per_s"] == pytest.approx(2 / found["wall_s"])
    assert (refused.code, door.is_one_cure(refused.err), "benchmark.size=11" in refused.err) == (2, True, True)
