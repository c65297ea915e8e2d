"""Which files the rules take, and when none is worth it."""

import os
from pathlib import Path

import numpy as np
import pytest

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import cost, staging_plan
from tests.campaign.staging.conftest import FAST

SIZES = [5_000, 20_000, 1_000_000, 60_000, 40_000, 3_000_000] * 20


@pytest.fixture
def planned(observed, fast_root, monkeypatch):
    """A function: the plan of runs over files that are there, with a fast storage of such costs."""

    def make(capacity, fast=FAST, sizes=SIZES, root="fast", **runs):
        seen = observed(sizes, **runs)
        seen.source.mkdir()
        for name, size in zip(seen.names, sizes, strict=True):
            with (seen.source / name).open("wb") as file:
                os.truncate(file.fileno(), size)
        monkeypatch.setattr(cost, "measure_costs_of_probe_files", lambda *_: [fast])
        return staging_plan.make_plan(seen, fast_root if root == "fast" else seen.source.parent, capacity)

    return make


def _sizes(made, rule):
    return [made["listed"][place][1] for place in made["rules"][rule]["files"]]


def test_each_rule_fills_the_capacity_in_its_order(planned):
    made = planned(4_000_000)

    # Eighty files have less than 100 kB; one of 1 MB finds room behind them.
    assert sorted(_sizes(made, "smallest")) == sorted(_sizes(made, "advised")) == [*sorted(SIZES)[:80], 1_000_000]
    assert max(_sizes(made, "largest")) == 3_000_000
    assert all(made["rules"][rule]["bytes"] <= 4_000_000 for rule in ("advised", "smallest", "largest"))
    assert len(_sizes(made, "all")) == len(SIZES)
    gains = {rule: made["rules"][rule]["gain"]["gain"] for rule in staging_plan.RULES}
    assert gains["advised"] >= max(gains["smallest"], gains["largest"])
    assert (made["why_not"], made["left_out"]) == (None, 0)


def test_a_file_takes_whole_blocks_of_the_capacity(planned):
    made = planned(4 * 8_192 - 1, sizes=[5_000] * 40)

    assert [len(_sizes(made, rule)) for rule in ("smallest", "largest")] == [3, 3]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"fast": cost.ReadCost(9e-3, 9e-9)}, "no file is read faster"),
        ({"capacity": 4_000}, "no file is read faster"),
        ({"waits": 0.001}, "is too small to be certain"),
    ],
)
def test_where_it_cannot_help_nothing_is_advised(changed, why, planned):
    made = planned(**{"capacity": 4_000_000, **changed})

    nothing = {"files": [], "bytes": 0, "gain": {"gain": 0.0, "low": 0.0, "high": 0.0}}
    assert why in made["why_not"]
    assert made["rules"]["advised"] == nothing
    assert (made["rules"]["smallest"] == nothing) is ("capacity" in changed)


@pytest.mark.parametrize(
    ("gain", "low", "advised"),
    [(0.01, 1e-9, True), (0.0099, 1e-9, False), (0.5, 0.0, False), (0.5, -0.1, False), (0.5, 1e-9, True)],
)
def test_a_gain_is_advised_from_one_percent_if_it_is_surely_above_none(gain, low, advised, planned, monkeypatch):
    monkeypatch.setattr(cost, "predict_gain", lambda *_: cost.PredictedGain(gain=gain, low=low, high=0.7))

    assert (planned(4_000_000)["why_not"] is None) is advised


@pytest.mark.parametrize(
    ("root", "devices", "same"),
    [
        ("slow", ("a", "a"), True), ("slow", (None, None), True), ("fast", ("a", "a"), True),
        ("fast", ("a", "b"), False), ("fast", (None, None), False),
    ],
)  # fmt: skip
def test_the_storage_of_the_files_themselves_is_no_faster_one(root, devices, same, planned, monkeypatch):
    monkeypatch.setattr(staging_plan, "device_of", lambda path: devices[path.name == "data"])

    made = planned(10**6, root=root, sizes=[8_000, 9_000, 80_000])

    assert ("on the same storage as the files" in (made["why_not"] or "")) is same


def test_links_and_files_that_are_gone_stay_where_they_are(observed, fast_root):
    seen = observed([8_000] * 4)
    seen.source.mkdir()
    (seen.source / seen.names[0]).write_bytes(bytes(8_000))
    (seen.source / seen.names[1]).symlink_to(seen.names[0])

    made = staging_plan.make_plan(seen, fast_root, 10**6)

    assert (made["left_out"], [name for name, *_ in made["listed"]]) == (3, [seen.names[0]])
    assert made["rules"]["all"]["files"] == [0]
    (seen.source / seen.names[0]).unlink()
    with pytest.raises(EnvironmentFaultError, match="none of the 4 files"):
        staging_plan.make_plan(seen, fast_root, 10**6)


def test_the_fast_storage_is_measured_by_files_of_such_sizes_and_left_as_it_was(tmp_path, monkeypatch):
    costs, sizes = cost.measure_costs, []
    monkeypatch.setattr(
        cost, "measure_costs", lambda paths: (sizes.extend(path.stat().st_size for path in paths), costs(paths))[1]
    )
    descriptors = len([*Path("/proc/self/fd").iterdir()])

    first, *drawn = cost.measure_costs_of_probe_files(tmp_path, np.array([10_000.0, 90_000.0, 200_000.0]))

    assert first.seconds(np.ones(1), np.array([1e5])) > 0
    assert len(drawn) == 100
    wanted = np.quantile([10_000, 90_000, 200_000], (np.arange(48) + 0.5) / 48).astype(int)
    assert (sorted(sizes), sizes != sorted(sizes)) == (wanted.tolist(), True)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".tfio-lock"] == []
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors


@pytest.mark.parametrize(("text", "why"), [(None, "no plan in"), ("{}", "damaged"), ('{"schema": 9}', "damaged")])
def test_what_is_no_plan_is_refused(text, why, tmp_path):
    if text:
        (tmp_path / staging_plan.NAME).write_text(text)

    with pytest.raises((UsageError, EnvironmentFaultError), match=why):
        staging_plan.load_plan(tmp_path)
