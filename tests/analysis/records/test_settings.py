import pytest

from analysis.figures.kit.panels import wrap_name
from analysis.figures.kit.storage_colours import KNOWN, look_of_storage
from analysis.records.record import emulation_bounds, emulation_mark
from analysis.records.settings import (
    describe_settings,
    distinguishing_names,
    file_name_suffixes,
    series_key,
    set_key,
    storage_labels,
)

BASE = {"benchmark": "micro", "dataset.name": "demo", "dataset.files": 512, "threads": 1, "cache": "cold"}


def named(*changes):
    keys = [set_key(series_key(BASE | change)) for change in changes]
    return [file_name_suffixes(keys)[key] for key in keys]


def test_a_lone_set_needs_no_suffix():
    assert named({}) == [""]


def test_a_suffix_holds_just_what_differs():
    assert named({"batch_size": 32}, {"batch_size": 64}) == ["batch_size-32", "batch_size-64"]
    assert named({"cache": "warm"}, {}) == ["warm", "cold"]
    assert named({"benchmark.autotune": True}, {"benchmark.autotune": False}) == ["autotune", "no-autotune"]
    assert named({"profile.posix": "trace"}, {}) == ["posix-trace", "not-profiled"]
    assert named({"benchmark_version": 1}, {"benchmark_version": 2}) == ["version-1", "version-2"]


def test_the_name_of_a_dataset_tells_all_that_comes_with_it():
    big = {"dataset.name": "big", "dataset.files": 16384, "data": "sha256:1"}

    assert named({"data": "sha256:0"}, big) == ["demo", "big"]


def test_what_only_one_benchmark_knows_is_no_part_of_a_name_nor_is_what_needs_no_telling():
    training = {"benchmark": "alexnet", "benchmark.optimizer": "adam", "accelerator.step_s": 0.18}

    assert named(training, {}) == ["alexnet", "micro"]
    assert named({"batch_size": 1, "iterations": 10}, {"batch_size": 2, "iterations": 20}) == [
        "batch_size-1",
        "batch_size-2",
    ]
    assert named({"checkpoint.name": "none"}, {"checkpoint.name": "hdd"}) == ["no-checkpoint", "checkpoint-hdd"]


def test_what_only_some_benchmarks_know_tells_no_cells_apart():
    training = BASE | {"benchmark": "alexnet", "benchmark.optimizer": "adam", "accelerator.step_s": 0.18}

    assert distinguishing_names([training, BASE]) == ["benchmark"]
    assert distinguishing_names([training, training | {"benchmark.optimizer": "sgd"}, BASE]) == [
        "benchmark",
        "benchmark.optimizer",
    ]
    assert (
        distinguishing_names([BASE, BASE | {"dataset.name": "b", "dataset.files": 9, "data": "x"}])
        == [*BASE][1:3][::-1]
    )


@pytest.mark.parametrize(("letters", "whole"), [(100, True), (101, False)])
def test_a_name_of_more_than_100_letters_is_cut_and_told_by_a_digest(letters, whole):
    long = "x" * letters

    first, _ = named({"dataset.name": long}, {"dataset.name": "y"})

    assert (first == long) is whole
    assert first[:100] == long[:100]
    assert len(first) == (100 if whole else 107)


def test_a_description_keeps_the_hyphens_of_a_value():
    facts = BASE | {"profile.tensorflow": "2-5", "checkpoint.name": "nvme-scratch"}

    assert describe_settings(facts, facts).endswith(", tensorflow 2-5, checkpoint nvme-scratch")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("tmp_scratch_research_st", ["tmp_scratch_", "research_st"]),
        ("local on node1", ["local on node1"]),
        ("abcdefghijklmnop", ["abcdefghijklmn", "op"]),
    ],
)
def test_a_long_name_is_broken_behind_an_underscore(name, lines):
    assert wrap_name(name).splitlines() == lines


def test_two_datasets_of_one_name_are_told_apart():
    assert len(set(named({"data": "sha256:0"}, {"data": "sha256:1"}))) == 2


def test_a_name_is_never_a_path_and_never_alike_but_for_case():
    made = named({"dataset.name": "../a b"}, {"dataset.name": "../A B"})

    assert not [name for name in made if "/" in name or " " in name]
    assert len({name.casefold() for name in made}) == 2


def test_threads_and_storage_share_a_figure_and_nothing_else_does():
    other = {"threads": 8, "storage.name": "hdd", "storage.root": "/hdd"}

    assert set_key(series_key(BASE)) == set_key(series_key(BASE | other))
    assert set_key(series_key(BASE)) != set_key(series_key(BASE | {"prefetch": 1}))
    assert set_key(series_key(BASE)) != set_key(series_key({**BASE, "iterations": None}))


def test_two_storages_of_one_name_are_labelled_by_what_differs():
    keys = [series_key(BASE | {"storage.name": "hdd", "storage.root": root}) for root in ("/a", "/b")]

    assert list(storage_labels(keys).values()) == ["hdd (root=/a)", "hdd (root=/b)"]
    assert list(storage_labels(keys[:1]).values()) == ["hdd"]


def test_known_storages_are_told_apart_by_colour_and_by_marker():
    assert len({each.color for each in KNOWN.values()}) == len({each.marker for each in KNOWN.values()}) == 6
    assert look_of_storage("scratch") not in KNOWN.values()


@pytest.mark.parametrize(
    ("facts", "more", "ran_on", "sizes", "told"),
    [
        ({"dataset.files": 16_384, "threads": 8, "batch_size": 64, "prefetch": 0}, (), (), (),
         "demo (16,384 files), threads 8, batch 64, prefetch 0, cold cache"),
        ({"kind": "training", "iterations": None}, ("benchmark.autotune",),
         ("gpu", "", "cpu", "gpu"), ("paper", ""),
         "demo (512 files), threads 1, one epoch, cold cache, accelerators cpu and gpu, no autotune, size paper"),
        ({"kind": "training", "iterations": 10, "accelerator.name": "emulated", "accelerator.step_s": 1.5},
         ("threads",), (), ("smoke",),
         "demo (512 files), threads 1, iterations 10, cold cache, accelerator emulated, 1.5 s a step, size smoke"),
    ],
)  # fmt: skip
def test_a_set_is_described_by_what_it_shares(facts, more, ran_on, sizes, told):
    known = BASE | {"seed": 7, "benchmark.autotune": False, "benchmark_version": 3} | facts

    assert describe_settings(known, more, ran_on, sizes) == f"dataset {told}"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"kind": "disk", "queue": 32, "average_ms": 8.33, "curve": [1], "bad": float("inf"), "by": "us"},
         "hdd is a disk model, 163 MB/s read, 80.5 writes/s, average_ms 8.33, by us, queue 32"),
        ({"queue": 32}, True), ({"kind": 5}, True), (None, True),
    ],
)  # fmt: skip
def test_an_emulated_storage_is_told_by_its_model_and_its_bounds(model, told):
    facts = {"name": "hdd", "write_iops": 80.5, "read_mb_per_s": 163.0, "read_iops": None, "model": model}

    assert emulation_mark(facts) == told
    assert emulation_bounds(facts) == ["163 MB/s read", "80.5 writes/s"]
