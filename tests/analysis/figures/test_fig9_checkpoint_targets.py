"""Figures 9 and 10 and ours of checkpoints, and the paper's gain, against the records that they are made from."""

import pytest
from matplotlib.patches import Rectangle

from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import figures_of, trace_of, with_traces, words

BUFFER = "optane to hdd"
SOURCES = {"fast": "dsk/nvme0n1", "slow": "dsk/sda"}


def bars(axes):
    """Return the heights of the bars, from left to right."""
    return [(round(bar.get_x(), 2), bar.get_height()) for bar in axes.patches if isinstance(bar, Rectangle)]


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
