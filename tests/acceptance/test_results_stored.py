"""What the tables, the terminal and `compare` make of records that nobody measured: each number is known beforehand."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import analysis
from tests.acceptance import door

STEADY = 99.9, 100.0, 100.1
SCATTERED = 80.0, 100.0, 120.0


def cell(rate=100.0, rates=STEADY, **settings):
    """Return a record of three runs about this rate, which by themselves scatter by 0.1 %."""
    return door.record(*(each * rate / 100 for each in rates), **settings)


def changed(made, where, value):
    """Return a record with another value at a place like `provenance.host`."""
    made = copy.deepcopy(made)
    *groups, name = where.split(".")
    node = made
    for group in groups:
        node = node[group]
    node[name] = value
    return made


def training(wall_s, **settings):
    """Return a record of a training whose merit is its wall time."""
    made = cell(512 / wall_s * 1.0, **settings)
    merit = {"benchmark": "alexnet", "kind": "training", "figure": "wall_s", "unit": "s", "better": "lower"}
    made["cell"] |= merit | {"id": made["cell"]["id"].replace("micro", "alexnet")}
    made["cell"]["settings"]["benchmark"] = {"name": "alexnet", "control": "none", "image_size": 224}
    return made


# Scaling

BASE = cell(threads=1)
# Each cell has twice the threads and 2.5 times the rate of the base; by its seed, it finds a base of its own.
UNLIKE = {
    "batch_size": [cell(), cell(250.0, batch_size=32)],
    "storage": [cell(), cell(250.0, storage__name="hdd")],
    "dataset": [cell(), cell(250.0, dataset__files=511)],
    "benchmark": [cell(), cell(250.0, benchmark__image_size=32)],
    "host": [cell(), changed(cell(250.0), "provenance.host", "node2")],
    "tensorflow": [cell(), changed(cell(250.0), "provenance.versions.tensorflow", "2.20.0")],
    "checksum": [cell(), changed(cell(250.0), "dataset.checksum", "sha256:ff00")],
    "like": [cell(), cell(250.0)],
}


def with_threads(number, pair):
    """Give two records one and two threads and a seed of their own."""
    for threads, made in zip((1, 2), pair, strict=True):
        made["cell"]["settings"] |= {"threads": threads, "seed": number}
        made["cell"]["id"] = f"micro-demo-x-t{threads}-{number:010x}"
        yield made


@pytest.fixture(scope="module")
def scaling(tmp_path_factory):
    """Load a pair of each kind; return the scaling of each pair's second cell."""
    made = [each for number, pair in enumerate(UNLIKE.values()) for each in with_threads(number, copy.deepcopy(pair))]
    results = door.stored(tmp_path_factory.mktemp("scaling"), *made)
    cells = analysis.load(results)
    found = cells[cells["threads"] == 2].set_index("seed")["scaling"]
    return {key: found[number] for number, key in enumerate(UNLIKE)}


@pytest.mark.parametrize("what", UNLIKE)
def test_scaling_is_told_only_between_cells_that_differ_in_threads_alone(scaling, what):
    expected = 2.5 if what == "like" else np.nan

    assert scaling[what] == pytest.approx(expected, nan_ok=True)


# Disturbed runs

SPOILT = {
    "quiet": {"other_cpu": 3.0},
    "cold": {"resident_fraction": 0.5},
    "complete": {"image_errors": 1},
    "device_bytes": {"device_bytes": 0},
    "time_adds_up": {"wall_parts": ["load_s"], "load_s": 0.5},
}


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """Analyse the same cells twice, once with a very fast run more in each that fails a rule, and compare both."""
    cwd = tmp_path_factory.mktemp("disturbed")
    plain = [cell(rate, rates=(97.0, 100.0, 99.0), threads=n) for n, rate in enumerate(range(100, 600, 100), 1)]
    spoilt = copy.deepcopy(plain)
    for made, keys in zip(spoilt, SPOILT.values(), strict=True):
        made["runs"].insert(2, door.run(4, 9e4, **keys))
    folders = [door.stored(cwd / name, *made) for name, made in (("plain", plain), ("spoilt", spoilt))]
    done = [door.cli(folder, cwd=cwd, program="analysis") for folder in folders]
    assert [each.code for each in done] == [0, 0]
    return folders, done


def test_a_run_that_fails_its_checks_is_kept_with_its_reason(disturbed):
    (_, folder), (_, done) = disturbed

    rows = door.table(folder, "runs")
    assert rows["status"].tolist() == ["valid", "valid", "invalid", "valid", "valid"] * len(SPOILT)
    for rule, (_, row) in zip(SPOILT, rows[rows["status"] == "invalid"].iterrows(), strict=True):
        assert row["reason"].startswith(f"{rule}:")
        assert f"{rule}:" in done.out
        assert [name for name, passed in row.filter(like="check.").items() if passed is False] == [f"check.{rule}"]


