import copy
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.ticker import FixedLocator, LogLocator

from analysis.cli.compare import main
from analysis.compare import comparison_report
from analysis.compare.comparison_chart import chart_specs
from analysis.compare.comparison_report import ComparedCampaign, comparison
from analysis.compare.comparison_verdict import COLUMNS
from analysis.text import DASH, TIMES
from jobs.judging.judge import CURE_OF_LOOSER
from tests.analysis.baseline_records import baseline
from tests.analysis.figures.test_swept_settings import toy
from tests.analysis.record_factory import id_of, leave_unrendered, left, record, rows_of, run, store, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import frames, training

ROOT = Path(__file__).parents[3]
STEADY = (99.9, 100.0, 100.1)
pytestmark = pytest.mark.usefixtures("unrendered")


def cell(rate=100.0, limit=0.04, **settings):
    """Return a cell whose runs scatter by 0.1 %, at a site that tolerates 4 %."""
    return record([each * rate / 100 for each in STEADY], limit=limit, **settings)


def compared(folder, before, after, *words):
    """Compare two campaigns; return the exit code and the rows of comparison.csv by label."""
    code = main([str(store(folder / "a", *before)), str(store(folder / "b", *after)), *words, "--out", str(folder)])
    if not (folder / "comparison.csv").exists():
        return code, {}
    return code, {row["label"]: row for row in rows_of(folder / "comparison.csv")}


def only(outcome):
    """Return the exit code, and the verdict and reason of the only row."""
    code, rows = outcome
    (row,) = rows.values()
    return code, row["verdict"], row["why"]


def test_a_change_beyond_noise_and_tolerance_is_told_with_its_ratio_and_interval(tmp_path):
    code, rows = compared(tmp_path, [cell(100.0)], [cell(80.0)])

    row = rows["local threads=4"]
    assert (code, row["verdict"]) == (1, "slower")
    assert float(row["ratio"]) == pytest.approx(0.8)
    assert (float(row["low"]), float(row["high"])) == pytest.approx((0.8 * 99.9 / 100.1, 0.8 * 100.1 / 99.9))
    assert (float(row["median_a"]), float(row["median_b"]), row["n_valid_a"]) == (100.0, 80.0, "3")
    assert list(row) == COLUMNS


def with_few_runs(made):
    bad = [run(n, 1.0, fails=["cold"]) for n in (2, 3)]
    return made | {"runs": [made["runs"][1], *bad]}


