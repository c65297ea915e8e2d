import pytest

from analysis.figures.kit.storage_colours import KNOWN, look_of_storage
from analysis.records.record import emulation_bounds, emulation_mark
from analysis.records.settings import (
    describe_settings,
    file_name_suffixes,
    series_key,
    set_key,
    storage_labels,
)

BASE = {"benchmark": "micro", "dataset.name": "demo", "dataset.files": 512, "threads": 1, "cache": "cold"}


def named(*changes):
    keys = [set_key(series_key(BASE | change)) for change in changes]
    return [file_name_suffixes(keys)[key] for key in keys]


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
