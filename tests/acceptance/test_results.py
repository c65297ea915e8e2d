"""One command on a real storage: what it leaves, and that every number follows from what was measured."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.acceptance import door

IMAGES, STEPS = 24, 3
TINY = dict(word.split("=") for word in door.TINY) | {
    "dataset.median_bytes": 60000, "dataset.width": 256, "dataset.height": 256, "benchmark.image_size": 32,
    "benchmark.width": 0.02, "trace.interval_s": 0.1, "trace.tail_s": 0.1, "threads": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Measure both benchmarks of images, cold and warm, and then trainings of another seed that are saved."""
    cwd = tmp_path_factory.mktemp("campaign")
    roots = [cwd / name for name in ("fast", "slow")]
    file = cwd / "conf" / "site" / "mine.yaml"
    for folder in (*roots, file.parent):
        folder.mkdir(parents=True)
    storages = f"{{optane: {{root: {roots[0]}}}, hdd: {{root: {roots[1]}}}}}"
    file.write_text(f"defaults: [none, _self_]\nname: mine\nstorages: {storages}\n")
    words = "--config-dir", cwd / "conf", "site=mine", "-m", *(f"{key}={value}" for key, value in TINY.items())
    first = door.cli(*words, "benchmark=micro,alexnet", "cache=cold,warm", cwd=cwd)
    left = sorted(path.name for path in cwd.iterdir())
    saving = "checkpoint=hdd,burst_buffer", "checkpoint.every=2", "seed=1"
    second = door.cli(*words, "benchmark=alexnet", *saving, cwd=cwd)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    results = cwd / "results"
    made = {"records": door.records(results), "runs": door.table(results, "runs").set_index(["cell", "run"])}
    return SimpleNamespace(cwd=cwd, roots=roots, results=results, first=first, left=left, **made)


def runs(campaign, benchmark="", cache="", saved=None):
    """List each run of such cells with its record."""
    return [
        (record, run)
        for record in campaign.records
        for settings in [record["cell"]["settings"]]
        if record["cell"]["benchmark"].startswith(benchmark)
        if settings["cache"].startswith(cache)
        if saved is None or (settings.get("checkpoint", {}).get("name", "none") != "none") is saved
        for run in record["runs"]
    ]


def steps(campaign, record, run):
    """Read the lists of numbers of the run's steps."""
    file = campaign.results / "records" / record["cell"]["id"] / run["steps"]["file"]
    with np.load(file, allow_pickle=False) as raw:
        return {name: raw[name] for name in raw}


def test_one_command_ends_in_records_tables_and_figures(campaign):
    done = campaign.first
    figures = [path for path in (campaign.results / "figures").iterdir() if not path.name.startswith(".")]

    assert campaign.left == ["conf", "data", "fast", "results", "slow"]
    assert {path.stem.partition("-")[0] for path in figures} >= {"fig4", "fig9", "fig10", "checkpoints"}
    assert {(path.stem, path.suffix) for path in figures} == {
        (path.stem, suffix) for path in figures for suffix in (".pdf", ".png", ".csv")
    }
    assert all(path.stat().st_size > 0 for path in figures)
    assert {path.stem for path in campaign.results.glob("tables/*.csv")} == {"medians", "runs", "verdicts"}
    printed = {"report.html", "medians.csv", "runs.csv", "verdicts.csv"}
    named = [line for line in done.out.splitlines() if line.startswith(str(campaign.results))]
    assert {line.rpartition("/")[2] for line in named} > printed
    assert "[12/12]" in done.err
    assert "\x1b" not in done.err + done.out


def test_each_run_is_valid_and_recorded_with_its_role(campaign):
    medians = door.table(campaign.results, "medians")

    assert medians[["status", "n_valid", "n_invalid", "n_failed"]].to_numpy().tolist() == [["done", 2, 0, 0]] * 6
    for record in campaign.records:
        assert [run["role"] for run in record["runs"]] == ["warmup", "measured", "measured"]
    assert campaign.runs["reason"].dropna().tolist() == []
    assert campaign.runs["status"].tolist() == ["valid"] * 18
    merits = {tuple(map(each["cell"].get, ("benchmark", "figure", "unit", "better"))) for each in campaign.records}
    assert merits == {("micro", "images_per_s", "images/s", "higher"), ("alexnet", "wall_s", "s", "lower")}


