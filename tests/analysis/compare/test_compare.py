import json
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.ticker import FixedLocator, LogLocator

from analysis.cli.compare import main
from analysis.compare.comparison_chart import chart_specs
from analysis.compare.comparison_report import ComparedCampaign, comparison
from tests.analysis.record_factory import record, store
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import frames

STEADY = (99.9, 100.0, 100.1)
pytestmark = pytest.mark.usefixtures("unrendered")


def cell(rate=100.0, limit=0.04, **settings):
    """Return a cell whose runs scatter by 0.1 %, at a site that tolerates 4 %."""
    return record([each * rate / 100 for each in STEADY], limit=limit, **settings)


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
