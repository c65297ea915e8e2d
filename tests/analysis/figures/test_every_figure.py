# ruff: noqa: RUF001 - a sign of times is what is shown
"""What every figure keeps: it draws what stands in its CSV where its axis says, and what is missing says why."""

import re
from copy import deepcopy
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from analysis.text import DAGGER
from jobs.judging.intervals import interval_of_median
from tests.analysis.baseline_records import baseline
from tests.analysis.claims.test_tfdarshan2020 import malware, saving
from tests.analysis.figures.test_hdf5_readers import read_by
from tests.analysis.figures.test_object_sizes import of_size
from tests.analysis.figures.test_swept_settings import toy
from tests.analysis.nersc_factory import hepcnn
from tests.analysis.record_factory import id_of, left, record, scattered, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import figures_of, training, words

NOWHERE = Path("/nowhere")  # no figure here reads a file beside its records
# Of each figure its records, which of its columns stands over which one's words, and what its legend explains.
FIGURES = {
    "fig4": (
        [record(scattered(rate), threads=n, storage=name)
         for name, n, rate in (("hdd", 1, 57.0), ("hdd", 8, 90.0), ("lustre", 1, 43.0), ("lustre", 8, 80.0))],
        {"images_per_s": "threads"}, ["Chien et al. 2018, Sec. VII: its ratio × our 1-thread median"],
    ),
    "fig6": (
        [training(scattered(wall * share), threads=n, prefetch=ahead, storage=name)
         for name, share in (("hdd", 1.0), ("lustre", 1.3))
         for n, ahead, wall in ((1, 1, 100.0), (1, 0, 150.0), (4, 1, 103.0), (4, 0, 97.0))],
        {"runtime_s": "threads"}, ["prefetch 1", "+ excess without prefetch", "without prefetch, where not longer"],
    ),
    "fig7": (
        [training(scattered(wall), threads=8, batch_size=size, prefetch=ahead)
         for size, ahead, wall in ((16, 1, 100.0), (16, 0, 130.0), (128, 1, 60.0), (128, 0, 71.0))],
        {"images_per_s": "batch_size"}, ["prefetch 1", "prefetch 0"],
    ),
    "fig9": (
        [saved("hdd", scattered(140.0), (5.3,) * 3), saved("ssd", scattered(131.0), (3.1,) * 3),
         saved("none", scattered(125.0)), saved("optane to hdd", scattered(120.0), (0.3, 1.4, 6.5))],
        {"runtime_s": "target", "checkpoint_s": "target"},
        ["without checkpoints", "without checkpoints, where longer"],
    ),
    "checkpoints": (
        [saved("hdd", scattered(140.0), (5.3, 5.4, 5.5)), saved("optane to hdd", scattered(120.0), (0.3, 1.4, 6.5))],
        dict.fromkeys(("snapshot_blocked_s", "snapshot_durable_fast_s"), "target"),
        ["training stands still", "until durable (colour of the target)", "until drained to the slow storage"],
    ),
    "table1": (
        [baseline(scattered(rate), way, storage=name)
         for name, way, rate in (("hdd", "read", 150.0), ("hdd", "write", 131.0), ("optane", "read", 900.0))],
        {"mb_per_s": "storage"}, ["read", "write", "Chien et al. 2018, Table I"],
    ),
    "sweep-toy": (
        [toy(scattered(rate), size=size, storage=name)
         for name, size, rate in (("hdd", 1, 5.0), ("hdd", 4, 9.0), ("ssd", 1, 7.0), ("ssd", 4, 6.0))],
        {"median": "value"}, ["hdd", "ssd"],
    ),
    "readers": (
        [*read_by("offsets", (10, 21, 40)), *read_by("h5py_threads", (11, 12, 13))],
        {"read_mb_per_s": "threads"}, ["h5py_threads", "offsets"],
    ),
    "objects": (
        [of_size(size, rate, kind=kind)
         for size, kind, rate in ((12_000, None, 20.0), (12_000, "s3", 9), (99_000, None, 60.0), (99_000, "s3", 8.0))],
        {"read_mb_per_s": ""}, ["ceph", "disk"],
    ),
    "nersc-hepcnn-latency": (
        [hepcnn(4, "global", 24), hepcnn(4, "local", 8), hepcnn(1, "local", 8)],
        dict.fromkeys(("read_s", "unpack_s", "compute_s", "validate_s", "sync_s", "rest_s"), "place"),
        ["read", "waiting for input", "train", "validate", "meet the other ranks", "the rest"],
    ),
    "tfdarshan-bandwidth": (
        [malware(), malware(16, 80.0), malware(rate=120.0, staging="smallest")],
        {"posix_read_mb_per_s": "threads"}, ["published: tf-Darshan (Chien et al. 2020)"],
    ),
    "tfdarshan-fwrite": (
        [saving(stream_writes=220)], {"posix_stream_writes": "threads"}, ["published: tf-Darshan (Chien et al. 2020)"],
    ),
}  # fmt: skip


