"""What the tables, the terminal and `compare` make of records that nobody measured: each number is known beforehand."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import analysis
from tests.acceptance import door

SCATTERED = 80.0, 100.0, 120.0


def cell(rate=100.0, rates=(99.9, 100.0, 100.1), **settings):
    """Return a record of three runs about this rate, which by themselves scatter by 0.1 %."""
    return door.record(*(each * rate / 100 for each in rates), **settings)


def changed(made, **places):
    """Return a record with other values at places like `provenance__host`."""
    made = copy.deepcopy(made)
    for where, value in places.items():
        *groups, name = where.split("__")
        node = made
        for group in groups:
            node = node[group]
        node[name] = value
    return made


def training(wall_s):
    """Return a record of a training whose merit is its wall time."""
    merit = {"benchmark": "alexnet", "kind": "training", "figure": "wall_s", "unit": "s", "better": "lower"}
    made = cell(512 / wall_s, benchmark={"name": "alexnet", "control": "none", "image_size": 224})
    made["cell"] |= merit | {"id": made["cell"]["id"].replace("micro", "alexnet")}
    return made


# Each has twice the threads of its base, and 2.5 times its rate; the seed tells the pairs apart.
LIKE_BUT = {
    "nothing": cell(250.0),
    "batch_size": cell(250.0, batch_size=32),
    "storage": cell(250.0, storage__name="hdd"),
    "dataset": cell(250.0, dataset__files=511),
    "benchmark": cell(250.0, benchmark__image_size=32),
    "host": changed(cell(250.0), provenance__host="node2"),
    "tensorflow": changed(cell(250.0), provenance__versions__tensorflow="2.20.0"),
    "checksum": changed(cell(250.0), dataset__checksum="sha256:ff00"),
}


def test_scaling_is_told_only_between_cells_that_differ_in_threads_alone(tmp_path):
    pairs = [(cell(), other) for other in LIKE_BUT.values()]
    made = [
        changed(each, cell__settings__threads=n, cell__settings__seed=seed, cell__id=f"micro-x-t{n}-{seed:010x}")
        for seed, pair in enumerate(pairs)
        for n, each in enumerate(pair, 1)
    ]

    cells = analysis.load(door.stored(tmp_path, *made))

    found = cells[cells["threads"] == 2].sort_values("seed")["scaling"].tolist()
    assert found == pytest.approx([2.5, *[np.nan] * (len(LIKE_BUT) - 1)], nan_ok=True)


# What a rule allows by a hair, and what it does not, by the limits of the stored record: 57,344,000 bytes were read.
EDGES = {
    "quiet": ({"other_cpu": 0.499}, {"other_cpu": 0.501}),
    "cold": ({"resident_fraction": 0.0099}, {"resident_fraction": 0.0101}),
    "complete": ({"image_errors": 0}, {"image_errors": 1}),
    "device_bytes": ({"device_bytes": 56_790_000}, {"device_bytes": 56_750_000}),
    "time_adds_up": ({"part": 0.991}, {"part": 0.96}),
}


def edge(number, rate, part=None, **keys):
    """Return a run of this rate and such keys; its parts may be a share of its wall time."""
    parts = {"wall_parts": ["load_s"], "load_s": part * 512 / rate} if part else {}
    return door.run(number, rate, **keys, **parts)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """Analyse the same cells twice, once with a far faster run more in each that just fails a rule."""
    cwd = tmp_path_factory.mktemp("disturbed")
    plain, spoilt = [], []
    for threads, (good, bad) in enumerate(EDGES.values(), 1):
        runs = [edge(number, threads * rate, **good) for number, rate in enumerate((97.0, 100.0, 99.0), 1)]
        plain.append(door.record(*runs, threads=threads))
        spoilt.append(door.record(runs[0], edge(4, 3000.0, **bad), *runs[1:], threads=threads))
    folders = [door.stored(cwd / name, *made) for name, made in (("plain", plain), ("spoilt", spoilt))]
    done = [door.cli(folder, cwd=cwd, program="analysis") for folder in folders]
    assert [each.code for each in done] == [0, 0]
    return *folders, done[1].out


def test_a_run_that_fails_its_checks_is_kept_with_its_reason(disturbed):
    _, folder, out = disturbed

    rows = door.table(folder, "runs")
    assert rows["status"].tolist() == ["valid", "valid", "invalid", "valid", "valid"] * len(EDGES)
    for rule, (_, row) in zip(EDGES, rows[rows["status"] == "invalid"].iterrows(), strict=True):
        assert row["reason"].startswith(f"{rule}:")
        assert f"{rule}:" in out
        assert [name for name, passed in row.filter(like="check.").items() if passed is False] == [f"check.{rule}"]


def test_a_run_that_fails_its_checks_counts_nowhere(disturbed):
    plain, spoilt, _ = disturbed
    before, after = (door.table(folder, "medians").drop(columns="checks") for folder in (plain, spoilt))

    assert before.drop(columns="n_invalid").equals(after.drop(columns="n_invalid")[before.columns.drop("n_invalid")])
    assert (after["n_valid"].tolist(), after["n_invalid"].tolist()) == ([3] * len(EDGES), [1] * len(EDGES))
    for name in ("fig4", "verdicts"):
        assert door.table(plain, name).equals(door.table(spoilt, name))
    compared = door.cli("compare", plain, spoilt, "--json", cwd=plain).json["cells"]
    assert [(each["ratio"], each["verdict"]) for each in compared] == [(1.0, "no change")] * len(EDGES)


def test_medians_are_of_the_valid_measured_runs_alone(disturbed):
    rows, drawn = (door.table(disturbed[1], name).set_index("cell") for name in ("medians", "fig4"))

    for made in door.records(disturbed[1]):
        row, counted = rows.loc[made["cell"]["id"]], [run for run in made["runs"] if run["run"] in {1, 2, 3}]
        for key in ("images_per_s", "read_mb_per_s", "wall_s"):
            values = sorted(run[key] for run in counted)
            assert [row[key + end] for end in ("_min", "", "_max")] == pytest.approx(values)
        assert row["spread"] == pytest.approx(3 / 99)
        assert drawn.loc[row.name, "images_per_s"] == row["images_per_s"]
    assert drawn["scaling"].tolist() == pytest.approx([1, 2, 3, 4, 5])


def test_the_dagger_of_cells_whose_runs_scatter_is_shown(tmp_path):
    made = [cell(threads=1), cell(200.0, SCATTERED, threads=2), cell(400.0, (98.1, 100.0, 102.0), threads=4)]
    results = door.stored(tmp_path / "results", *made)

    done = door.cli(results, cwd=tmp_path, program="analysis")

    rows = door.table(results, "medians").set_index("threads")
    assert rows["unstable"].to_dict() == {1: False, 2: True, 4: False}
    assert rows["spread"].to_dict() == pytest.approx({1: 0.002, 2: 0.4, 4: 0.039})
    lines = [line.split() for line in done.out.splitlines()]
    assert ["†" in "".join(words) for words in lines if words[:1] == ["local"]] == [False, True, False]
    assert ["†" in words[1] for words in lines if words[:1] in (["2"], ["4"])] == [True, False]
    assert "†" in (results / "report.html").read_text("utf-8")
    assert door.table(results, "fig4")["unstable"].tolist() == [False, True, False]


PAIRS = {  # before, after, what is told of it
    "faster": (cell(), cell(120.0), "faster"),
    "slower": (cell(), cell(80.0), "slower"),
    "fewer seconds": (training(10.0), training(8.0), "faster"),
    "more seconds": (training(10.0), training(12.0), "slower"),
    "within the tolerance": (cell(), cell(103.0), "no change"),
    "the interval holds 1": (cell(rates=(98.5, 100.0, 101.5)), cell(rates=(98.0, 101.0, 101.9)), "no change"),
    "unstable, far away": (cell(), cell(40.0, SCATTERED), "slower"),
    "unstable, perhaps the same": (cell(), cell(110.0, SCATTERED), "not comparable"),
    "version": (cell(), changed(cell(50.0), cell__benchmark_version=2), "not comparable"),
    "checksum": (cell(), changed(cell(50.0), dataset__checksum="sha256:ffff"), "not comparable"),
    "2 valid runs": (cell(), door.record(50.0, 50.0, door.run(3, 50.0, resident_fraction=1.0)), "not comparable"),
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Compare all pairs at once, told apart by their seeds; return the folder and what was said."""
    cwd = tmp_path_factory.mktemp("compared")
    sides = [
        [
            changed(pair[side], cell__settings__seed=number, cell__id=f"{pair[side]['cell']['id']}-{number:02}")
            for number, pair in enumerate(PAIRS.values())
        ]
        for side in (0, 1)
    ]
    folders = [door.stored(cwd / name, *side) for name, side in zip("ab", sides, strict=True)]
    return cwd, door.cli("compare", *folders, "--json", "--out", cwd / "out", cwd=cwd)


