"""What every figure keeps: a cell without a number leaves its status in its place, and an unstable one is explained."""

import pytest

from tests.analysis.baseline_records import baseline
from tests.analysis.figures.test_sweep import toy
from tests.analysis.record_factory import id_of, record, scattered, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import figures_of, training, words

# Of each figure two records: what stands beside the other, which is spoiled.
PAIRS = {
    "fig4": (record(scattered(1.0), threads=1), record(scattered(9.0), threads=2)),
    "fig6": (training(scattered(140.0), prefetch=0), training(scattered(100.0))),
    "fig9": (saved("hdd", scattered(110.0)), saved("ssd", scattered(100.0), (0.5, 0.7, 0.9))),
    "checkpoints": (saved("hdd", scattered(110.0)), saved("ssd", scattered(100.0), (0.5, 0.7, 0.9))),
    "table1": (baseline(scattered(150.0), storage="hdd"), baseline(scattered(130.0), "write", storage="hdd")),
    "sweep-toy": (toy(scattered(5.0), size=1), toy(scattered(6.0), size=2)),
}
# A line over settings has no place for what is missing.
UNTOLD = "sweep-toy"


@pytest.mark.parametrize("stem", PAIRS)
@pytest.mark.parametrize(("status", "told"), [("invalid", "invalid"), ("failed", "failed"), ("running", "unfinished")])
def test_a_cell_that_is_not_done_is_left_out_and_leaves_its_status(stem, status, told):
    beside, spoiled = PAIRS[stem]
    more = [training([100.0] * 3, threads=2), training([140.0] * 3, threads=2, prefetch=0)] if stem == "fig6" else []

    spec = figures_of(beside, spoiled | {"status": status}, *more)[stem]

    assert id_of(spoiled) in spec.left_out["cell"].tolist()
    assert any(told in text for text in words(spec.drawn())) is (stem != UNTOLD)


@pytest.mark.parametrize("stem", PAIRS)
@pytest.mark.parametrize("shaky", [False, True])
def test_an_unstable_cell_is_marked_and_what_marks_it_is_explained(stem, shaky):
    beside, other = PAIRS[stem]

    figure = figures_of(beside, unstable(other) if shaky else other)[stem].drawn()

    assert any("unstable: " in text for text in words(figure)) is shaky
    hatched = any(patch.get_hatch() == "/////" for axes in figure.axes for patch in axes.patches)
    assert hatched is (shaky and stem not in {"checkpoints", UNTOLD})


@pytest.mark.parametrize("stem", PAIRS)
def test_each_whisker_goes_from_the_least_to_the_largest_that_stand_in_the_csv(stem):
    spec = figures_of(*PAIRS[stem])[stem]

    bars = [bars for axes in spec.drawn().axes for each in axes.containers if hasattr(each, "has_yerr")
            for bars in each.lines[2]]  # fmt: skip
    ends = [end.T for bar in bars for end in bar.get_segments()]  # of x and of y where it begins and ends
    drawn = [tuple(next(one for one in end if one[0] != one[1])) for end in ends]
    least = [name for name in spec.frame if name.endswith("min")]
    rows = spec.frame[[*least, *(f"{name[:-3]}max" for name in least)]].to_numpy()
    held = [pair for row in rows for pair in zip(row[: len(least)], row[len(least) :], strict=True)]
    assert len(drawn) >= 2
    assert all(any(each == pytest.approx(pair) for pair in held) for each in drawn)