def with_nine_runs(made):
    """Return a record whose measured runs were repeated up to nine, so that their least and largest are no outliers."""
    made = deepcopy(made)
    measured = made["runs"][1:]
    for number in range(1 + len(measured), 10):
        made["runs"].append(measured[number % len(measured)] | {"run": number})
    return made


@cache
def as_they_are(stem):
    """Return the spec of a figure and the figure that it draws; no test changes them."""
    spec = figures_of(*FIGURES[stem][0], folder=NOWHERE)[stem]
    return spec, spec.drawn()


@cache
def of_nine_runs(stem):
    """Return the spec of a figure whose cells have nine runs each."""
    return figures_of(*map(with_nine_runs, FIGURES[stem][0]), folder=NOWHERE)[stem]


@cache
def with_a_poor_cell(stem):
    """Return spec and figure whose first cell is unstable and has a run less than the others."""
    first, *others = FIGURES[stem][0]
    poor = unstable(first)
    poor["runs"].pop()
    spec = figures_of(poor, *others, folder=NOWHERE)[stem]
    return spec, spec.drawn()


# Those with a place for what is missing: what stands beside another record, which is spoiled.
TOLD = ("fig4", "fig6", "fig9", "checkpoints", "table1")


def lying(axes):
    """Tell whether the bars of a panel lie."""
    return axes.get_xlabel().startswith("seconds")


def values(axes):
    """Yield place and value of each bar, upright or lying, and of each point of a line."""
    for bar in (each for each in axes.patches if isinstance(each, Rectangle)):
        lies = lying(axes)
        place = bar.get_y() + bar.get_height() / 2 if lies else bar.get_x() + bar.get_width() / 2
        yield place, bar.get_width() if lies else bar.get_height()
    for line in axes.lines:
        places, ends = (line.get_ydata(), line.get_xdata()) if lying(axes) else line.get_data()
        yield from zip(places, ends, strict=True)


def label_at(axes, place):
    """Return the words of the tick that is nearest to a place, of the panel or of the lowest below it."""
    for each in (axes, *axes.figure.axes[::-1]):
        axis = each.yaxis if lying(axes) else each.xaxis
        ticks = {tick: text.get_text() for tick, text in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False)}
        if any(ticks.values()):
            return " ".join(ticks[min(ticks, key=lambda tick: abs(tick - place))].split())
    return ""


