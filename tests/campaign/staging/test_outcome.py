"""What was predicted is held against what cells and profiles have measured."""

import numpy as np
import pytest

from campaign.cells.cell import make_cell
from campaign.cells.verdicts import Verdicts
from campaign.errors import UsageError
from campaign.staging import observed
from campaign.staging.outcome import of_profiles, outcomes
from campaign.staging.staging_plan import RULES
from jobs.profiler.window import COUNTERS, Window
from jobs.system.files import write_json
from tests.campaign.fake_template import TERMS
from tests.campaign.on_disk import leave_record
from tests.campaign.staging.test_strangers import plan_of

ANY = TERMS | {"min_valid_runs": 1}


def _plan(cell, **gains):
    found = plan_of("/data", "/fast", ["x"], **{rule: [] for rule in RULES if rule not in gains})
    for rule, gain in gains.items():
        found["rules"][rule]["gain"] = {"gain": gain, "low": 0.1, "high": 0.4}
    return found | {"origin": cell.id}


@pytest.fixture
def measured(point, folder):
    """A function: leave the record of the cell with these copies and these MB/s of the runs."""

    def leave(staging, *rates, status="done", **changed):
        cell = make_cell({**point, "profile": {"posix": "counters"}, "staging": staging, **changed})
        verdict = "invalid" if status == "invalid" else "valid"
        runs = ({"status": verdict, "profile": {"read_mb_per_s": rate}} for rate in rates)
        leave_record(folder, cell, *runs, status=status)
        return cell

    return leave


@pytest.mark.parametrize(
    ("rates", "holds"),
    [
        ((50, 48, 51), True),
        ((55.1, 1, 99), False),
        ((54.9, 2, 98), True),
        ((45.1, 9, 60), True),
        ((44.9, 7, 61), False),
    ],
)
def test_a_prediction_holds_within_a_tenth_of_the_bandwidth(rates, holds, measured, folder):
    cell = measured("none", 40, 31, 42)
    measured("advised", *rates)
    measured("advised", 900, threads=7)  # another cell
    measured("smallest", 50, status="invalid")  # of one run that a neighbour left nothing is told

    found = outcomes(Verdicts(folder, ANY), _plan(cell, advised=0.25, smallest=0.2))

    assert list(found) == ["advised"]
    gains = (found["advised"].measured, found["advised"].low, found["advised"].high)
    assert gains == pytest.approx((np.median(rates) / 40 - 1, min(rates) / 42 - 1, max(rates) / 31 - 1))
    assert found["advised"].holds is holds


def test_where_nothing_was_read_there_is_nothing_to_hold_it_against(measured, folder):
    cell = measured("none", 40, 0)

    with pytest.raises(UsageError, match="no cell is done"):
        outcomes(Verdicts(folder, ANY), _plan(cell, advised=0.25))
    with pytest.raises(UsageError, match="has no cell x"):
        outcomes(Verdicts(folder, ANY), {**_plan(cell), "origin": "x"})
    measured("advised", 50, 0)
    measured("all", 0)
    (found,) = outcomes(Verdicts(folder, ANY), _plan(cell, advised=0.25, all=0.25)).values()
    assert found.low == pytest.approx(50 / 40 - 1)
    with pytest.raises(UsageError, match="no cell is done"):
        outcomes(Verdicts(folder, ANY), _plan(cell, all=0.25))


@pytest.fixture
def hold(tmp_path, monkeypatch):
    """A function: hold a profile of 1.5 s that read so many bytes of the plan's 6 MB, as much of them from the device.

    Half of them are of the copies with these names, half of an original.
    """
    for rule, names in (("advised", "ab"), ("all", "abc")):
        found = {"schema": 1, "source": "/data", "copies": "/fast/c", "root": "/fast"}
        write_json(tmp_path / f"{rule}.json", found | {"files": [[name, 1, 1] for name in names]})
    plan = plan_of("/data", "/fast", "abcd") | {"read_bytes": 6e6, "mb_per_s": 2.0, "origin": "a.npz"}

    def outcome(read, device=None, copied="ab"):
        counters = np.zeros(len(copied) + 2, COUNTERS)
        counters["bytes_read"] = [read // 2 - len(copied) + 1, *[1] * (len(copied) - 1), read - read // 2, 9_000_000]
        paths = [*(f"/fast/c/{name}" for name in copied), "/data/d", "/lib/x"]
        window = Window("counters", 0, 1_500_000_000, 1, paths, ["POSIX"] * len(paths), counters, None, 0, 0, 0)
        object.__setattr__(window, "device_bytes", device)
        monkeypatch.setattr(observed, "window_of", lambda _: window)
        monkeypatch.setattr(observed, "has_device", lambda _: True)
        return of_profiles(tmp_path, plan, [tmp_path / "b.npz"])

    return outcome


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        *(((6_000_000, device, "ab"), 4.0) for device in (None, 5_400_000, 6_000_000)),
        ((5_940_000, None, "abc"), 3.96), ((6_060_000, None, "abc"), 4.04),
    ],
)  # fmt: skip
def test_a_profile_of_the_copies_of_a_rule_tells_what_it_has_gained(words, rate, hold):
    ((rule, found),) = hold(*words).items()

    assert rule == {"ab": "advised", "abc": "all"}[words[2]]
    assert (found.measured, found.predicted["gain"]) == (pytest.approx(rate / 2.0 - 1), 0.2)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((5_939_999,), r"b\.npz has read 5\.9 MB of the plan's files, a\.npz 6\.0"),
        ((6_060_001,), r"has read 6\.1 MB of the plan's files"),
        ((6_000_000, 5_399_999), r"at least 0\.6 of 6\.0 MB came from memory"),
        ((6_000_000, None, "a"), "has read 1 copies, which are those of no rule"),
    ],
)
def test_a_profile_of_other_reads_or_from_memory_is_refused(words, why, hold):
    with pytest.raises(UsageError, match=why):
        hold(*words)
