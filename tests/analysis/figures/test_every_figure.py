"""What every figure keeps: what is missing says why, what is unstable is marked, a whisker has its ends in the CSV."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest

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
# Of each figure its records.
FIGURES = {
    "fig4": [record(scattered(rate), threads=n, storage=name)
         for name, n, rate in (("hdd", 1, 57.0), ("hdd", 8, 90.0), ("lustre", 1, 43.0), ("lustre", 8, 80.0))],
    "fig6": [training(scattered(wall * share), threads=n, prefetch=ahead, storage=name)
         for name, share in (("hdd", 1.0), ("lustre", 1.3))
         for n, ahead, wall in ((1, 1, 100.0), (1, 0, 150.0), (4, 1, 103.0), (4, 0, 97.0))],
    "fig7": [training(scattered(wall), threads=8, batch_size=size, prefetch=ahead)
         for size, ahead, wall in ((16, 1, 100.0), (16, 0, 130.0), (128, 1, 60.0), (128, 0, 71.0))],
    "fig9": [saved("hdd", scattered(140.0), (5.3,) * 3), saved("ssd", scattered(131.0), (3.1,) * 3),
         saved("none", scattered(125.0)), saved("optane to hdd", scattered(120.0), (0.3, 1.4, 6.5))],
    "checkpoints": [saved("hdd", scattered(140.0), (5.3, 5.4, 5.5)),
         saved("optane to hdd", scattered(120.0), (0.3, 1.4, 6.5))],
    "table1": [baseline(scattered(rate), way, storage=name)
         for name, way, rate in (("hdd", "read", 150.0), ("hdd", "write", 131.0), ("optane", "read", 900.0))],
    "sweep-toy": [toy(scattered(rate), size=size, storage=name)
         for name, size, rate in (("hdd", 1, 5.0), ("hdd", 4, 9.0), ("ssd", 1, 7.0), ("ssd", 4, 6.0))],
    "readers": [*read_by("offsets", (10, 21, 40)), *read_by("h5py_threads", (11, 12, 13))],
    "objects": [of_size(size, rate, kind=kind)
         for size, kind, rate in ((12_000, None, 20.0), (12_000, "s3", 9), (99_000, None, 60.0), (99_000, "s3", 8.0))],
    "nersc-hepcnn-latency": [hepcnn(4, "global", 24), hepcnn(4, "local", 8), hepcnn(1, "local", 8)],
    "tfdarshan-bandwidth": [malware(), malware(16, 80.0), malware(rate=120.0, staging="smallest")],
    "tfdarshan-fwrite": [saving(stream_writes=220)],
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
    spec = figures_of(*FIGURES[stem], folder=NOWHERE)[stem]
    return spec, spec.drawn()


@cache
def of_nine_runs(stem):
    """Return the spec of a figure whose cells have nine runs each."""
    return figures_of(*map(with_nine_runs, FIGURES[stem]), folder=NOWHERE)[stem]


@cache
def with_a_poor_cell(stem):
    """Return spec and figure whose first cell is unstable and has a run less than the others."""
    first, *others = FIGURES[stem]
    poor = unstable(first)
    poor["runs"].pop()
    spec = figures_of(poor, *others, folder=NOWHERE)[stem]
    return spec, spec.drawn()


# Those with a place for what is missing: what stands beside another record, which is spoiled.
TOLD = ("fig4", "fig6", "fig9", "checkpoints", "table1")


@pytest.mark.parametrize(
    ("stem", "status", "told"),
    [*((stem, "invalid", "invalid") for stem in TOLD), ("fig4", "failed", "failed"), ("fig4", "running", "unfinished")],
)
def test_a_cell_that_is_not_done_is_left_out_and_leaves_its_status(stem, status, told):
    made = FIGURES[stem]

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
