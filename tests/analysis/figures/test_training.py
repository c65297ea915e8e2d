"""Figures 6 to 8, whose sets of cells `analysis.statistics.selection` and runs `analysis.traces.system` choose."""

import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.patches import Rectangle, StepPatch

from analysis.traces import system
from tests.analysis.record_factory import id_of, left, record
from tests.analysis.training_factory import figures_of, step, trace_of, trace_text, training, with_traces, words


def boxes(figure):
    """Return foot and height of all bars, panel by panel."""
    return [
        [(bar.get_y(), bar.get_height()) for bar in axes.patches if isinstance(bar, Rectangle)] for axes in figure.axes
    ]


def pair(**settings):
    return [training([100.0] * 3, **settings), training([140.0] * 3, prefetch=0, **settings)]


def batches(**settings):
    return [training([100.0 / b] * 3, batch_size=b, prefetch=p, **settings) for b in (16, 128) for p in (0, 1)]


def test_figure_6_stands_the_excess_without_prefetch_on_the_runtime_with_it():
    made = [training([100.0, 102.0, 110.0], threads=2), training([130.0, 142.0, 150.0], threads=2, prefetch=0)]

    spec = figures_of(*made)["fig6"]
    figure = spec.drawn()

    assert boxes(figure) == [[(0, 102.0), (102.0, 40.0)]]
    bars = [each for each in figure.axes[0].containers if isinstance(each, ErrorbarContainer)]
    whiskers = [each.lines[2][0].get_segments()[0][:, 1].tolist() for each in bars]
    assert whiskers == [[100.0, 110.0], [130.0, 150.0]]
    assert spec.frame["excess_s"].tolist()[1] == 40.0


@pytest.mark.parametrize(
    ("runtime", "without", "told"),
    [
        # As many decimals as the runtime, and at least one.
        (2.6, training([3.021], prefetch=0), "+0.42\n2.60"),
        (3.0962, training([3.0], prefetch=0), "\N{MINUS SIGN}0.10\n3.10"),
        (150.25, training([180.5], prefetch=0), "+30.2\n150"),
        (1000, training([3000], prefetch=0), "+2000\n1000"),
        (100.0, training([97.0], prefetch=0), "\N{MINUS SIGN}3.0\n100"),
        (100.0, left(training([140.0], prefetch=0), "failed"), "+ failed\n100"),
    ],
)
def test_an_excess_stands_upon_its_runtime_and_over_it_in_figures_or_why_there_is_none(runtime, without, told):
    spec = figures_of(training([runtime]), without)["fig6"]
    figure = spec.drawn()

    excess = without["runs"][1]["wall_s"] - runtime
    is_done = "failed" not in told
    white = excess > 0 and is_done
    assert boxes(figure) == [[(0, runtime), *([(runtime, pytest.approx(excess))] if white else [])]]
    assert told in words(figure)
    assert spec.left_out["status"].tolist() == [] if is_done else ["failed"]


def test_where_the_numbers_of_runs_differ_runtime_and_excess_have_their_own():
    figure = figures_of(training([100.0] * 5), training([140.0] * 3, prefetch=0))["fig6"].drawn()

    assert "+40.0\nn=3\n100\nn=5" in words(figure)


def test_an_excess_over_another_hosts_runtime_is_none_and_the_caption_says_why():
    spec = figures_of(training([100.0] * 3), training([140.0] * 3, prefetch=0, host="node2"))["fig6"]

    assert spec.left_out["status"].tolist() == ["without partner"]
    assert "Not comparable" not in spec.caption  # of what is drawn, which is of one host
    both = figures_of(*pair(threads=1), *pair(threads=2, host="node2"))["fig6"]
    assert "Hosts node1, node2; TensorFlow 2.21.0." in both.caption
    assert "Not comparable (mixed: hosts node1, node2)." in both.caption


@pytest.mark.parametrize(
    ("made", "stem", "told"),
    [
        ([*pair(threads=1), *pair(threads=2)], "fig6",
         ["n = 3", "12 runs of 4 cells", "demo (512 files)", "batch 64", "iterations 142", "prefetch 0 and 1",
          "accelerator cpu", "Host node1", "TensorFlow 2.21.0"]),
        ([record([1.0], host="blackdog")], "fig4",
         ["demo (512 files)", "batch 64", "prefetch 0", "cold cache", "Host blackdog", "TensorFlow 2.21.0"]),
    ],
)  # fmt: skip
def test_the_caption_tells_what_the_runs_were(made, stem, told):
    caption = figures_of(*made)[stem].caption

    assert [fact for fact in told if fact not in caption] == []


def test_figure_7_shows_rates_over_batch_sizes_told_apart_by_fill_and_marker():
    spec = figures_of(*batches(threads=8))["fig7"]

    figure = spec.drawn()
    none, ahead = (line for line in figure.axes[0].lines if line.get_linestyle() != "None")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["16", "128"]
    assert ahead.get_ydata().tolist() == pytest.approx([9088 * 16 / 100, 9088 * 128 / 100])
    assert (none.get_markerfacecolor(), none.get_linestyle()) == ("white", "--")
    assert (ahead.get_markerfacecolor() != "white", ahead.get_linestyle()) == (True, "-")
    assert "threads 8, prefetch 0 and 1" in spec.caption


