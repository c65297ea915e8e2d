"""Every configuration key must provably do something: each names the test that changes it and sees an effect."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from campaign.cells import record
from campaign.cells.cell import flat, make_cell
from campaign.config.keys.baseline import Baseline
from campaign.config.schema import Alexnet, SiteStorage, Slurm
from jobs import checks
from jobs.benchmarks import alexnet, baseline, micro
from jobs.checks import Limits
from tests.campaign.fake_template import figures

TESTS = Path(__file__).parents[2]
_DATASET = "campaign/storage/test_datasets.py::test_every_key_of_a_synthetic_dataset_makes_another_one"
_LIMITS = "campaign/config/test_every_key_acts.py::test_a_stricter_limit_makes_its_rule_fail"
_OF_TARGET = "jobs/checkpoints/test_run.py::test_each_key_of_a_target_reaches_it"
_OF_SITE = "campaign/config/test_site.py::test_what_the_site_says_of_its_scheduler_is_the_default_of_the_cluster"
_OF_STORAGE = "campaign/config/test_site.py::test_a_storage_is_where_and_what_the_site_says"
_SCRIPT = "campaign/cluster/test_sbatch_text.py"
EVIDENCE = {
    "benchmark.name": "campaign/cli/test_bad_words.py::test_a_wrong_word_is_named_with_its_cure",
    "benchmark.preprocess": "jobs/data/test_pipeline.py::test_without_preprocessing_the_payload_is_the_file",
    "benchmark.image_size": "jobs/data/test_pipeline.py::test_the_payload_has_the_size_that_was_asked_for",
    "benchmark.ignore_errors": (
        "jobs/test_run.py::test_without_ignore_errors_a_truncated_image_ends_the_run_and_is_named_in_its_log"
    ),
    "benchmark.autotune": "jobs/data/test_pipeline.py::test_autotune_makes_batches_ahead_that_nobody_asked_for",
    "benchmark.map_and_batch_fusion": (
        "jobs/data/test_pipeline.py::test_map_and_batch_are_one_step_only_where_asked_for_and_no_step_stands_between"
    ),
    "benchmark.deterministic": (
        "jobs/data/test_pipeline.py::test_delivery_that_need_not_be_deterministic_lets_others_overtake_a_late_file"
    ),
    "benchmark.private_threads": "jobs/data/test_pipeline.py::test_a_private_pool_that_is_smaller_caps_the_threads",
    "benchmark.prefetch_to_device": (
        "jobs/data/test_pipeline.py::test_a_batch_stands_on_the_device_that_computes_where_that_is_asked_for"
    ),
    "benchmark.control": (
        "jobs/benchmarks/test_alexnet.py::test_without_input_one_batch_is_loaded_before_the_clock_and_none_during_it"
    ),
    "benchmark.width": "jobs/benchmarks/test_alexnet_network.py::test_the_width_multiplies_channels_and_units",
    "benchmark.learning_rate": "jobs/benchmarks/test_alexnet_network.py::test_the_learning_rate_is_how_far_a_step_goes",
    "benchmark.dropout": (
        "jobs/benchmarks/test_alexnet_network.py::test_dropout_is_another_at_each_step_and_the_same_each_time"
    ),
    "benchmark.access": "campaign/storage/test_baseline_files.py::test_a_storage_is_written_and_read_by_one_command",
    "benchmark.engine": "jobs/benchmarks/test_baseline.py::test_the_engine_is_ior_or_else_fio_or_else_our_own",
    "benchmark.file_mb": (
        "campaign/storage/test_baseline_files.py::"
        "test_the_file_is_made_under_the_root_of_the_storage_and_progress_is_told_in_mebibytes"
    ),
    "benchmark.transfer_mib": (
        "jobs/benchmarks/test_baseline.py::test_a_read_asks_for_the_whole_file_in_order_and_in_requests_of_the_size_asked_for"
    ),
    "benchmark.seconds_max": "jobs/benchmarks/test_baseline.py::test_random_reads_end_when_their_time_is_up",
    "accelerator.name": "jobs/benchmarks/test_alexnet.py::test_a_gpu_is_taken_where_it_is_wanted_and_hidden_where_not",
    "accelerator.step_s": (
        "jobs/benchmarks/test_alexnet.py::test_an_emulated_step_takes_its_time_and_leaves_the_processor_alone"
    ),
    **{
        f"checkpoint.{key}": (
            "campaign/storage/test_checkpoint_targets.py::test_a_target_lies_where_the_site_says_its_storages_are"
        )
        for key in ("name", "root", "fast.name", "fast.root", "slow.name", "slow.root")
    },
    "checkpoint.every": "jobs/checkpoints/test_run.py::test_every_so_many_steps_there_is_a_snapshot",
    "checkpoint.mode": "jobs/checkpoints/test_run.py::test_in_the_background_training_stands_still_for_the_copy_alone",
    "checkpoint.in_flight": (
        "jobs/checkpoints/test_saver.py::test_the_training_stands_still_where_one_more_would_be_too_many"
    ),
    **{f"checkpoint.{key}": _OF_TARGET for key in ("keep", "when_full", "bandwidth_mb_per_s", "direct", "streams")},
    "dataset.name": "campaign/storage/test_datasets.py::test_the_name_of_a_dataset_names_its_folder",
    "dataset.files": _DATASET,
    "dataset.median_bytes": _DATASET,
    "dataset.sigma": _DATASET,
    "dataset.width": _DATASET,
    "dataset.height": _DATASET,
    "dataset.classes": _DATASET,
    "dataset.seed": _DATASET,
    "dataset.path": (
        "campaign/storage/test_datasets.py::test_a_users_folder_is_used_in_place_and_its_manifest_kept_with_the_campaign"
    ),
    "storage.name": "campaign/config/test_every_key_acts.py::test_the_name_of_the_storage_names_the_cell",
    "storage.root": "campaign/storage/test_datasets.py::test_a_relative_root_belongs_to_the_working_folder_and_is_made",
    "storage.shared": f"{_SCRIPT}::test_storage_shared_bounds_the_jobs_at_once",
    "storage.exclusive": f"{_SCRIPT}::test_storage_exclusive_decides_what_keeps_jobs_apart",
    "storage.license": f"{_SCRIPT}::test_storage_license_is_asked_for_with_the_job",
    "storage.stripe_count": (
        "campaign/storage/test_datasets.py::test_a_dataset_is_striped_before_it_is_made_and_its_stripes_are_recorded"
    ),
    "storage.stripe_size_mib": (
        "campaign/storage/test_datasets.py::test_a_dataset_is_striped_before_it_is_made_and_its_stripes_are_recorded"
    ),
    "site.name": "campaign/config/test_site.py::test_a_storage_that_is_not_here_is_refused_with_the_cure",
    **{f"site.{key}": _OF_SITE for key in ("partition", "account", "qos", "constraint", "gpus_per_node", "modules")},
    "site.timeout_max_min": (
        "campaign/config/test_limits.py::test_a_job_may_be_as_long_as_the_site_allows_and_no_longer"
    ),
    **{
        f"site.{key}": "campaign/config/test_site.py::test_the_tolerance_of_the_site_is_that_of_the_check"
        for key in ("spread_max", "other_cpu_max")
    },
    "site.storages.stripe_size_mib": (
        "campaign/config/test_site.py::test_a_storage_with_a_name_of_the_users_own_is_reached"
    ),
    **{f"site.storages.{key}": _OF_STORAGE for key in ("root", "shared", "exclusive", "license", "stripe_count")},
    "detach": f"{_SCRIPT}::test_detach_returns_when_the_jobs_are_submitted",
    **{
        f"cluster.{key}": f"{_SCRIPT}::test_cluster_{key}_{effect}"
        for key, effect in {
            "partition": "is_asked_for",
            "account": "is_asked_for",
            "qos": "is_asked_for",
            "constraint": "is_asked_for",
            "nodelist": "is_asked_for",
            "exclude": "is_asked_for",
            "dependency": "is_asked_for",
            "licenses": "is_asked_for",
            "timeout_min": "is_the_time_limit",
            "mem_gb": "is_the_memory",
            "cpus_per_task": "is_asked_for_and_follows_the_threads_where_it_is_null",
            "gpus_per_node": "is_asked_for",
            "exclusive": "asks_for_a_node_alone",
            "modules": "are_loaded_first",
            "extra": "is_passed_on",
            "cells_per_job": "packs_cells",
            "parallel": "bounds_the_array",
            "max_requeues": "bounds_the_requeues",
            "signal_delay_s": "is_when_a_job_is_told_to_save",
            "oversubscribe": "lets_a_cell_have_fewer_cpus_than_threads",
            "save_patience_s": "is_how_long_a_full_disk_is_waited_for",
        }.items()
    },
    "size": "campaign/config/test_compose.py::test_a_smoke_recipe_has_fewer_files_and_a_thinner_network",
    "trace.interval_s": "campaign/worker/test_worker.py::test_a_run_is_traced_as_it_is_asked_for",
    "trace.tail_s": "jobs/test_run.py::test_a_trace_goes_on_after_the_last_step_for_as_long_as_asked",
    "cluster.name": "campaign/test_end_to_end.py::test_the_debug_cluster_works_in_the_front_process",
    "threads": "jobs/data/test_pipeline.py::test_threads_is_the_number_of_files_that_are_read_at_once",
    "batch_size": "jobs/benchmarks/test_micro.py::test_batch_size_and_iterations_decide_how_much_is_read",
    "prefetch": "jobs/data/test_pipeline.py::test_prefetch_is_the_number_of_batches_made_ahead",
    "iterations": "jobs/benchmarks/test_micro.py::test_batch_size_and_iterations_decide_how_much_is_read",
    "seed": "jobs/data/test_pipeline.py::test_the_seed_alone_decides_the_order",
    "cache": "jobs/test_run.py::test_a_warm_run_reads_nothing_from_the_device_and_is_valid",
    "runs": "campaign/cells/test_record.py::test_what_is_missing_follows_from_what_is_there",
    "warmup_runs": "campaign/worker/test_worker.py::test_no_warm_up_where_none_is_asked_for",
    "min_valid_runs": "campaign/config/test_every_key_acts.py::test_the_least_number_of_valid_runs_decides_over_a_cell",
    "until_spread": "campaign/cells/test_stopping.py::test_runs_are_added_until_the_interval_of_the_median_is_narrow",
    "max_runs": "campaign/cells/test_stopping.py::test_at_max_runs_it_gives_up_and_says_so",
    "run_timeout_s": "campaign/test_end_to_end.py::test_a_run_that_hangs_is_killed_at_its_limit_and_told",
    "drain_timeout_s": "jobs/checkpoints/test_run.py::test_a_drain_that_does_not_end_in_time_makes_the_run_invalid",
    "order_seed": "campaign/cells/test_plan.py::test_another_seed_gives_another_order",
    "redo": "campaign/worker/test_worker.py::test_redo_measures_anew_and_loses_nothing",
    "campaign_dir": (
        "campaign/test_end_to_end.py::test_no_space_for_a_record_loses_nothing_and_the_same_command_finishes"
    ),
    **{f"checks.{field.name}": _LIMITS for field in dataclasses.fields(Limits)},
}


def test_every_key_has_its_evidence(point, direct_point, buffered_point):
    keys = {key for key, _ in flat(point)} | {"dataset.path"}
    keys |= {f"site.storages.{field.name}" for field in dataclasses.fields(SiteStorage)}
    keys |= {f"cluster.{field.name}" for field in dataclasses.fields(Slurm)}
    keys |= {f"benchmark.{field.name}" for kind in (Alexnet, Baseline) for field in dataclasses.fields(kind)}
    keys |= {key for each in (direct_point, buffered_point) for key, _ in flat(each) if key.startswith("checkpoint.")}

    assert keys == EVIDENCE.keys()


@pytest.mark.parametrize("key", EVIDENCE)
def test_the_evidence_is_a_test_that_exists(key):
    file, _, name = EVIDENCE[key].partition("::")

    functions = [node.name for node in ast.parse((TESTS / file).read_text()).body if isinstance(node, ast.FunctionDef)]

    assert name in functions


def test_the_thresholds_of_the_configuration_are_those_of_the_checks(point):
    assert point["checks"] == dataclasses.asdict(Limits())


@pytest.mark.parametrize(
    ("benchmark", "which"), [(micro, "point"), (alexnet, "alexnet_point"), (baseline, "read_point")]
)
def test_a_run_by_hand_has_the_defaults_of_a_campaign(benchmark, which, request):
    point = request.getfixturevalue(which)

    assert {key: point[key] for key in benchmark.DEFAULTS} == benchmark.DEFAULTS


RUN = {
    "resident_fraction": 0.005, "device_bytes": 950, "bytes_read": 1000, "wall_s": 1.0, "load_s": 0.995,
    "compute_s": 0.0, "checkpoint_s": 0.0, "other_s": 0.0, "other_bytes": 4_000_000, "other_cpu": 0.4,
    "elapsed_s": 1.0, "images_per_s": 100.0, "read_mb_per_s": 95.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "stricter", "rule"),
    [
        ("resident_max", 0.004, checks.cold),
        ("device_bytes_min", 0.96, checks.device_bytes),
        ("time_error_max", 0.004, checks.time_adds_up),
        ("other_mb_per_s_max", 3.0, checks.quiet),
        ("other_cpu_max", 0.3, checks.quiet),
        (
            "peak_max",
            0.9,
            lambda run, limits: checks.below_peak(run, {"by": "b", "mb_per_s": 100.0, "bounds": True}, limits),
        ),
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