def test_compare_tells_a_change_beyond_noise_and_tolerance_and_why_not(compared):
    cwd, done = compared
    rows = sorted(done.json["cells"], key=lambda row: row["cell_a"][-2:])

    for (what, (before, after, verdict)), row in zip(PAIRS.items(), rows, strict=True):
        assert (what, row["verdict"], row["figure"]) == (what, verdict, before["cell"]["figure"])
        assert bool(row["why"]) is (verdict in {"no change", "not comparable"})
        if verdict != "not comparable":
            values = [sorted(run[row["figure"]] for run in made["runs"][1:]) for made in (before, after)]
            (low_a, median_a, high_a), (low_b, median_b, high_b) = values
            assert [row[key] for key in ("median_a", "min_a", "max_b")] == [median_a, low_a, high_b]
            assert [row[key] for key in ("ratio", "low", "high")] == pytest.approx(
                [median_b / median_a, low_b / high_a, high_b / low_a]
            )
    verdicts = [verdict for *_, verdict in PAIRS.values()]
    assert (done.code, done.json["counts"]) == (1, {verdict: verdicts.count(verdict) for verdict in set(verdicts)})
    assert sorted(door.table(cwd, "comparison")["verdict"]) == sorted(verdicts)
    assert {path.name for path in cwd.iterdir()} == {"a", "b", "out"}


