"""Limits act on their checks, and a run by hand has the defaults of a campaign."""

import pytest

from campaign.cells import record
from campaign.cells.cell import make_cell
from jobs import checks
from jobs.benchmarks import alexnet, baseline, climate, malware, micro
from jobs.checks import Limits
from jobs.judging import judge
from tests.campaign.fake_template import TERMS, figures, invalid
from tests.campaign.work_lists import compose
from tests.jobs.jobs_factory import device_use


@pytest.mark.parametrize("benchmark", [micro, alexnet, malware, baseline, climate])
def test_a_run_by_hand_has_the_defaults_of_a_campaign(benchmark):
    point = compose(f"benchmark={benchmark.BENCHMARK.name}")

    assert {key: point[key] for key in benchmark.BENCHMARK.defaults} == benchmark.BENCHMARK.defaults


RUN = {
    "resident_fraction": 0.005, "device_bytes": 995, "bytes_read": 1000, "wall_s": 1.0, "load_s": 0.995,
    "compute_s": 0.0, "checkpoint_s": 0.0, "other_s": 0.0, "device_use": [device_use(other_reads=40)], "other_cpu": 0.4,
    "elapsed_s": 1.0, "images_per_s": 100.0, "read_mb_per_s": 95.0,
    "wall_parts": ["load_s", "compute_s", "checkpoint_s", "other_s"],
}  # fmt: skip
PEAK = {"by": "b", "mb_per_s": 100.0, "ceiling_mb_per_s": 100.0, "reads": None}


@pytest.mark.parametrize(
    ("limit", "stricter", "rule"),
    [
        ("resident_max", 0.004, checks.cold),
        ("device_bytes_min", 0.996, checks.device_bytes),
        ("time_error_max", 0.004, checks.time_adds_up),
        ("other_device_max", 0.03, checks.quiet),
        ("other_cpu_max", 0.3, checks.quiet),
        ("peak_max", 0.9, lambda run, limits: checks.below_peak({**run, "images": 10**9}, PEAK, limits)),
        ("spread_max", 0.01, lambda _, limits: checks.spread([100, 103], limits)),
    ],
)
def test_a_stricter_limit_makes_its_rule_fail(limit, stricter, rule):
    assert rule(RUN, Limits())["passed"] is True
    assert rule(RUN, Limits(**{limit: stricter}))["passed"] is False


def test_the_least_number_of_valid_runs_decides_over_a_cell(point):
    made = record.make_record(make_cell(point), {}, {}, TERMS)
    for each in (figures(), figures(), invalid()):
        record.begin_run(made, "measured", "t").update(each)
    made["status"] = "done"

    decided = [judge.judge_record(made, {**TERMS, "runs": 4, "min_valid_runs": least})["status"] for least in (2, 3)]

    assert decided == ["done", "invalid"]


def test_the_name_of_the_storage_names_the_cell(point):
    point["storage"]["name"] = "scratch"

    assert "-scratch-" in make_cell(point).id
