import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from analysis.figures.fig4_threads import has_one_image_size
from analysis.figures.kit import storage_colours
from analysis.figures.kit.panels import add_title_legend_and_caption, panel_grid
from tests.analysis.record_factory import left, record, run
from tests.analysis.training_factory import figures_of, training, words


def heights(figure):
    """Return the heights of all bars, panel by panel."""
    panels = [axes for axes in figure.axes if axes.get_title()]
    return [[bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)] for axes in panels]


@pytest.fixture
def grid():
    rates = {"hdd": (50.0, 90.0), "lustre": (40.0, 80.0)}
    return [
        record([r, r + 1, r + 2], threads=n, storage=s) for s in rates for n, r in zip((1, 8), rates[s], strict=True)
    ]


def test_figure_4_preprocesses_and_figure_5_only_reads():
    made = figures_of(record([1.0]), record([2.0], benchmark__preprocess=False))

    assert {stem: spec.frame["images_per_s"].tolist() for stem, spec in made.items()} == {"fig4": [1.0], "fig5": [2.0]}


def test_other_settings_make_other_figures_named_by_what_differs():
    made = figures_of(record([1.0]), record([2.0], batch_size=32), record([3.0], threads=8))

    assert {stem: spec.frame["threads"].tolist() for stem, spec in made.items()} == {
        "fig4-batch_size-32": [4],
        "fig4-batch_size-64": [4, 8],
    }


def test_panels_stand_in_the_order_of_the_paper_then_by_name():
    names = ("zfs", "lustre", "ceph", "ssd", "hdd", "optane")
    figure = figures_of(*(record([1.0], storage=each) for each in names))["fig4"].drawn()

    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["hdd", "ssd", "optane", "lustre", "ceph", "zfs"]


def test_the_paper_is_overlaid_on_hdd_and_lustre_only_and_from_our_one_thread_median(grid):
    more = [record([rate], threads=n, storage="local") for n, rate in ((1, 10.0), (8, 20.0))]

    spec = figures_of(*grid, *more)["fig4"]

    marks = spec.frame.set_index(["storage", "threads"])["paper_images_per_s"].dropna()
    assert marks.to_dict() == {("hdd", 8): pytest.approx(2.3 * 51), ("lustre", 8): pytest.approx(7.8 * 41)}
    assert any("Chien et al. 2018, Sec. VII" in text for text in words(spec.drawn()))


