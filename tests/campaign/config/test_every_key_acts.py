"""Every configuration key must provably do something: a test that changes it and sees an effect is marked with it."""

import ast
from pathlib import Path

import pytest

from campaign.cells import record
from campaign.cells.cell import make_cell
from campaign.config.tree import CHOICES
from jobs import checks
from jobs.benchmarks import alexnet, baseline, climate, malware, micro
from jobs.checks import Limits
from jobs.judging import judge
from jobs.model.conduct import SiteStorage
from jobs.model.declared import declared_settings
from jobs.model.settings import flat_items
from tests.campaign.fake_template import TERMS, figures, invalid
from tests.campaign.work_lists import BUFFERED, compose
from tests.jobs.jobs_factory import device_use

TESTS = Path(__file__).parents[2]


def _marks(file):
    """Tests of a file that are marked as showing the effect of keys, each with these; read, not run."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for mark in getattr(node, "decorator_list", []):
            if ast.unparse(mark).startswith("pytest.mark.shows("):
                yield f"{file.name}::{node.name}", [ast.literal_eval(key) for key in mark.args]


def test_every_key_is_shown_by_a_test_and_every_mark_names_a_key(point):
    keys = {key for key, _ in flat_items(point)}
    keys |= {f"site.storages.{name}" for name in declared_settings(SiteStorage)}
    of_groups = [(group, kind) for group, kinds in CHOICES.items() for kind in kinds.values()]
    keys |= {f"{group}.{name}" for group, kind in of_groups for name in declared_settings(kind)}
    keys |= {key for key, _ in flat_items(compose(*BUFFERED)) if key.startswith("checkpoint.")}
    keys -= {"site.storages", "checkpoint.fast", "checkpoint.slow"}  # have keys of their own
    shown = {key: test for file in TESTS.rglob("test_*.py") for test, named in _marks(file) for key in named}

    assert sorted(keys - shown.keys()) == [], "no test is marked with @pytest.mark.shows(KEY)"
    assert {key: shown[key] for key in shown.keys() - keys} == {}, "there is no such key"


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


@pytest.mark.shows(
    "checks.resident_max", "checks.device_bytes_min", "checks.time_error_max", "checks.other_device_max",
    "checks.other_cpu_max", "checks.spread_max", "checks.peak_max",
)  # fmt: skip
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


@pytest.mark.shows("min_valid_runs")
def test_the_least_number_of_valid_runs_decides_over_a_cell(point):
    made = record.make_record(make_cell(point), {}, {}, TERMS)
    for each in (figures(), figures(), invalid()):
        record.begin_run(made, "measured", "t").update(each)
    made["status"] = "done"

    decided = [judge.judge_record(made, {**TERMS, "runs": 4, "min_valid_runs": least})["status"] for least in (2, 3)]

    assert decided == ["done", "invalid"]


@pytest.mark.shows("storage.name")
def test_the_name_of_the_storage_names_the_cell(point):
    point["storage"]["name"] = "scratch"

    assert "-scratch-" in make_cell(point).id
