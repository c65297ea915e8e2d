"""What it takes the kernel to serve an emulated storage."""

from __future__ import annotations

import json
import os

import pytest

from campaign.testbed import apply, serving
from campaign.testbed.serving import ServingInterval
from jobs.system.layers import account_of_storage
from tests.campaign.testbed.testbeds import SMALL

OWNER = (1234, 2345)


def test_the_costs_are_those_of_the_middle_window_without_what_the_kernel_does_when_idle():
    idle = [ServingInterval(0.5, cpu_s) for cpu_s in (0.05, 0.9, 0.04)]  # 0.1 of a processor, but for a burst
    small = [ServingInterval(2.0, 0.2 + cost * 1000, 1000) for cost in (3e-5, 2e-5, 0.1)]
    large = [ServingInterval(1.0, 0.1 + 200 * 3e-5 + cost * 2, 200, 2.0) for cost in (0.25, 0.01, 0.75)]
    written = [
        ServingInterval(1.0, 0.05, 10, 1.0),
        ServingInterval(1.0, 0.0, 10, 1.0),
        ServingInterval(1.0, 0.0, 0, 0.0),
    ]

    found = serving.costs_of_windows(idle, small, large, written)

    assert found == pytest.approx({"request_cpu_s": 3e-5, "read_gb_cpu_s": 0.25, "written_gb_cpu_s": 0.0})


def test_up_measures_what_serving_takes_and_leaves_nothing_but_that(measured_bed, monkeypatch):
    seen, costs = [], serving.costs_of_windows
    monkeypatch.setattr(serving, "costs_of_windows", lambda *windows: seen.extend(windows) or costs(*windows))
    each = apply.bring_up(measured_bed, SMALL, OWNER).storages["hdd"]

    found = account_of_storage(each.root)
    again = apply.bring_up(measured_bed, SMALL, OWNER).storages["hdd"]

    assert found.costs == {key: each.costs[key] for key in ("request_cpu_s", "read_gb_cpu_s", "written_gb_cpu_s")}
    assert found.costs == costs(*seen)
    assert sum(window.cpu_s for window in seen[1]) > 0  # the cost itself is 0 where others' writes kept the kernel busy
    assert all(0.008 < window.moved_gb < 0.1 for window in seen[3])  # a file of 8 MiB, and the file system's own
    assert all(each.cpu_s < 2 * os.cpu_count() * each.elapsed_s for windows in seen for each in windows)
    assert all(window.requests * 4.096e-6 <= window.moved_gb * 1.1 for window in seen[1])
    assert sorted(path.name for path in each.point.iterdir()) == [".tfio-emulated.json", "data", "lost+found"]
    assert again.costs == each.costs
    assert json.loads(each.serving.read_text())["storage"] == each.marker_facts