@pytest.mark.parametrize("stem", FIGURES)
def test_each_number_of_the_csv_is_drawn_in_its_panel_over_its_words(stem):
    _, columns, signs = FIGURES[stem]

    spec, figure = as_they_are(stem)

    panels = [axes for axes in figure.axes if axes.patches or axes.lines]
    for column, key in columns.items():
        for row in spec.frame[spec.frame[column].notna()].to_dict("records"):
            titles = {axes.get_title().removeprefix("storage ") for axes in panels} & {row.get("storage")}
            mine = [axes for axes in panels if not titles or axes.get_title().removeprefix("storage ") in titles]
            at = [
                (axes, place) for axes in mine for place, value in values(axes) if value == pytest.approx(row[column])
            ]
            added = row.get("prefetch") == 0 or row.get("target") == "none"  # stands on another's bar, or is its gray
            below = [label_at(axes, place) for axes, place in at]
            assert added or any(each.startswith(" ".join(str(row.get(key, "")).split())) for each in below), row
    known = np.array([each for row in spec.frame.select_dtypes("number").to_numpy(float) for each in row])
    bars = [value for axes in panels for place, value in values(axes) if axes.patches and not axes.lines]
    assert [value for value in bars if value and not np.isclose(known, value).any()] == []
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == signs


@pytest.mark.parametrize("stem", FIGURES)
def test_an_axis_holds_all_that_is_drawn_and_the_number_above_it(stem):
    _, figure = as_they_are(stem)

    for axes in figure.axes:
        lies = lying(axes)
        ends = [value for _, value in values(axes)]
        ends += [end[0 if lies else 1] for each in axes.collections if isinstance(each, LineCollection)
                 for bar in each.get_segments() for end in bar]  # fmt: skip
        low, high = axes.get_xlim() if lies else axes.get_ylim()
        assert not ends or low <= min(ends) <= max(ends) < high
        assert not axes.patches or high > 1.08 * max(ends)


@pytest.mark.parametrize(
    ("stem", "status", "told"),
    [*((stem, "invalid", "invalid") for stem in TOLD), ("fig4", "failed", "failed"), ("fig4", "running", "unfinished")],
)
def test_a_cell_that_is_not_done_is_left_out_and_leaves_its_status(stem, status, told):
    made = FIGURES[stem][0]

    spec = figures_of(left(made[0], status), *made[1:])[stem]

    assert id_of(made[0]) in spec.left_out["cell"].tolist()
    assert any(told in text for text in words(spec.drawn()))


@pytest.mark.parametrize("stem", FIGURES)
@pytest.mark.parametrize(("made", "shaky"), [(as_they_are, False), (with_a_poor_cell, True)])
def test_an_unstable_cell_has_a_dagger_and_the_caption_explains_it(stem, made, shaky):
    spec, figure = made(stem)

    marked = any(DAGGER in text.get_text() for axes in figure.axes for text in axes.texts)
    assert (marked, f"{DAGGER} unstable: " in spec.caption) == (shaky, shaky)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("stem", [*TOLD, "fig7", "sweep-toy", "readers", "objects"])
def test_each_whisker_goes_between_the_ends_that_stand_in_the_csv(stem, many):
    spec, figure = (of_nine_runs(stem), of_nine_runs(stem).drawn()) if many else as_they_are(stem)

    bars = [bars for axes in figure.axes for each in axes.containers if hasattr(each, "has_yerr")
            for bars in each.lines[2]]  # fmt: skip
    ends = [end.T for bar in bars for end in bar.get_segments()]  # of x and of y where it begins and ends
    drawn = [tuple(next(one for one in end if one[0] != one[1])) for end in ends]
    names = [name.removesuffix("min") for name in spec.frame if name.endswith("min")]
    low, high = ("low", "high") if many else ("min", "max")
    held = [pair for name in names for pair in spec.frame[[f"{name}{low}", f"{name}{high}"]].itertuples(index=False)]
    assert len(drawn) >= 2
    assert all(any(each == pytest.approx(pair) for pair in held) for each in drawn)


@pytest.mark.parametrize("stem", FIGURES)
def test_from_six_runs_on_each_metric_of_each_figure_has_the_interval_of_its_median(stem):
    frame = of_nine_runs(stem).frame

    names = [name.removesuffix("min") for name in frame if name.endswith("min")]
    assert [name for name in names if (frame[f"{name}low"].isna() != frame[f"{name}min"].isna()).any()] == []
    assert names


