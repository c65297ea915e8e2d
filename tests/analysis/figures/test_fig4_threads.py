import pytest
from matplotlib.patches import Rectangle

from tests.analysis.record_factory import left, record
from tests.analysis.training_factory import figures_of, words


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


def test_nothing_done_draws_nothing():
    assert figures_of(left(record([1.0]), "failed")) == {}
