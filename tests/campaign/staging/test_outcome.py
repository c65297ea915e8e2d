"""What was predicted is held against what cells have measured."""

import pytest

from campaign.cells.cell import make_cell
from campaign.errors import UsageError
from campaign.staging.outcome import outcomes
from tests.campaign.on_disk import leave_record


def _plan(cell, **gains):
    none = {"files": [], "gain": {"gain": 0.0, "low": 0.0, "high": 0.0}}
    rules = {rule: {"files": [0], "gain": {"gain": gain, "low": 0.1, "high": 0.4}} for rule, gain in gains.items()}
    return {"origin": cell.id, "rules": {**dict.fromkeys(("advised", "smallest", "largest", "all"), none), **rules}}


@pytest.fixture
def measured(point, folder):
    """A function: leave the record of the cell with these copies and these MB/s of the runs."""

    def leave(staging, *rates, status="done"):
        point["profile"] = {"posix": "counters"}
        cell = make_cell({**point, "staging": staging})
        leave_record(
            folder, cell, *({"status": "valid", "profile": {"read_mb_per_s": rate}} for rate in rates), status=status
        )
        return cell

    return leave


@pytest.mark.parametrize(("rates", "holds"), [((50, 49, 51), True), ((60, 61, 62), False), ((43, 44, 45), False)])
def test_a_prediction_holds_within_a_tenth_of_the_bandwidth(rates, holds, measured, folder):
    cell = measured("none", 40, 39, 41)
    measured("advised", *rates)
    measured("smallest", 50, status="invalid")  # of one run that a neighbour left nothing is told

    found = outcomes(folder, _plan(cell, advised=0.25, smallest=0.2))

    assert list(found) == ["advised"]
    assert found["advised"].measured == pytest.approx(sorted(rates)[1] / 40 - 1)
    assert found["advised"].low == pytest.approx(min(rates) / 41 - 1)
    assert found["advised"].holds is holds


def test_without_cells_there_is_nothing_to_hold_it_against(measured, folder):
    cell = measured("none", 40)

    with pytest.raises(UsageError, match="no cell is done"):
        outcomes(folder, _plan(cell, advised=0.25))
    with pytest.raises(UsageError, match="has no cell x"):
        outcomes(folder, {**_plan(cell), "origin": "x"})


def test_cells_that_read_nothing_are_held_against_nothing(measured, folder):
    cell = measured("none", 40, 0)
    measured("advised", 50, 0)
    measured("all", 0)

    found = outcomes(folder, _plan(cell, advised=0.25, all=0.25))

    assert list(found) == ["advised"]
    assert found["advised"].low == pytest.approx(50 / 40 - 1)
    with pytest.raises(UsageError, match="no cell is done"):
        outcomes(folder, _plan(cell, all=0.25))
