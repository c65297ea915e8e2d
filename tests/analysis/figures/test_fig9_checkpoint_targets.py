"""Figures 9 and 10 and ours of checkpoints, and the paper's gain, against the records that they are made from."""

import math

import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle, StepPatch

from analysis.figures.fig9_checkpoint_targets import GRAY
from analysis.output.columns import CHECKPOINT
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import figures_of, trace_of, with_traces, words

BUFFER = "optane to hdd"
SOURCES = {"fast": "dsk/nvme0n1", "slow": "dsk/sda"}


def bars(axes):
    """Return the heights of the bars, from left to right."""
    return [(round(bar.get_x(), 2), bar.get_height()) for bar in axes.patches if isinstance(bar, Rectangle)]


def test_where_a_run_without_checkpoints_took_longer_the_whole_bar_is_gray_and_a_dash_says_how_long():
    figure = figures_of(saved("none", [100.0] * 3), saved("hdd", [97.0] * 3))["fig9"].drawn()
    above = figure.axes[0]

    assert [height for _, height in bars(above)] == [97.0]
    assert [bar.get_facecolor() for bar in above.patches] == [to_rgba(GRAY)]
    dashes = [path.vertices[0, 1] for each in above.collections for path in each.get_paths() if len(path.vertices) == 2]
    assert 100.0 in dashes
    assert "without checkpoints, where longer" in words(figure)


def test_modes_and_intervals_are_never_in_one_figure_9_and_modes_are_in_one_of_ours():
    made = [saved("hdd", [100.0] * 3, mode=mode) for mode in ("sync", "async")]
    other = saved("hdd", [100.0] * 3, every=10)

    assert {"fig9-mode-sync", "fig9-mode-async", "checkpoints"} <= figures_of(*made).keys()
    assert [stem for stem in figures_of(made[0], other) if stem.startswith("checkpoints")] == [
        "checkpoints-every-10",
        "checkpoints-every-20",
    ]


def written(sources, rates, tail):
    """Return a trace in which each source writes these bytes in each second, the last `tail` of them in the tail."""
    return trace_of({name: [(0, rate) for rate in of] for name, of in zip(sources, rates, strict=True)}, tail)


@pytest.fixture
def both(tmp_path):
    """A training straight to hdd, and one whose burst buffer goes on for two seconds after its end."""
    direct = written(["dsk/sdb", "dsk/sda"], [[0, 0, 0, 0], [9e7, 0, 8e7, 0]], tail=0)
    buffered = written(["dsk/nvme0n1", "dsk/sda"], [[4e8, 0, 0, 0], [0, 1e8, 5e7, 2e7]], tail=2)
    return [
        with_traces(saved("hdd", [4.0], sources={"only": "dsk/sda"}), tmp_path, direct),
        with_traces(saved(BUFFER, [2.0], sources=SOURCES), tmp_path, buffered),
    ]


def test_figure_10_shows_what_was_written_to_each_storage_and_the_end_of_the_application(both, tmp_path):
    figure = figures_of(*both, folder=tmp_path)["fig10"].drawn()

    assert [axes.get_title() for axes in figure.axes] == ["hdd", "burst buffer, optane to hdd"]
    drawn = [
        [
            patch.get_data().values.tolist()
            for patch in axes.patches
            if isinstance(patch, StepPatch) and patch.get_fill()
        ]
        for axes in figure.axes
    ]
    assert drawn == [[[90, 0, 80, 0]], [[400, 0, 0, 0], [400, 100, 50, 20]]]
    ends = [[line.get_xdata()[0] for line in axes.lines] for axes in figure.axes]
    assert ends == [[4.0], [2.0]]
    assert "end of the application" in words(figure)


def test_what_two_storages_wrote_in_one_second_stands_upon_each_other_and_fits(both, tmp_path):
    text = written(["dsk/nvme0n1", "dsk/sda"], [[4e8, 1e8], [4e8, 1e8]], tail=1)
    made = with_traces(saved(BUFFER, [1.0], sources=SOURCES, streams=2), tmp_path, text)

    spec = figures_of(both[0], made, folder=tmp_path)["fig10"]
    *_, axes = spec.drawn().axes
    fast, slow = (patch for patch in axes.patches if isinstance(patch, StepPatch) and patch.get_fill())

    assert (list(fast.get_data().values), list(slow.get_data().baseline)) == ([400, 100], [400, 100])
    assert list(slow.get_data().values) == [800, 200]
    assert axes.get_ylim()[1] > 800
    assert "storages stacked" in spec.caption