def test_from_six_runs_on_a_whisker_is_the_interval_of_the_median_which_the_csv_and_the_caption_name():
    rates = [50.0, 51.0, 52.0, 53.0, 54.0, 55.0, 56.0, 57.0, 99.0]
    spec = figures_of(record(rates, threads=1), record(rates[:5], threads=2))["fig4"]

    (bars,) = [each.lines[2][0] for each in spec.drawn().axes[0].containers if hasattr(each, "has_yerr")]
    found = interval_of_median(rates)
    assert [end[:, 1].tolist() for end in bars.get_segments()] == [[found.low, found.high], [50.0, 54.0]]
    (top,) = (text.xy[1] for axes in spec.drawn().axes for text in axes.texts if text.get_text() == "54.0\nn=9")
    assert top == found.high
    assert spec.frame["images_per_s_high"].tolist()[:1] == [found.high] != [99.0]
    assert "whiskers (min\N{EN DASH}max; from 6 runs on the interval of the median) hold" in spec.caption


@pytest.mark.parametrize(
    ("made", "stem", "number", "foot"),
    [
        ([baseline([160.0, 161.0, 164.0], "read", storage="hdd")], "table1", "161", 164.0),  # published: 163
        ([saved("none", [100.0] * 3), saved("hdd", [97.0] * 3)], "fig9", "97.0", 100.0),
    ],
)
def test_a_number_stands_above_whisker_and_line_whichever_would_cross_it(made, stem, number, foot):
    figure = figures_of(*made)[stem].drawn()

    (at,) = (text.xy[1] for axes in figure.axes for text in axes.texts if text.get_text() == number)
    assert at == foot


@pytest.mark.parametrize("stem", FIGURES)
def test_where_cells_differ_in_their_number_of_runs_each_shows_its_own(stem):
    spec, figure = with_a_poor_cell(stem)

    numbers = {*spec.frame["n_valid"][spec.frame["status"] == "done"]}
    if len(numbers) > 1:
        shown = {number for number in numbers if any(f"n={number}" in text for text in words(figure))}
        assert f"n = {min(numbers)}\N{EN DASH}{max(numbers)}, see " in spec.caption
        assert shown == numbers
    else:
        assert len(FIGURES[stem][0]) == 1


@pytest.mark.parametrize(
    ("stem", "made"),
    [
        *((stem, FIGURES[stem][0]) for stem in FIGURES),
        ("sweep-toy", [toy(scattered(5.0 + n), size=n, storage=name) for n in range(1, 13) for name in ("hdd", "ssd")]),
        ("readers", [cell for name in ("offsets", "h5py_pool", "h5py_shared") for cell in read_by(name, (1, 1, 90))]),
    ],
)
def test_no_number_covers_another(stem, made):
    made = [made[0], *map(with_nine_runs, made[1::3]), *(unstable(each) for each in made[2:] if each not in made[1::3])]
    figure = figures_of(*made, folder=NOWHERE)[stem].drawn()

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        numbers = [text for text in axes.texts if text.get_text() and isinstance(text, Annotation)]
        boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in numbers]
        assert [(one, other) for (one, box), (other, it) in combinations(boxes, 2) if box.overlaps(it)] == []
        assert all(box.y1 <= axes.bbox.y1 + 14 for _, box in boxes)


@pytest.mark.parametrize("stem", FIGURES)
def test_no_line_of_a_caption_ends_between_a_number_and_its_word(stem):
    caption, *_ = as_they_are(stem)[1].texts

    breaks = [*pairwise(caption.get_text().splitlines())]
    assert [(line, after) for line, after in breaks if re.match("[a-z]", after) and re.search(r"\d$", line)] == []
    assert [after for _, after in breaks if re.match(r"[\d≥%]", after)] == []