def test_batch_sizes_of_one_dataset_keep_no_other_dataset_from_its_figure_6():
    of_threads = [training([200.0], threads=n, prefetch=ahead) for n in (1, 2) for ahead in (0, 1)]
    of_batches = [training([90.0], batch_size=n, prefetch=ahead) for n in (16, 32) for ahead in (0, 1)]
    other = [training([50.0], prefetch=ahead, seed=9) for ahead in (0, 1)]

    assert [name for name in figures_of(*of_threads, *of_batches, *other) if "fig6" in name] == [
        "fig6-seed-0",
        "fig6-seed-9",
    ]


def test_figure_8_draws_the_trace_of_the_median_run_gray_with_prefetch_and_white_without(tmp_path):
    runs = [step(1, 120.0), step(2, 100.0), step(3, 110.0), step(4, 130.0), step(5, 90.0, fails=["cold"])]
    made = [with_traces(training(runs, prefetch=ahead), tmp_path) for ahead in (1, 0)]

    spec = figures_of(*made, folder=tmp_path)["fig8"]

    # Valid runs took 100, 110, 120 and 130 s: the lower median is run 3, whose trace has 3 B/s more.
    assert set(spec.frame["file"]) == {"trace-3.csv"}
    rates = spec.frame[spec.frame["prefetch"] == 1]["read_mb_per_s"].tolist()
    assert rates[1:] == pytest.approx([5.000003, 7.000003, 2.000003])
    gray, white, line = sorted(spec.drawn().axes[0].findobj(StepPatch), key=lambda each: -each.get_fill())[:3]
    shades = {each.get_facecolor()[:3] for each in (gray, white)}
    assert (1.0, 1.0, 1.0) in shades
    assert len(shades) == 2
    assert line.get_data().edges.tolist() == [0, 1, 2, 3]
    assert gray.get_data().values.tolist() == pytest.approx(rates[1:])


def test_the_end_of_the_iteration_is_dotted_where_there_is_a_tail(tmp_path):
    plain = [with_traces(each, tmp_path / "a") for each in pair()]
    longer = [with_traces(each, tmp_path / "b", tail=(1e6, 0.0)) for each in pair()]

    figures = [
        figures_of(*made, folder=tmp_path / name)["fig8"].drawn() for name, made in (("a", plain), ("b", longer))
    ]

    assert figures[0].axes[0].lines[:] == []
    assert [line.get_xdata() for line in figures[1].axes[0].lines] == [[3.0, 3.0]] * 2
    assert "end of the iteration" in words(figures[1])


@pytest.mark.parametrize(
    ("spoil", "told", "both"),
    [
        (lambda path: path.unlink(), "trace missing", False),
        (lambda path: path.write_text("a,b\n1,2\n", encoding="utf-8"), "trace unreadable", False),
        (lambda path: path.write_text("a,b\n1,2\n", encoding="utf-8"), "trace unreadable", True),
        (lambda path: path.write_text("", encoding="utf-8"), "trace unreadable", False),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "trace unreadable", False),
        (lambda path: path.write_text(trace_text(rates=()), encoding="utf-8"), "trace without reads", False),
    ],
)
def test_a_trace_that_cannot_be_read_is_told_and_the_other_one_is_drawn(tmp_path, spoil, told, both):
    made = [with_traces(each, tmp_path) for each in pair()]
    spoilt = made if both else made[1:]
    for each in spoilt:
        spoil(tmp_path / "records" / id_of(each) / "trace-2.csv")

    spec = figures_of(*made, folder=tmp_path)["fig8"]

    assert "; ".join(f"prefetch {place}: {told}" for place in range(len(spoilt))) in words(spec.drawn())
    assert spec.left_out["status"].tolist() == [told] * len(spoilt)
    assert spec.caption.startswith("No trace could be read.") == both


def test_a_record_cannot_point_outside_its_folder(tmp_path):
    made = [with_traces(each, tmp_path) for each in pair()]
    (tmp_path / "secret.csv").write_text(trace_text(), encoding="utf-8")
    for each in made[1]["runs"]:
        each["trace"]["file"] = "../../secret.csv"

    spec = figures_of(*made, folder=tmp_path)["fig8"]

    assert spec.left_out["status"].tolist() == ["trace missing"]


@pytest.mark.parametrize(("sizes", "drawn"), [((16, 64, 128), 64), ((128, 16, 32), 16)])
def test_figure_8_shows_the_papers_batch_or_else_the_longest_runs_and_most_threads(tmp_path, sizes, drawn):
    made = [
        with_traces(training([960.0 / size], threads=threads, batch_size=size, prefetch=ahead), tmp_path)
        for threads in (2, 8, 4)
        for size in sizes
        for ahead in (0, 1)
    ]

    spec = figures_of(*made, folder=tmp_path)["fig8"]

    assert f"threads 8, batch {drawn}" in spec.caption


@pytest.mark.parametrize("group", ["llite/scratch", "nfs/home"])
def test_a_network_file_system_takes_the_place_of_the_device(tmp_path, group):
    path = tmp_path / "trace.csv"
    path.write_text(trace_text(device=group), encoding="utf-8")

    trace = system.read_trace(path)

    assert trace.source == group
    assert trace.samples["read_mb_per_s"].tolist()[1:] == [5.0, 7.0, 2.0]
    assert trace.samples["phase"].tolist() == ["iteration"] * 4


def test_of_several_devices_the_first_is_the_one_behind_the_dataset(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(trace_of({"dsk/sdb": [(4e6, 0)], "dsk/sda": [(9e6, 0)], "process": [(1e6, 0)]}), encoding="utf-8")

    assert system.read_trace(path).source == "dsk/sdb"
    assert system.read_trace(path).samples["read_mb_per_s"].tolist()[1] == 4.0
