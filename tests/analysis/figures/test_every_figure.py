"""What every figure keeps: a cell without a number leaves its status in its place, and an unstable one is explained."""

import pytest

from tests.analysis.baseline_records import baseline
from tests.analysis.figures.test_sweep import toy
from tests.analysis.record_factory import id_of, record, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import figures_of, training, words

# Of each figure two records: what stands beside the other, which is spoiled.
PAIRS = {
    "fig4": (record([1.0], threads=1), record([9.0], threads=2)),
    "fig6": (training([140.0] * 3, prefetch=0), training([100.0] * 3)),
    "fig9": (saved("hdd", [100.0] * 3), saved("ssd", [100.0] * 3)),
    "checkpoints": (saved("hdd", [100.0] * 3), saved("ssd", [100.0] * 3)),
    "table1": (baseline([150.0] * 3, storage="hdd"), baseline([130.0] * 3, "write", storage="hdd")),
    "sweep-toy": (toy([5.0] * 3, size=1), toy([6.0] * 3, size=2)),
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
