"""Every configuration key must provably do something: each names the test that changes it and sees an effect."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest
from fake_template import figures

from campaign import record
from campaign.cell import flat, make_cell
from jobs import checks, micro
from jobs.checks import Limits

TESTS = Path(__file__).parents[1]
_DATASET = "campaign/test_prepare.py::test_every_key_of_a_synthetic_dataset_makes_another_one"
_LIMITS = "campaign/test_every_key_acts.py::test_a_stricter_limit_makes_its_rule_fail"
EVIDENCE = {
    "benchmark.name": "campaign/test_bad_words.py::test_a_wrong_word_is_named_with_its_cure",
    "benchmark.preprocess": "jobs/test_pipeline.py::test_without_preprocessing_the_payload_is_the_file",
    "benchmark.image_size": "jobs/test_pipeline.py::test_the_payload_has_the_size_that_was_asked_for",
    "benchmark.ignore_errors": (
        "jobs/test_execute.py::test_without_ignore_errors_a_truncated_image_ends_the_run_and_is_named_in_its_log"
    ),
    "benchmark.autotune": "jobs/test_pipeline.py::test_autotune_makes_batches_ahead_that_nobody_asked_for",
    "benchmark.map_and_batch_fusion": (
        "jobs/test_pipeline.py::test_map_and_batch_are_one_step_only_where_asked_for_and_no_step_stands_between"
    ),
    "benchmark.deterministic": (
        "jobs/test_pipeline.py::test_delivery_that_need_not_be_deterministic_lets_others_overtake_a_late_file"
    ),
    "benchmark.private_threads": "jobs/test_pipeline.py::test_a_private_pool_that_is_smaller_caps_the_threads",
    "dataset.name": "campaign/test_prepare.py::test_the_name_of_a_dataset_names_its_folder",
    "dataset.files": _DATASET,
    "dataset.median_bytes": _DATASET,
    "dataset.sigma": _DATASET,
    "dataset.width": _DATASET,
    "dataset.height": _DATASET,
    "dataset.classes": _DATASET,
    "dataset.seed": _DATASET,
    "dataset.path": (
        "campaign/test_prepare.py::test_a_users_folder_is_used_in_place_and_its_manifest_kept_with_the_campaign"
    ),
    "storage.name": "campaign/test_every_key_acts.py::test_the_name_of_the_storage_names_the_cell",
    "storage.root": "campaign/test_prepare.py::test_a_relative_root_belongs_to_the_working_folder_and_is_made",
    "cluster.name": "campaign/test_end_to_end.py::test_the_debug_cluster_works_in_the_front_process",
    "threads": "jobs/test_pipeline.py::test_threads_is_the_number_of_files_that_are_read_at_once",
    "batch_size": "jobs/test_micro.py::test_batch_size_and_iterations_decide_how_much_is_read",
    "prefetch": "jobs/test_pipeline.py::test_prefetch_is_the_number_of_batches_made_ahead",
    "iterations": "jobs/test_micro.py::test_batch_size_and_iterations_decide_how_much_is_read",
    "seed": "jobs/test_pipeline.py::test_the_seed_alone_decides_the_order",
    "cache": "jobs/test_execute.py::test_a_warm_run_reads_nothing_from_the_device_and_is_valid",
    "runs": "campaign/test_record.py::test_what_is_missing_follows_from_what_is_there",
    "warmup_runs": "campaign/test_worker.py::test_no_warm_up_where_none_is_asked_for",
    "min_valid_runs": "campaign/test_every_key_acts.py::test_the_least_number_of_valid_runs_decides_over_a_cell",
    "run_timeout_s": "campaign/test_end_to_end.py::test_a_run_that_hangs_is_killed_at_its_limit_and_told",
    "order_seed": "campaign/test_plan.py::test_another_seed_gives_another_order",
    "redo": "campaign/test_worker.py::test_redo_measures_anew_and_loses_nothing",
    "campaign_dir": (
        "campaign/test_end_to_end.py::test_no_space_for_a_record_loses_nothing_and_the_same_command_finishes"
    ),
    **{f"checks.{field.name}": _LIMITS for field in dataclasses.fields(Limits)},
}


def test_every_key_has_its_evidence(point):
    keys = {key for key, _ in flat(point)} | {"dataset.path"}

    assert keys == EVIDENCE.keys()


@pytest.mark.parametrize("key", EVIDENCE)
def test_the_evidence_is_a_test_that_exists(key):
    file, _, name = EVIDENCE[key].partition("::")

    functions = [node.name for node in ast.parse((TESTS / file).read_text()).body if isinstance(node, ast.FunctionDef)]

    assert name in functions


def test_the_thresholds_of_the_configuration_are_those_of_the_checks(point):
    assert point["checks"] == dataclasses.asdict(Limits())


def test_a_run_by_hand_has_the_defaults_of_a_campaign(point):
    assert {key: point[key] for key in micro.DEFAULTS} == micro.DEFAULTS


RUN = {
    "resident_fraction": 0.005, "device_bytes": 950, "bytes_read": 1000, "wall_s": 1.0, "load_s": 0.995,
    "compute_s": 0.0, "checkpoint_s": 0.0, "other_s": 0.0, "other_bytes": 4_000_000, "other_cpu": 0.4,
    "elapsed_s": 1.0, "images_per_s": 100.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "stricter", "rule"),
    [
        ("resident_max", 0.004, checks.cold),
        ("device_bytes_min", 0.96, checks.device_bytes),
        ("time_error_max", 0.004, checks.time_adds_up),
        ("other_mb_per_s_max", 3.0, checks.quiet),
        ("other_cpu_max", 0.3, checks.quiet),
        ("spread_max", 0.01, lambda _, limits: checks.spread([100, 103], limits)),
    ],
)
def test_a_stricter_limit_makes_its_rule_fail(limit, stricter, rule):
    assert rule(RUN, Limits())["passed"] is True
    assert rule(RUN, Limits(**{limit: stricter}))["passed"] is False


def test_the_least_number_of_valid_runs_decides_over_a_cell(point):
    made = record.new(make_cell(point), {}, {})
    for status in ("valid", "valid", "invalid"):
        record.begin_run(made, "measured", "t").update(figures(), status=status, reason="because")
    conduct = {"runs": 4, "warmup_runs": 1}

    decided = {}
    for least in (2, 3):
        record.settle(made, {**conduct, "min_valid_runs": least}, Limits())
        decided[least] = made["status"]

    assert decided == {2: "done", 3: "invalid"}


def test_the_name_of_the_storage_names_the_cell(point):
    point["storage"]["name"] = "scratch"

    assert "-scratch-" in make_cell(point).id