def test_a_run_that_fails_its_checks_counts_nowhere(disturbed):
    (plain, spoilt), _ = disturbed
    told = "checks", "n_invalid"
    before, after = (door.table(folder, "medians").drop(columns=[*told]) for folder in (plain, spoilt))

    assert before.equals(after[before.columns])
    assert after["n_valid"].tolist() == [3] * len(SPOILT)
    assert door.table(spoilt, "medians")["n_invalid"].tolist() == [1] * len(SPOILT)
    for name in ("fig4", "verdicts"):
        assert door.table(plain, name).equals(door.table(spoilt, name))
    compared = door.cli("compare", plain, spoilt, "--json", cwd=plain).json["cells"]
    assert [(each["ratio"], each["verdict"]) for each in compared] == [(1.0, "no change")] * len(SPOILT)


def test_medians_are_of_the_valid_measured_runs_alone(disturbed):
    (_, folder), _ = disturbed
    rows, records = door.table(folder, "medians"), door.records(folder)

    assert rows["cell"].tolist() == [made["cell"]["id"] for made in records]
    for (_, row), made in zip(rows.iterrows(), records, strict=True):
        counted = [run for run in made["runs"] if run["run"] in {1, 2, 3}]
        for key in ("images_per_s", "read_mb_per_s", "wall_s"):
            values = [run[key] for run in counted]
            assert [row[key + end] for end in ("", "_min", "_max")] == pytest.approx(
                [np.median(values), min(values), max(values)]
            )
        rates = [run["images_per_s"] for run in counted]
        assert row["spread"] == pytest.approx((max(rates) - min(rates)) / np.median(rates)) == pytest.approx(3 / 99)
    drawn = door.table(folder, "fig4")
    assert drawn["images_per_s"].tolist() == pytest.approx(rows["images_per_s"].tolist())
    assert drawn["scaling"].tolist() == pytest.approx([1, 2, 3, 4, 5])


def test_the_dagger_of_cells_whose_runs_scatter_is_shown(tmp_path):
    made = [cell(threads=1), cell(200.0, SCATTERED, threads=2), cell(400.0, (98.1, 100.0, 102.0), threads=4)]
    results = door.stored(tmp_path / "results", *made)

    done = door.cli(results, cwd=tmp_path, program="analysis")

    rows = door.table(results, "medians").set_index("threads")
    assert rows["unstable"].to_dict() == {1: False, 2: True, 4: False}
    assert rows["spread"].to_dict() == pytest.approx({1: 0.002, 2: 0.4, 4: 0.039})
    of_cells = [line for line in done.out.splitlines() if line.startswith("local ")]
    assert ["†" in line for line in of_cells] == [False, True, False]
    of_ratios = [line.split() for line in done.out.splitlines() if line.split()[:1] in (["2"], ["4"])]
    assert [("†" in words[1]) for words in of_ratios] == [True, False]
    assert "†" in (results / "report.html").read_text("utf-8")
    assert door.table(results, "fig4")["unstable"].tolist() == [False, True, False]


# Compare: before, after, what is told of it.