def test_of_many_sets_and_of_many_values_as_many_are_drawn_as_can_be_read_and_the_caption_says_so():
    of_seeds = [record([10.0] * 3, threads=n, seed=seed) for seed in range(14) for n in (1, 2)[: 1 + seed // 13]]
    sets = list(figures_of(*of_seeds).values())
    threads = figures_of(*(record([10.0] * 3, threads=n) for n in range(1, 201)))["fig4"]

    assert (len(sets), sets[0].stem) == (12, "fig4-seed-13")  # most of which is done
    assert "12 of 14 sets of settings, a figure each; the medians of all are in tables/medians.csv." in sets[0].caption
    shown = threads.frame["threads"].tolist()
    assert (len(shown), shown[:3], shown[-1]) == (32, [1, 7, 13], 200)
    assert "Drawn are 32 of 200 values of threads; the medians of all" in threads.caption


def test_the_right_axis_is_the_left_one_in_mb_per_s():
    left, right = figures_of(record([100.0, 110.0, 120.0]))["fig4"].drawn().axes

    assert right.get_ylabel() == "MB/s"
    assert right.get_ylim()[1] == pytest.approx(left.get_ylim()[1] * 0.112)
    assert not right.lines


@pytest.mark.parametrize(("slow", "tops"), [(20.0, [116.0] * 2), (19.0, [19.0 * 1.16, 116.0])])
def test_where_one_scale_would_flatten_a_storage_each_panel_has_its_own(slow, tops):
    spec = figures_of(record([slow] * 3, storage="hdd"), record([100.0] * 3, storage="zfs"))["fig4"]
    left, right = ([axes for axes in spec.drawn().axes if bool(axes.get_title()) is named] for named in (True, False))

    assert [axes.get_ylim()[1] for axes in left] == pytest.approx(tops)
    assert len(right) == len(set(tops)), "each scale is told in MB/s, too"
    assert ("own scale" in spec.caption) == (len(set(tops)) > 1)


@pytest.mark.parametrize(
    ("sizes", "same"),
    [((100.0, 101.008, 101.008), True), ((100.0, 101.02, 101.02), False), ((100.0, 100.0, 101.003), False)],
)
def test_images_within_a_hundredth_of_their_median_size_share_one_scale(sizes, same):
    made = [record([run(1, 100.0, size=round(1000 * size))], threads=n) for n, size in enumerate(sizes, 1)]
    spec = figures_of(*made)["fig4"]
    left, right = spec.drawn().axes

    assert has_one_image_size(spec.frame) is same
    assert right.get_ylim()[1] / left.get_ylim()[1] == pytest.approx((sorted(sizes)[1] if same else max(sizes)) / 1000)


def test_where_images_differ_in_size_each_bar_has_its_own_mb_per_s():
    small, large = ([run(1, 100.0, size=size)] for size in (100_000, 102_000))
    spec = figures_of(record(small, threads=1), record(large, threads=2))["fig4"]

    left, right = spec.drawn().axes

    assert not has_one_image_size(spec.frame)
    assert right.get_ylabel() == "MB/s (diamonds)"
    assert right.lines[0].get_ydata() == pytest.approx([10.0, 10.2])
    assert right.get_ylim()[1] > 10.2
    assert heights(left.figure) == [[100.0, 100.0]]


def test_a_published_mark_far_above_all_bars_is_told_in_figures_and_leaves_them_their_height():
    lustre = (record([rate] * 5, storage="lustre", threads=n) for n, rate in ((1, 100.0), (8, 150.0)))
    figure = figures_of(*lustre)["fig4"].drawn()

    axes = figure.axes[0]
    assert axes.get_ylim()[1] < 200
    assert "\N{UPWARDS ARROW}\n780" in words(figure)


def test_the_number_of_runs_stands_in_the_caption_or_beside_each_bar():
    same, unlike = [figures_of(record([1.0] * 5, threads=1), record([1.0] * n, threads=2))["fig4"] for n in (5, 3)]

    assert "n = 5" in same.caption
    assert "93.75 %" in same.caption
    assert not any("n=" in text for text in words(same.drawn()))
    assert {"1.00\nn=5", "1.00\nn=3"} <= set(words(unlike.drawn()))
    assert (
        "(n = 3\N{EN DASH}5, see bars); whiskers min\N{EN DASH}max hold the true median with p ≥ 75 %" in unlike.caption
    )
    assert (
        "8 runs of 2 cells"
        in figures_of(*(training([9.0] * n, prefetch=p) for n, p in ((5, 0), (3, 1))))["fig6"].caption
    )


@pytest.mark.parametrize(("count", "across", "down"), [(1, 1, 1), (4, 4, 1), (5, 4, 2), (9, 4, 3)])
def test_panels_stand_row_by_row_in_a_figure_of_their_size(count, across, down):
    figure, grid = panel_grid(count, 4, (2.0, 1.5), 3.0)

    assert (len(grid), len(figure.axes)) == (count, count)
    assert figure.get_size_inches().tolist() == [max(3.0, 0.9 + 2.0 * across), 1.25 + 1.5 * down]
    rows = [axes.get_subplotspec().rowspan.start for axes in grid]
    assert rows == [place // 4 for place in range(count)]


@pytest.mark.parametrize("word", ["mmmmmm", "(random_read),", "Median of valid runs; whiskers min-max hold it."])
def test_no_line_of_a_caption_is_wider_than_the_figure_nor_much_narrower(word):
    figure = Figure(figsize=(5.0, 2.0), dpi=300)
    add_title_legend_and_caption(figure, "Title", " ".join([word] * 100), [])
    figure.canvas.draw()

    (box,) = (each.get_window_extent() for each in figure.texts if "Title" not in each.get_text())

    assert 1250 < box.x1 <= 1500


@pytest.mark.parametrize("wide", [3.6, 6.0, 9.0])
@pytest.mark.parametrize("labels", [["short"] * 6, ["of words that are long", "x"] * 3, ["m" * 30] * 4])
def test_a_legend_is_no_wider_than_the_figure_and_has_no_room_for_a_column_more(labels, wide):
    with storage_colours.style_sheet():
        figure = Figure(figsize=(wide, 2.0), dpi=100)
        signs = [Patch(label=each) for each in labels]
        add_title_legend_and_caption(figure, "", "", signs)
        (legend,) = figure.legends
        more = figure.legend(handles=signs, loc="upper left", borderpad=0.0, ncols=legend._ncols + 1)  # noqa: SLF001
        figure.canvas.draw()

    widths = [each.get_window_extent().width / figure.dpi for each in (legend, more)]
    assert widths[0] <= wide
    assert legend._ncols == len(labels) or widths[1] > 0.97 * wide  # noqa: SLF001


def test_nothing_done_draws_nothing():
    assert figures_of(left(record([1.0]), "failed")) == {}
