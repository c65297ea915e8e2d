"""Figures 6 to 8, whose sets of cells `analysis.statistics.selection` and runs `analysis.traces.system` choose."""

import pytest
from matplotlib.patches import StepPatch

from analysis.traces import system
from tests.analysis.record_factory import id_of
from tests.analysis.training_factory import figures_of, step, trace_of, trace_text, training, with_traces, words


def pair(**settings):
    return [training([100.0] * 3, **settings), training([140.0] * 3, prefetch=0, **settings)]


def test_an_excess_over_another_hosts_runtime_is_none_and_the_caption_says_why():
    spec = figures_of(training([100.0] * 3), training([140.0] * 3, prefetch=0, host="node2"))["fig6"]

    assert spec.left_out["status"].tolist() == ["without partner"]
    assert "Not comparable" not in spec.caption  # of what is drawn, which is of one host
    both = figures_of(*pair(threads=1), *pair(threads=2, host="node2"))["fig6"]
    assert "Hosts node1, node2; TensorFlow 2.21.0." in both.caption
    assert "Not comparable (mixed: hosts node1, node2)." in both.caption


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