@pytest.mark.parametrize(
    ("device", "below", "named"),
    [("sda", [], ["ssd on dsk/sda"]), ("sdc", ["dsk/sda"], ["ssd on dsk/sda"]), ("sdc", [], [])],
)
def test_a_target_on_the_datas_own_device_is_named_in_the_caption_and_in_the_table(device, below, named):
    made = saved("ssd", [150.0], sources={"only": f"dsk/{device}"}, below={"only": below}, device="sda")
    other = saved("hdd", [150.0], sources={"only": "dsk/sdb"}, device="sda")

    spec = figures_of(made, other)["fig9"]

    shared = [line for line in spec.caption.split(". ") if "share the device" in line]
    assert shared == [f"Data and snapshots of {each} share the device" for each in named]
    row = {"target": "ssd", "mode": "sync", "device": "dsk/sda", "target_device": f"dsk/{device}"}
    row["target_below"] = " ".join(below) or math.nan
    assert CHECKPOINT.text(row) == ", ".join(["ssd", "sync", *["on the data's device"] * len(named)])


@pytest.mark.parametrize(
    ("how", "bursts"),
    [
        ({"streams": 2}, False),
        ({"bandwidth_mb_per_s": 50.0}, True),
    ],
)
def test_the_caption_of_figure_10_says_whose_bytes_and_why_a_capped_drain_comes_in_bursts(both, tmp_path, how, bursts):
    text = written(["dsk/nvme0n1", "dsk/sda"], [[4e8, 0], [0, 1e8]], tail=1)
    made = with_traces(saved(BUFFER, [1.0], sources=SOURCES, **how), tmp_path, text)

    caption = figures_of(both[0], made, folder=tmp_path)["fig10"].caption

    assert "of all that anybody wrote there" in caption
    assert ("in bursts" in caption) == bursts


def test_one_device_that_is_both_sides_is_drawn_once(tmp_path):
    text = written(["dsk/vda"], [[1e8, 2e8]], tail=1)
    made = with_traces(saved(BUFFER, [1.0], sources={"fast": "dsk/vda", "slow": "dsk/vda"}), tmp_path, text)

    frame = figures_of(made, folder=tmp_path)["fig10"].frame

    assert set(frame["storage"]) == {"optane and hdd"}
    assert frame["written_mb_per_s"].dropna().tolist() == [100, 200]


IMAGE = {"fast": "dsk/vda", "slow": "dsk/loop0"}


@pytest.mark.parametrize(
    ("disk", "image", "own"),
    [
        ([4e8, 1e8, 1e8], [0, 1e8, 1e8], [400, 0, 0]),
        ([4e8, 3e8, 1e8], [1e8, 1e8, 1e8], [300, 200, 0]),
        ([4e8, 0, 2e8], [0, 2e8, 0], [400, 0, 0]),  # its page cache keeps what is written to it for a second
        ([0, 4e8, 2e8], [2e8, 0, 0], [0, 200, 200]),
        ([1e8, 2e8, 1e8], [0, 2e8, 1e8], [100, 0, 0]),
    ],
)
def test_what_an_image_on_the_other_sides_device_took_stands_in_figure_10_once(tmp_path, disk, image, own):
    text = written(["dsk/vda", "dsk/loop0"], [disk, image], tail=1)
    made = with_traces(saved(BUFFER, [2.0], sources=IMAGE, below={"slow": ["dsk/vda"]}), tmp_path, text)

    spec = figures_of(made, folder=tmp_path)["fig10"]

    drawn = {role: rows["written_mb_per_s"].dropna().tolist() for role, rows in spec.frame.groupby("role")}
    assert drawn == {"fast": own, "slow": [each / 1e6 for each in image]}
    assert sum(map(sum, drawn.values())) == sum(disk) / 1e6
    assert "counters dsk/vda without dsk/loop0, dsk/loop0" in spec.caption


@pytest.mark.parametrize(
    ("sources", "status"), [({}, "no counter of the target"), ({"only": "dsk/gone"}, "trace unreadable")]
)
def test_a_target_that_was_not_counted_says_so(both, tmp_path, sources, status):
    text = written(["dsk/sda"], [[1e8, 2e8]], tail=0)
    made = with_traces(saved("ssd", [1.0], sources=sources), tmp_path, text)

    figure = figures_of(*both, made, folder=tmp_path)["fig10"].drawn()

    assert status in words(figure)


def test_a_training_whose_snapshots_are_not_recorded_has_its_runtime_in_figure_9_and_no_checkpoint():
    made = saved("hdd", [100.0] * 3)
    for run in made["runs"]:
        run.pop("checkpoints", None)

    above, below = figures_of(made)["fig9"].drawn().axes

    assert (len(bars(above)), bars(below)) == (1, [])
    assert "without figures" in words(below.figure)