LESS = ("pipeline", "files_per_s", "s/file", "lower")
SECONDS = training([100.0, 100.1, 99.9])
SLOW = cell(50.0)
WITHIN = "within the tolerance of 4.0 %"
# Each pair is of two campaigns that hold them all: before, after, what is told of it.
PAIRS = [
    (cell(), cell(105.0), "faster", ""),
    (cell(), cell(95.0), "slower", ""),
    (SECONDS, training([120.0, 120.1, 119.9]), "slower", ""),
    (SECONDS, training([80.0, 80.1, 79.9]), "faster", ""),
    # What reads or writes a storage by itself, and a benchmark that the paper does not have, by their own figures.
    *((baseline([100.0] * 3, how), baseline([150.0] * 3, how), "faster", "") for how in ("read", "write")),
    (toy([10.0, 10.1, 10.2], size=1, merit=LESS), toy([20.0, 20.1, 20.2], size=1, merit=LESS), "slower", ""),
    (cell(), cell(103.9), "no change", WITHIN),
    (cell(), cell(96.2), "no change", WITHIN),
    (record([90.0, 100.0, 110.0]), record([95.0, 108.0, 112.0]), "no change", "the interval holds 1"),
    # Of two tolerances the wider counts, unless it lets anything pass.
    (cell(limit=0.01), cell(95.0, limit=0.06), "no change", "within the tolerance of 6.0 %"),
    (cell(limit=0.01), cell(95.0, limit=0.04), "slower", ""),
    (cell(limit=0.01), cell(95.0, limit=0.2), "not comparable", "too wide to compare anything"),
    # Of an unstable cell only a whole interval on one side of the tolerance tells; here it may hold the tolerance.
    (cell(), unstable(cell(50.0)), "slower", ""),
    (cell(), unstable(cell(200.0)), "faster", ""),
    (cell(), unstable(cell(100.0)), "no change", "the interval holds 1"),
    (cell(), unstable(cell(101.0)), "no change", WITHIN),
    (cell(), unstable(cell(96.1)), "not comparable", "unstable: B"),
    (cell(), unstable(cell(104.0)), "not comparable", "unstable: B"),
    (
        cell(), SLOW | {"cell": SLOW["cell"] | {"benchmark_version": 2, "id": "micro-another-id"}}, "not comparable",
        "benchmark versions 1 and 2",
    ),
    (
        cell(), SLOW | {"dataset": {"checksum": "sha256:ffff"}}, "not comparable",
        "other data: the checksums of the datasets differ",
    ),
    (cell(), with_few_runs(SLOW), "not comparable", "B has 1 valid run, fewer than 3"),
    (cell(), left(SLOW, "failed"), "not comparable", "B is failed"),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows_of_pairs(tmp_path_factory):
    """Compare all pairs at once, told apart by their seeds; return the rows in order."""
    sides = [[copy.deepcopy(made) for made in pair[:2]] for pair in PAIRS]
    for number, pair in enumerate(sides):
        for made in pair:
            made["cell"]["settings"]["seed"] = number
            made["cell"]["id"] += f"-{number:02}"
    with pytest.MonkeyPatch.context() as patch:
        leave_unrendered(patch)
        code, rows = compared(tmp_path_factory.mktemp("compared"), *zip(*sides, strict=True))
    assert code == 1
    return sorted(rows.values(), key=lambda row: row["cell_a"][-2:])


@pytest.mark.parametrize(("number", "verdict", "why"), [(n, *pair[2:]) for n, pair in enumerate(PAIRS)])
def test_a_change_counts_beyond_its_interval_and_the_tolerance_and_what_cannot_be_compared_says_why(
    rows_of_pairs, number, verdict, why
):
    row = rows_of_pairs[number]

    assert row["verdict"] == verdict
    assert why in row["why"]
    assert bool(row["why"]) is bool(why)
    figures = {"alexnet": "wall_s", "micro": "images_per_s", "toy": "files_per_s"}  # more seconds are slower
    written = "-write-" in row["cell_a"]
    assert row["figure"] == figures.get(row["benchmark"], "write_mb_per_s" if written else "read_mb_per_s")


@pytest.mark.parametrize(("sides", "told"), [("ab", "both were judged by"), ("b", "B was judged by")])
def test_looser_checks_are_said_once_with_the_cure(tmp_path, sides, told):
    made = [cell(limit=0.05 if side in sides else 0.04) for side in "ab"]
    for each in made:
        each["terms"]["of_site"]["spread_max"] = 0.04

    code, verdict, why = only(compared(tmp_path, made[:1], made[1:]))

    assert (code, verdict) == (2, "not comparable")
    words = "looser checks than the site's: checks.spread_max=0.05 (the site's: 0.04)"
    assert why == f"{told} {words}; {CURE_OF_LOOSER}"


def side(*made, folder="a"):
    return ComparedCampaign(Path(folder), *frames(*made)[:2])


def test_settings_that_tell_cells_apart_stand_in_their_names_as_they_are_typed_and_sides_name_hosts_in_order():
    cells = [cell(threads=1, host="n2"), cell(threads=1, benchmark__preprocess=False), cell(threads=1, batch_size=128)]

    labels = comparison(side(*cells), side(*cells), {})["label"].tolist()

    assert labels == [
        "local benchmark.preprocess=false batch_size=64 threads=1",
        "local benchmark.preprocess=true batch_size=64 threads=1",
        "local benchmark.preprocess=true batch_size=128 threads=1",
    ]
    assert side(*cells).description("A") == "A: a, 3 cells on n2, node1, TensorFlow 2.21.0"
    assert side(cell(host="")).description("B") == "B: a, 1 cell on an unknown host, TensorFlow 2.21.0"


def test_a_comparison_in_words_has_every_number_of_its_rows():
    table = comparison(side(cell(), cell(threads=1)), side(cell(50.0), cell(threads=8)), {})

    told = comparison_report.comparison_markdown(table, ["A: a|b", "B"]).splitlines()

    lines = [re.split(r" ?\| ?", line)[1:-3] for line in told if line[:1] == "|"]
    assert lines == [
        ["cell", "A", "B", "B / A", "95 % interval", "verdict", "why"], ["---", *["---:"] * 4, *["---"] * 2],
        ["local threads=1", "100 (3)", DASH, DASH, DASH, "not comparable", "only in A"],
        ["local threads=4", "100 (3)", "50.0 (3)", f"0.500{TIMES}", f"0.499{DASH}0.501", "slower", ""],
        ["local threads=8", DASH, "100 (3)", DASH, DASH, "not comparable", "only in B"],
    ]  # fmt: skip
    assert (told[2], told[5].partition(". ")[0]) == ("- A: a\\|b", "3 cells: 1 slower, 2 not comparable")
    assert "## micro: images/s" in told


ARROW = "\N{RIGHTWARDS ARROW}"


@pytest.mark.parametrize(
    ("before", "after", "known_as", "told"),
    [
        ([cell()], [cell(200.0, storage__root="/scratch", host="node9")], {}, {"local threads=4": "faster"}),
        # Where each campaign has one storage, they are the same; by another name a cell is not found by its id.
        ([cell(9, threads=n, storage="hdd") for n in (1, 2)], [cell(18, threads=n, storage="nvme") for n in (1, 2)], {},
         {f"hdd {ARROW} nvme threads={n}": "faster" for n in (1, 2)}),
        ([cell(storage="hdd"), cell(storage="ssd")], [cell(70.0, storage="hdd"), cell(storage="ssd")],
         {"hdd": "ssd", "ssd": "hdd"},
         {f"hdd {ARROW} ssd threads=4": "no change", f"ssd {ARROW} hdd threads=4": "slower"}),
        # Of several none is guessed.
        ([cell(storage="hdd"), cell(storage="ssd")], [cell(storage="ssd"), cell(storage="optane")], {},
         {"ssd threads=4": "no change", "hdd threads=4": "not comparable", "optane threads=4": "not comparable"}),
    ],
)  # fmt: skip
def test_a_cell_is_found_on_a_storage_of_another_place_or_name(before, after, known_as, told):
    table = comparison(side(*before), side(*after), known_as)

    assert dict(zip(table["label"], table["verdict"], strict=True)) == told


@pytest.mark.parametrize("changed", ["checkpoint__slow", "storage__root", "dataset__path", "storage__emulated"])
def test_where_something_lies_is_not_what_it_is(changed):
    made = [saved("optane to hdd", [9.0 + n / 9, 9.1, 9.2]) for n in (0, 1)]
    group, _, name = changed.partition("__")
    made[1]["cell"]["settings"][group] |= {
        name: {"name": "hdd", "root": "/elsewhere"} if name == "slow" else "/elsewhere"
    }
    made[1]["cell"]["id"] += "-b"

    table = comparison(side(made[0], cell()), side(made[1], cell()), {})

    assert table["cell_b"].notna().all()


def test_the_figure_shows_each_ratio_on_a_logarithmic_axis_beside_one(tmp_path):
    ours, theirs = frames(cell(), cell(threads=1)), frames(cell(50.0), cell(150.0, threads=1))
    table = comparison(ComparedCampaign(Path("a"), *ours[:2]), ComparedCampaign(Path("b"), *theirs[:2]), {})

    (spec,) = chart_specs(table, ["A: a", "B: b"], {"images_per_s": "higher"})
    (axes,) = spec.drawn().axes
    points = {line.get_xdata()[0]: line for line in axes.lines if line.get_marker() in "^v"}
    assert axes.get_xscale() == "log"
    assert list(points) == pytest.approx([1.5, 0.5])
    assert [to_hex(line.get_color()) for line in points.values()] == ["#009e73", "#d55e00"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["local threads=1", "local threads=4"]
    assert [1, 1] in [list(line.get_xdata()) for line in axes.lines]
    assert axes.get_xlim() == pytest.approx((0.5 / 1.02 * 0.998, 1.5 * 1.02 * 1.002), rel=1e-3)
    bands = [
        path.get_extents().extents.tolist()
        for each in axes.collections
        for path in each.get_paths()
        if each.get_zorder() == 0
    ]
    assert bands == [pytest.approx([1 / 1.04, y - 0.5, 1.04, y + 0.5]) for y in (0, 1)]
    assert spec.caption == (
        "A: a. B: b. Ratio of the medians of the valid measured runs with the 95 % percentile interval of the"
        " bootstrap; shaded: the tolerance, checks.spread_max, 4.0 %."
    )
    texts = [text.get_text() for text in (*axes.texts, *spec.drawn().legends[0].get_texts())]
    assert texts == ["1.500×  faster", "0.500×  slower", "faster", "slower", "within the tolerance"]  # noqa: RUF001


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.9, 2.59, FixedLocator), (0.9, 2.6, LogLocator), (1.2, 2.8, FixedLocator), (0.4, 0.9, FixedLocator)],
)
def test_the_axis_holds_1_and_has_ticks_at_equal_steps_where_it_is_narrow(low, high, ticks):
    row = {
        "label": "x",
        "figure": "wall_s",
        "ratio": (low + high) / 2,
        "low": low,
        "high": high,
        "tolerance": 0.1,
        "verdict": "no change",
    }

    axes = chart_specs(pd.DataFrame([row]), [], {"wall_s": "lower"})[0].drawn().axes[0]

    assert isinstance(axes.xaxis.get_major_locator(), ticks)
    left, right = axes.get_xlim()
    assert (left < min(low, 1) < 1.03 * left, right / 1.03 < max(high, 1) < right) == (True, True)