OTHERS = [door.run(number, 1.0, resident_fraction=1.0) for number in (2, 3)]
PAIRS = {
    "faster": (cell(), cell(120.0), "faster"),
    "slower": (cell(), cell(80.0), "slower"),
    "fewer seconds": (training(10.0), training(8.0), "faster"),
    "more seconds": (training(10.0), training(12.0), "slower"),
    "within the tolerance": (cell(), cell(103.0), "no change"),
    "equal": (cell(), cell(), "no change"),
    "the interval holds 1": (cell(rates=(98.5, 100.0, 101.5)), cell(rates=(98.0, 101.0, 101.9)), "no change"),
    "unstable, far away": (cell(), cell(40.0, SCATTERED), "slower"),
    "unstable, perhaps the same": (cell(), cell(110.0, SCATTERED), "not comparable"),
    "version": (cell(), changed(cell(50.0), "cell.benchmark_version", 2), "not comparable"),
    "checksum": (cell(), changed(cell(50.0), "dataset.checksum", "sha256:ffff"), "not comparable"),
    "1 valid run": (cell(), door.record(50.0, *OTHERS), "not comparable"),
    "failed": (cell(), changed(door.record(50.0), "terms.min_valid_runs", 3), "not comparable"),
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Compare all pairs at once, told apart by their seeds; return the exit code and the document."""
    cwd = tmp_path_factory.mktemp("compared")
    sides = [], []
    for number, pair in enumerate(PAIRS.values()):
        for side, made in zip(sides, copy.deepcopy(pair[:2]), strict=True):
            made["cell"]["settings"]["seed"] = number
            made["cell"]["id"] += f"-{number:02}"
            side.append(made)
    before, after = (door.stored(cwd / name, *side) for name, side in zip("ab", sides, strict=True))
    done = door.cli("compare", before, after, "--json", "--out", cwd / "out", cwd=cwd)
    rows = {each["cell_a"][-2:]: each for each in done.json["cells"]}
    return done, {what: rows[f"{number:02}"] for number, what in enumerate(PAIRS)}, cwd


@pytest.mark.parametrize("what", PAIRS)
def test_compare_tells_a_change_beyond_noise_and_tolerance_and_why_not(compared, what):
    row, (before, after, verdict) = compared[1][what], PAIRS[what]

    assert row["verdict"] == verdict
    assert bool(row["why"]) is (verdict in {"no change", "not comparable"})
    assert row["figure"] == before["cell"]["figure"]
    if verdict != "not comparable":
        values = [sorted(run[row["figure"]] for run in made["runs"][1:]) for made in (before, after)]
        (low_a, median_a, high_a), (low_b, median_b, high_b) = values
        assert [row[key] for key in ("median_a", "min_a", "max_a")] == [median_a, low_a, high_a]
        assert [row[key] for key in ("ratio", "low", "high")] == pytest.approx(
            [median_b / median_a, low_b / high_a, high_b / low_a]
        )


def test_compare_counts_the_verdicts_writes_them_and_ends_with_one_where_something_is_slower(compared):
    done, rows, cwd = compared
    verdicts = [verdict for *_, verdict in PAIRS.values()]

    assert done.code == 1
    assert done.json["counts"] == {verdict: verdicts.count(verdict) for verdict in set(verdicts)}
    written = door.table(cwd, "comparison").set_index("cell_a")
    assert {row["cell_a"]: row["verdict"] for row in rows.values()} == written["verdict"].to_dict()
    assert {path.name for path in cwd.iterdir()} == {"a", "b", "out"}
    assert not (cwd / "a" / "comparison").exists()


LOOSER = changed(changed(cell(50.0), "terms.checks.other_cpu_max", 5.0), "terms.of_site", {"other_cpu_max": 0.5})
ENDS = {"faster": (cell(120.0), 0), "of other threads": (cell(50.0, threads=2), 2), "looser": (LOOSER, 2)}


@pytest.mark.parametrize(("made", "code"), ENDS.values(), ids=ENDS)
def test_the_exit_code_of_compare_says_slower_or_nothing_comparable(cli, tmp_path, made, code):
    a, b = door.stored(tmp_path / "a", cell()), door.stored(tmp_path / "b", made)

    assert cli("compare", a, b, "--quiet").code == code


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["none"], "none"), (["."], "no record"), (["a"], "same"), (["b/../a/records"], "same"),
        (["b", "--match", "ssd:local"], "ssd"), (["b", "--match", "hdd"], "hdd"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_with_a_cure_and_nothing_is_written(cli, tmp_path, words, named):
    a, _ = (door.stored(tmp_path / name, cell()) for name in "ab")

    done = cli("compare", a, *words, "--out", tmp_path / "out")

    assert (done.code, done.out, door.is_one_cure(done.err)) == (2, "", True)
    assert named in done.err
    assert not (tmp_path / "out").exists()


def test_storages_of_other_names_are_compared_where_they_are_matched(cli, tmp_path):
    before = [cell(storage__name="hdd"), cell(storage__name="ssd")]
    after = [cell(70.0, storage__name="hdd"), cell(storage__name="nvme")]
    a, b = door.stored(tmp_path / "a", *before), door.stored(tmp_path / "b", *after)

    done = cli("compare", a, b, "--match", "ssd:hdd", "--match", "hdd:nvme", "--json")

    told = {(each["storage_a"], each["storage_b"]): each["verdict"] for each in done.json["cells"]}
    assert (done.code, told) == (1, {("ssd", "hdd"): "slower", ("hdd", "nvme"): "no change"})


@pytest.mark.parametrize(("rate", "code"), [(100.0, 2), (50.0, 1)])
def test_with_a_damaged_record_the_answer_is_never_that_nothing_is_slower(cli, tmp_path, rate, code):
    damaged = cell(threads=1)
    a, b = door.stored(tmp_path / "a", cell()), door.stored(tmp_path / "b", cell(rate), damaged)
    file = b / "records" / damaged["cell"]["id"] / "record.json"
    file.write_text(json.dumps(damaged)[:-10], "utf-8")

    done = cli("compare", a, b)

    assert done.code == code
    assert str(file) in done.err