def test_each_run_is_cold_and_proved_and_a_warm_one_is_warm(campaign):
    size = sum(path.stat().st_size for path in (campaign.cwd / "data").rglob("*.jpg"))
    of_all = {"complete", "same_data", "time_adds_up", "quiet"}

    assert (len(runs(campaign, cache="cold")), len(runs(campaign, cache="warm"))) == (12, 6)
    for cache, proofs, resident in (("cold", {"cold", "device_bytes"}, 0), ("warm", {"warm"}, 1)):
        for record, run in runs(campaign, cache=cache):
            checks = campaign.runs.loc[(record["cell"]["id"], run["run"])].filter(like="check.").dropna()
            assert {name.partition(".")[2] for name, passed in checks.items() if passed} >= proofs | of_all
            assert False not in set(checks)  # of so short a run some rules cannot tell
            assert (run["resident_fraction"], run["images"], run["image_errors"]) == (resident, IMAGES, 0)
            assert run["bytes_read"] == record["dataset"]["bytes"] == size
            assert (run["device_bytes"] >= size) is (cache == "cold")
            assert (run["device_bytes"] < size / 2) is (cache == "warm")


def test_the_figures_of_a_run_follow_from_its_raw_steps(campaign):
    for record, run in runs(campaign):
        raw = steps(campaign, record, run)
        assert len(raw["step_load_s"]) == run["steps"]["number"] == STEPS
        assert run["steps"]["first_load_s"] == raw["step_load_s"][0]
        assert run["load_s"] == pytest.approx(raw["step_load_s"].sum())
        assert run["images_per_s"] == pytest.approx(IMAGES / run["wall_s"])
        assert run["read_mb_per_s"] == pytest.approx(run["bytes_read"] / 1e6 / run["wall_s"])
        if record["cell"]["benchmark"] == "alexnet":
            assert run["compute_s"] == pytest.approx(raw["step_compute_s"].sum())
            assert run["steps"]["last_loss"] == raw["step_loss"][-1]
            assert np.isfinite(raw["step_loss"]).all()


@pytest.mark.parametrize(("benchmark", "saved"), [("micro", False), ("alexnet", False), ("alexnet", True)])
def test_the_parts_of_a_run_add_up_to_its_wall_time(campaign, benchmark, saved):
    found = runs(campaign, benchmark, saved=saved)
    # A part that nobody names lacks in each run; between two parts of one, the machine may do something else.
    gaps_s = [run["wall_s"] - sum(run[part] for part in run["wall_parts"]) for _, run in found]

    assert min(gaps_s) >= -1e-6
    assert min(gaps_s) <= 0.002
    assert {"load_s", "other_s"} < set(found[0][1]["wall_parts"])
    assert all((run["checkpoint_s"] > 0) is saved for _, run in found)
    assert all((run["compute_s"] > 0) is (benchmark == "alexnet") for _, run in found)


def test_the_trace_of_a_run_holds_the_bytes_that_it_fetched(campaign):
    for record, run in runs(campaign, cache="cold", saved=False):
        rows = pd.read_csv(campaign.results / "records" / record["cell"]["id"] / run["trace"]["file"], header=1)
        seconds = rows["s"].diff()
        read = rows["read.1"]  # the first column is the device's

        measured = rows["phase"] == "iteration"
        assert (read * seconds)[measured].sum() == pytest.approx(run["device_bytes"], abs=4096)
        assert rows["s"][measured].max() == pytest.approx(run["elapsed_s"], abs=1e-5)
        assert (run["trace"]["samples"], set(rows["phase"])) == (len(rows), {"iteration", "tail"})


def test_equal_seeds_give_equal_losses_and_others_do_not(campaign):
    losses = {}
    for record, run in runs(campaign, "alexnet"):
        found = losses.setdefault(record["cell"]["settings"]["seed"], set())
        found.add(tuple(steps(campaign, record, run)["step_loss"]))

    assert {seed: len(found) for seed, found in losses.items()} == {0: 1, 1: 1}
    assert losses[0] != losses[1]


def test_checkpoints_are_durable_and_removed(campaign):
    saved = {}
    for record, run in runs(campaign, "alexnet"):
        proof = str(campaign.runs.loc[(record["cell"]["id"], run["run"]), "check.checkpoints_durable"])
        saved.setdefault(record["cell"]["settings"]["checkpoint"]["name"], []).append((run, proof))

    assert {name: [proof for _, proof in found] for name, found in saved.items()} == {
        "none": ["nan"] * 6, "hdd": ["True"] * 3, "burst_buffer": ["True"] * 3,
    }  # fmt: skip
    for name in ("hdd", "burst_buffer"):
        for run, _ in saved[name]:
            snapshots = run["checkpoints"]
            assert [each["step"] for each in snapshots] == [2]
            assert all(each["bytes"] >= run["state_bytes"] for each in snapshots)
            assert 0 < sum(each["blocked_s"] for each in snapshots) <= run["checkpoint_s"]
            if name == "burst_buffer":
                assert all(0 < each["durable_fast_s"] < each["durable_slow_s"] for each in snapshots)
    assert [path for root in campaign.roots for path in root.glob("checkpoints/*")] == []