LOOSER = changed(cell(50.0), terms__checks__other_cpu_max=5.0, terms__of_site={"other_cpu_max": 0.5})


@pytest.mark.parametrize(
    ("made", "code"), [(cell(120.0), 0), (cell(50.0, threads=2), 2), (LOOSER, 2)], ids=["faster", "other", "looser"]
)
def test_the_exit_code_of_compare_says_slower_or_nothing_comparable(cli, tmp_path, made, code):
    assert (
        cli("compare", door.stored(tmp_path / "a", cell()), door.stored(tmp_path / "b", made), "--quiet").code == code
    )


@pytest.mark.parametrize("words", [["none"], ["b/../a/records"], ["b", "--match", "ssd:local"]], ids=str)
def test_what_cannot_be_compared_is_refused_with_a_cure_and_nothing_is_written(cli, tmp_path, words):
    a, _ = (door.stored(tmp_path / name, cell()) for name in "ab")

    done = cli("compare", a, *words, "--out", tmp_path / "out")

    assert (done.code, done.out, door.is_one_cure(done.err)) == (2, "", True)
    assert not (tmp_path / "out").exists()


def test_storages_of_other_names_are_compared_where_they_are_matched_and_a_damaged_record_is_named(cli, tmp_path):
    before = [cell(storage__name="hdd"), cell(storage__name="ssd")]
    after = [cell(storage__name="hdd"), cell(storage__name="nvme"), cell(threads=1)]
    a, b = door.stored(tmp_path / "a", *before), door.stored(tmp_path / "b", *after)
    file = b / "records" / after[-1]["cell"]["id"] / "record.json"
    file.write_text(json.dumps(after[-1])[:-10], "utf-8")

    done = cli("compare", a, b, "--match", "ssd:hdd", "--match", "hdd:nvme", "--json")

    told = {(each["storage_a"], each["storage_b"]): each["verdict"] for each in done.json["cells"]}
    assert told == {("ssd", "hdd"): "no change", ("hdd", "nvme"): "no change"}
    assert (done.code, str(file) in done.err) == (2, True)  # what is damaged might be slower
