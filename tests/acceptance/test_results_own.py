"""What users bring: a program that says its own rate, a storage to be measured alone, a benchmark and an observer."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.acceptance import door

# A warm-up, then five measured runs. Of five to seven runs the interval of the median is min to max, of eight the
# second to the seventh: an outlier on each side leaves it at the eighth. How many runs are made is beside the rates.
RATES = {
    "narrow": ([1.0, 90.0, 110.0, 100.0, 100.0, 100.0, 101.0, 101.0, 101.0, 0.0], 9),
    "wide": ([1.0, *(90.0, 110.0) * 5], 10),
    "steady": ([1.0, *[100.0] * 5, 0.0], 6),
}
SIZE = 8 * 2**20


def test_runs_are_added_until_the_interval_of_the_median_is_narrow_or_there_are_too_many(tmp_path):
    for name, (rates, _) in RATES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "rates").write_text(" ".join(map(str, rates)) + "\n" * 4096)
    program = f"benchmark.argv=[{sys.executable},{door.STORED}/rates.py,'{{data}}']"
    paths = "dataset=folder", f"dataset.path={','.join(str(tmp_path / name) for name in RATES)}"
    until = "benchmark.metric='rate: ([0-9.]+)'", "runs=6", "until_spread=0.02", "max_runs=10"

    done = door.cli("-m", "benchmark=command", program, *paths, *until, *door.SHARED, cwd=tmp_path)

    records = {record["cell"]["settings"]["dataset"]["path"]: record for record in door.records(tmp_path / "results")}
    for name, (rates, number) in RATES.items():
        runs = records[str(tmp_path / name)]["runs"]
        assert [run["role"] for run in runs] == ["warmup", *["measured"] * (number - 1)]
        assert [run["printed"] for run in runs] == rates[:number]
    assert done.code == 0, done.err
    assert door.table(tmp_path / "results", "medians")["status"].tolist() == ["done"] * 3


def test_a_baseline_moves_its_file_past_the_page_cache_and_its_rate_follows(tmp_path):
    mnt, results = tmp_path / "mnt", tmp_path / "results"
    mnt.mkdir()
    alone = "benchmark=baseline", "benchmark.engine=builtin", "benchmark.file_mb=8", "benchmark.transfer_mib=1"
    blocks = [word for word in door.TINY if word.startswith("dataset.")]
    words = "benchmark.access=write,read,random_read", "runs=4", f"storage={mnt}"

    assert door.cli("-m", *alone, *words, *blocks, *door.SHARED, cwd=tmp_path).code == 0

    records = {record["cell"]["settings"]["benchmark"]["access"]: record for record in door.records(results)}
    medians = door.table(results, "medians").set_index("benchmark.access")
    for access, did, fetched in (
        ("write", "written", "written"),
        ("read", "read", "device"),
        ("random_read", "read", "device"),
    ):
        runs, figure = records[access]["runs"], f"{access.rpartition('_')[2]}_mb_per_s"
        assert [run["role"] for run in runs] == ["warmup", *["measured"] * 3]
        for run in runs:
            moved, each = run[f"bytes_{did}"], run.get("read_bytes_each", 2**20)
            assert moved == run["bytes_asked"] == run["requests"] * each
            assert run[figure] == pytest.approx(moved / 1e6 / run["wall_s"])
            assert moved <= run[f"{fetched}_bytes"] <= 1.1 * moved
            assert (run["direct"], run["engine"]) == (True, "builtin")
            # For random reads the file is larger, so that no block is read twice.
            assert SIZE <= moved <= (records[access]["dataset"]["bytes"] if access == "random_read" else SIZE)
        assert min(run["wall_s"] - sum(run[part] for part in run["wall_parts"]) for run in runs) <= 1e-3
        assert medians.loc[access, figure] == pytest.approx(sorted(run[figure] for run in runs[1:])[1])
    kept = {path.name for path in (mnt / "baseline").iterdir() if not path.name.startswith(".")}
    assert kept == {records[access]["dataset"]["file"] for access in ("read", "random_read")}
    assert set(door.table(results, "table1")["access"]) >= {"read", "write"}


@pytest.fixture
def house(tmp_path_factory):
    """Copy the packages, and add a benchmark, an observer and the column of its number as CONTRIBUTING.md says."""
    folder, toy = tmp_path_factory.mktemp("house"), door.STORED / "toy"
    for package in ("analysis", "campaign", "conf", "jobs"):
        shutil.copytree(door.ROOT / package, folder / package)  # with their bytecode, which takes seconds to make
    shutil.copy(toy / "benchmark.py", folder / "jobs" / "benchmarks" / "toy.py")
    shutil.copy(toy / "toy.yaml", folder / "conf" / "benchmark")
    shutil.copy(toy / "observer.py", folder / "jobs" / "observe" / "toy.py")
    model = folder / "jobs" / "model" / "results.py"
    column = '    step_p99_s: Annotated[float, Metric("s")]'
    model.write_text(model.read_text("utf-8").replace("    wall_s: ", f"{column}\n    wall_s: "), "utf-8")
    (folder / "tensorflow.py").write_text("")  # in its place, for it is imported for seconds and the toy needs none
    return folder


def test_a_benchmark_and_an_observer_of_ones_own_are_run_judged_recorded_and_drawn(house, tmp_path):
    words, results = (
        ("-m", "benchmark=toy", "benchmark.size=1,2", "runs=3", "checks.throttled_max=1"),
        tmp_path / "results",
    )

    done = door.cli(*words, *door.SHARED, cwd=tmp_path, PYTHONPATH=house)

    assert done.code == 0, done.err
    medians = door.table(results, "medians").set_index("benchmark.size")
    for record in door.records(results):
        size = record["cell"]["settings"]["benchmark"]["size"]
        described = [record["cell"][key] for key in ("benchmark", "kind", "figure", "unit", "better")]
        assert described == ["toy", "storage", "sums_per_s", "sums/s", "higher"]
        assert [run["role"] for run in record["runs"]] == ["warmup", "measured", "measured"]
        for run in record["runs"]:
            assert (run["toy"], run["step_p99_s"]) == (["start", "stop"], 0.25)
            assert run["sums_per_s"] == pytest.approx(size / run["wall_s"])
        rates = [run["sums_per_s"] for run in record["runs"][1:]]
        assert medians.loc[size, "spread"] == pytest.approx((max(rates) - min(rates)) / (sum(rates) / 2))
    assert medians.index.tolist() == [1, 2]
    assert medians[["step_p99_s", "step_p99_s_min", "step_p99_s_max"]].to_numpy().tolist() == [[0.25] * 3] * 2
    assert [path for path in results.glob("figures/*.csv") if "sums/s" in path.read_text("utf-8")]
    by_hand = door.cli("toy", tmp_path, "--size", 2, cwd=tmp_path, program="jobs", PYTHONPATH=house).json
    assert by_hand["sums_per_s"] == pytest.approx(2 / by_hand["wall_s"])
    refused = door.cli("benchmark=toy", "benchmark.size=11", cwd=tmp_path, PYTHONPATH=house)
    assert (refused.code, door.is_one_cure(refused.err), "benchmark.size=11" in refused.err) == (2, True, True)
