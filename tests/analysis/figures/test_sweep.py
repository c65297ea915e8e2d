"""A benchmark that nobody knows: its record says what it is there for, and it is tabled and drawn."""

import pytest

from analysis.__main__ import main
from tests.analysis.record_factory import id_of, record, run, store
from tests.analysis.training_factory import drawn


def toy(rates, *, size, merit=("pipeline", "files_per_s", "files/s", "higher"), **settings):
    """Return a record of a benchmark `toy` with a figure of its own and a setting `benchmark.size`."""
    runs = [run(n, 100.0, files_per_s=rate) for n, rate in enumerate(rates, start=1)]
    made = record(runs, benchmark__size=size, benchmark__name="toy", **settings)
    made["cell"] |= {"benchmark": "toy", "id": id_of(made).replace("micro", "toy")}
    made["cell"] |= dict(zip(("kind", "figure", "unit", "better"), merit, strict=True))
    return made


def swept(storage="hdd", **settings):
    return [toy([9.0 * size, 10.0 * size, 12.0 * size], size=size, storage=storage, **settings) for size in (1, 2, 4)]


def test_the_figure_of_merit_is_drawn_over_what_was_swept_a_line_per_storage():
    (spec,) = drawn("sweep-", *swept("hdd"), *swept("ssd"))

    axes = spec.drawn().axes[0]
    assert spec.stem == "sweep-toy"
    assert spec.frame["value"].tolist() == [1, 2, 4] * 2
    assert spec.frame["storage"].tolist() == ["hdd"] * 3 + ["ssd"] * 3
    assert spec.frame[["median", "min", "max"]].iloc[1].tolist() == [20.0, 18.0, 24.0]
    assert axes.get_xlabel() == "benchmark.size"
    assert "files_per_s (files/s)" in axes.get_ylabel()
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4"]


def test_points_of_several_hosts_are_not_joined_and_the_caption_says_why():
    (spec,) = drawn("sweep-", *swept("hdd")[:2], *swept("hdd", host="node2")[2:])

    styles = {line.get_linestyle() for line in spec.drawn().axes[0].lines if len(line.get_xdata()) == 3}
    assert "-" not in styles
    assert "Not comparable (mixed: hosts node1, node2)." in spec.caption


def test_the_caption_says_that_cells_were_judged_by_looser_checks():
    cells = swept()
    (strict,) = drawn("sweep-", *cells)
    cells[1]["looser_checks"] = ["other_cpu_max=2"]

    (spec,) = drawn("sweep-", *cells)

    told = " Some cells are judged by looser checks than the site's: other_cpu_max=2."
    assert spec.caption == strict.caption + told


def test_words_are_categories_and_each_swept_setting_has_a_panel_the_others_held():
    records = [
        toy([float(size)] * 3, size=size, benchmark__layout=layout)
        for size in (1, 2, 4)
        for layout in ("flat", "nested")
        if (size, layout) != (4, "nested")
    ]

    (spec,) = drawn("sweep-", *records)

    panels = {axes.get_xlabel(): axes for axes in spec.drawn().axes}
    assert set(panels) == {"benchmark.size", "benchmark.layout"}
    assert panels["benchmark.size"].get_title() == "at benchmark.layout=flat"
    assert [text.get_text() for text in panels["benchmark.layout"].get_xticklabels()] == ["flat", "nested"]
    assert "4 of 5 cells" in spec.caption


def test_versions_never_mix():
    newer = swept()
    for each in newer:
        each["cell"] |= {"benchmark_version": 2, "id": f"{id_of(each)}-2"}

    specs = drawn("sweep-", *swept(), *newer)

    assert [spec.stem for spec in specs] == ["sweep-toy_version_1", "sweep-toy_version_2"]


def test_storages_stand_side_by_side_where_nothing_else_was_swept():
    (spec,) = drawn("sweep-", *(toy([5.0] * 3, size=1, storage=name) for name in ("ssd", "hdd")))

    assert spec.frame["swept"].unique().tolist() == ["storage"]
    assert [text.get_text() for text in spec.drawn().axes[0].get_xticklabels()] == ["hdd", "ssd"]


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("kind", ["storage", "training"])
def test_tables_and_terminal_show_it_whatever_its_kind(tmp_path, capsys, kind):
    records = [toy([3.0, 2.0, 4.0], size=size, merit=(kind, "files_per_s", "files/s", "lower")) for size in (1, 2)]

    code = main([str(store(tmp_path, *records))])

    out, text = capsys.readouterr().out, (tmp_path / "tables" / "medians.md").read_text()
    line = next(line for line in text.splitlines() if "benchmark.size" in line and line.startswith("|"))
    assert code == 0
    assert line.startswith("| storage | benchmark.size | files/s | min\N{EN DASH}max |")
    assert "| local | 2 | 3.00 | 2.00\N{EN DASH}4.00 |" in text
    assert "files/s" in out
    assert (tmp_path / "figures" / "sweep-toy.pdf").exists()