@pytest.mark.parametrize("cells", [60, 61])
def test_of_very_many_cells_the_figure_shows_the_largest_changes_up_or_down_and_says_so(cells):
    rows = [
        {"label": str(n), "figure": "wall_s", "ratio": (1.01 + n) ** (-1) ** n, "tolerance": 0.1} for n in range(cells)
    ]

    (spec,) = chart_specs(pd.DataFrame(rows), ["A"], {"wall_s": "lower"})

    assert spec.frame["label"].tolist() == [str(n) for n in range(cells - 60, cells)]
    assert ("The 60 largest changes of 61 cells; all stand in comparison.csv." in spec.caption) is (cells > 60)


@pytest.mark.parametrize(
    ("other", "words", "told"),
    [
        ("none", [], "none is not a folder"),
        (".", [], "no record in"),
        ("a", [], "are the same campaign"),
        ("a/records", [], "are the same campaign"),
        ("b/../a", [], "are the same campaign"),
        ("c", [], "no cell in common: A: "),
        ("b", ["--match", "ssd:local"], "--match: A has no storage 'ssd'"),
        ("b", ["--match", "local:x"], "--match: B has no storage 'x'"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_hint(tmp_path, capsys, other, words, told):
    for name, threads in (("a", 4), ("b", 4), ("c", 2)):
        store(tmp_path / name, cell(threads=threads))

    code = main([str(tmp_path / "a"), str(tmp_path / other), "--out", str(tmp_path / "out"), *words])

    err = capsys.readouterr().err
    assert code == 2
    assert told in err
    assert "\n\nhint: " in err
    assert not (tmp_path / "out").exists()


def test_it_is_written_into_the_folder_of_a_and_is_no_part_of_the_campaign(tmp_path, capsys):
    a, b = store(tmp_path / "a", cell()), store(tmp_path / "b", cell(50.0))

    assert main([str(a / "records"), str(b), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert main([str(a), str(b), "--json"]) == 1

    assert json.loads(capsys.readouterr().out)["cells"] == told["cells"]
    assert {Path(path).parent for path in told["written"]} == {a / "comparison"}
    assert told["counts"]["slower"] == len(told["cells"]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_link_in_the_place_of_that_folder_is_refused(tmp_path, capsys):
    a, b = store(tmp_path / "a", cell()), store(tmp_path / "b", cell(50.0))
    (tmp_path / "elsewhere").mkdir()
    (a / "comparison").symlink_to(tmp_path / "elsewhere")

    assert main([str(a), str(b)]) == 2
    assert "comparison is a link\n\nhint: " in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("names", ["hdd", ":ssd", "hdd:"])
def test_half_a_match_is_wrong_usage(names, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["a", "b", "--match", names])

    assert "does not have the form A_STORAGE:B_STORAGE" in capsys.readouterr().err


@pytest.mark.parametrize(("rate", "code"), [(100.0, 2), (50.0, 1)])
def test_a_damaged_record_is_named_and_the_answer_is_never_that_nothing_is_slower(tmp_path, capsys, rate, code):
    a, b = store(tmp_path / "a", cell()), store(tmp_path / "b", cell(rate), cell(threads=1))
    damaged = b / "records" / id_of(cell(threads=1)) / "record.json"
    damaged.write_text(json.dumps(cell(threads=1))[:-10], encoding="utf-8")

    assert main([str(a), str(b), "--out", str(tmp_path)]) == code
    assert f"warning: {damaged} is damaged: the text is not valid JSON" in capsys.readouterr().err
