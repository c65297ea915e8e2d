"""Runs of `hepcnn`: what is loaded, from where, and that what was predicted is what happened."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from campaign.worker import runner
from jobs.benchmarks import hepcnn
from jobs.data import staged_copies
from jobs.data.make import make_dataset
from jobs.data.manifest import load_manifest
from jobs.data.synthetic_hdf5 import HepSpec
from jobs.events import posix_window
from jobs.events.read_time_logs import read_logs
from jobs.events.time_log import PHASES
from jobs.system import page_cache
from tests.jobs.jobs_factory import DEAF, check, judged, passed, request_of

SPEC = HepSpec(train_files=4, validation_files=3, samples=16, image_size=64, seed=5)
KEYS = hepcnn.BENCHMARK.defaults["benchmark"] | {"epochs": 3, "width": 0.05, "dropout": 0.2}
PREDICTED = ("counts_as_predicted", "bytes_as_predicted", "cold_as_predicted", "equal_steps", "every_sample_once")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hep") / "hep"
    make_dataset(folder, SPEC, name="hep", processes=1)
    page_cache.sync_file_system(folder)
    return folder


@pytest.fixture
def run(template, made, tmp_path):
    """Run it once in a fresh process; a change goes where its key belongs."""

    def one(
        folder=made, accelerator=("emulated", 0.0), profile=None, saved=({"name": "none"}, None), staged=None, **changes
    ):
        own = {key: value for key, value in changes.items() if key in KEYS}
        settings = {
            "benchmark": KEYS | own, "batch_size": 8, "seed": 1, "cache": "cold", "reader": "h5py_threads",
            "accelerator": dict(zip(("name", "step_s"), accelerator, strict=True)),
            "checkpoint": saved[0], **({"profile": {"posix": "trace"}} if profile else {}),
            **{key: value for key, value in changes.items() if key not in KEYS},
        }  # fmt: skip
        kept = {"profile": profile and str(profile), "timelog": str(tmp_path / "a.timelog")}
        request = request_of(folder, settings, checkpoint=saved[1], staged=staged, **kept)
        return template.run(request, tmp_path / "run.log", 100)

    return one


def test_loads_bytes_and_cold_reads_are_those_that_were_predicted(run, made, tmp_path):
    figures = run()

    assert (figures["status"], figures["reason"]) == ("valid", None), figures
    assert {rule: passed(figures)[rule] for rule in PREDICTED} == dict.fromkeys(PREDICTED, True)
    # Three epochs of four files, and a pass over three files behind each of two epochs that end.
    found = figures["load_list"]
    assert (found["phase"].count("train"), found["phase"].count("validation")) == (12, 7)
    assert [figures[f"{phase}_cold_loads"] for phase in ("train", "validation")] == [4, 3]
    sizes = {phase: samples * (3 * 64 * 64 * 4 + 16) for phase, samples in (("train", 16), ("validation", 2))}
    assert figures["bytes_read"] == sum(sizes[phase] for phase in found["phase"])
    # What the kernel says of each load, which nothing here has counted.
    # It counts what a process reads of its own code, too, which on a busy machine may be out of memory.
    fetched = [count >= sizes[phase] for phase, count in zip(found["phase"], found["device_bytes"], strict=True)]
    assert fetched == [resident == 0.0 for resident in found["resident"]]
    assert (figures["images"], figures["images_asked"], len(figures["step_load_s"])) == (192, 192, 24)


def test_files_that_have_copies_are_read_from_these(run, made, tmp_path):
    copy, listed = tmp_path / "fast/train/train_0001.h5", tmp_path / "all.json"
    copy.parent.mkdir(parents=True)
    shutil.copy2(made / "train/train_0001.h5", copy)
    page_cache.sync_file_system(copy.parent)
    size, changed = staged_copies.file_identity(copy)
    told = {"source": str(made), "copies": str(tmp_path / "fast"), "root": str(tmp_path)}
    files = [["train/train_0001.h5", size, changed]]
    listed.write_text(json.dumps({"schema": staged_copies.SCHEMA, **told, "files": files}))

    figures = run(staged=str(listed))

    assert figures["status"] == "valid", figures
    assert {rule: passed(figures)[rule] for rule in PREDICTED} == dict.fromkeys(PREDICTED, True)
    read = {Path(name) for name in read_logs([tmp_path / "a.timelog"])[0].events.words["file"]}
    assert {path for path in read if path.parent.name == "train"} == {
        copy, *(made / f"train/train_{number:04d}.h5" for number in (0, 2, 3))
    }  # fmt: skip


@pytest.mark.long
def test_the_calls_that_the_profiler_saw_are_the_loads(run, made, tmp_path):
    figures = run(profile=tmp_path / "calls.npz", shuffle="none", epochs=2)

    assert passed(figures)["profile_complete"] is True
    window = posix_window.read_window(tmp_path / "calls.npz")
    counts = zip(window.paths, window.counters["opens"].tolist(), strict=True)
    seen = {Path(path).name: count for path, count in counts if path.endswith(".h5")}
    names = {"train": "train_{:04d}.h5", "validation": "validation_{:04d}.h5"}
    told = figures["load_list"]
    loads = [names[phase].format(file) for phase, file in zip(told["phase"], told["file"], strict=True)]
    # For each one the page cache is looked at; then the file is opened by us, and by HDF5 through its descriptor.
    assert seen == {name: 3 * loads.count(name) for name in {*loads}}


def test_the_time_log_has_the_true_epochs_and_phases(run, tmp_path):
    figures = run()

    log, _ = read_logs([tmp_path / "a.timelog"])
    events = log.events
    loads = events.with_words("kind", "load")
    told = figures["load_list"]
    phases = [PHASES.index(phase) for phase in told["phase"]]
    found = sorted(zip(loads["phase"].tolist(), loads["epoch"].tolist(), strict=True))
    assert found == sorted(zip(phases, told["epoch"], strict=True))
    reads = events.with_words("kind", "read")
    assert reads["bytes"].sum() == figures["bytes_read"]
    assert {log.actions[code] for code in {*events["kind"].tolist()}} == {
        "open", "read", "load", "shuffle", "next", "compute", "validate",
    }  # fmt: skip
    assert figures["timelog"] == "a.timelog"


@pytest.mark.long
def test_nothing_is_read_without_io_and_nothing_computed_without_compute(run):
    no_io, no_compute = run(control="no_io"), run(control="no_compute")

    assert (no_io["bytes_read"], no_io["loads"], no_io["images"]) == (0, 0, 192)
    assert passed(no_io).keys().isdisjoint({"cold", "cold_as_predicted", "same_data"})
    assert no_io["status"] == no_compute["status"] == "valid"
    assert (no_compute["compute_s"], no_compute["step_loss"]) == (0, [])
    assert no_compute["loads"] == 19


@pytest.mark.long
def test_a_real_network_learns_and_repeats_itself(run, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "told")
    for path in folder.rglob("*.h5"):
        with h5py.File(path, "r+") as file:  # a signal that a network of five filters finds
            file["data"][:] = file["label"][:][:, None, None, None] * np.float32(1)
    sizes = {entry.name: (folder / entry.name).stat().st_size for entry in load_manifest(folder).files}
    assert sizes == {entry.name: entry.size for entry in load_manifest(folder).files}

    first = run(folder, ("cpu", None), epochs=20, learning_rate=0.02, dropout=0.0)
    other = run(folder, ("cpu", None), epochs=20, learning_rate=0.02, dropout=0.0)

    assert first["status"] == "valid", first
    assert first["step_loss"][0] == pytest.approx(np.log(2), rel=1e-3)
    assert np.mean(first["step_loss"][-8:]) < 0.35
    assert passed(first)["equal_weights"] is True
    assert first["step_loss"] == other["step_loss"]
    assert check(first, "equal_weights")["message"] == check(other, "equal_weights")["message"]


def _on_two_ranks(template, made, tmp_path, sync):
    settings = {
        "benchmark": KEYS | {"epochs": 1, "dropout": 0.0}, "batch_size": 8, "seed": 1, "cache": "as_is",
        "reader": "h5py_threads", "accelerator": {"name": "cpu", "step_s": None}, "checkpoint": {"name": "none"},
        "nodes": 2, "sync": sync, "storage": {"root": str(made.parent)},
    }  # fmt: skip
    request = request_of(made, settings, limits={**DEAF, "time_error_max": 5.0}, timelog=str(tmp_path / "a.timelog"))
    conduct = {"ranks_timeout_s": 60, "run_timeout_s": 100}

    return judged(runner.run_on_ranks(runner.local_ranks(template, 2), request, tmp_path / "run.log", conduct), request)


@pytest.mark.long
def test_ranks_that_add_nothing_up_need_not_have_the_same_weights(template, made, tmp_path):
    found = _on_two_ranks(template, made, tmp_path, "barrier")

    assert (found["status"], found["reason"]) == ("valid", None)
    assert "equal_weights" not in passed(found)


@pytest.mark.long
def test_ranks_that_add_gradients_up_at_the_hub_have_the_same_weights_and_repeat_them(template, made, tmp_path):
    runs = [_on_two_ranks(template, made, tmp_path, "allreduce") for _ in range(2)]

    assert [(found["status"], found["reason"]) for found in runs] == [("valid", None)] * 2
    assert [passed(found)["equal_weights"] for found in runs] == [True, True]
    assert check(runs[0], "equal_weights")["message"] == check(runs[1], "equal_weights")["message"]


@pytest.mark.long
def test_a_warm_cache_has_no_cold_loads(run):
    warm = run(cache="warm", epochs=1)

    assert (passed(warm)["cold_as_predicted"], warm["train_cold_loads"]) == (True, 0)


def test_a_file_with_other_samples_or_none_is_named(run, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "odd")
    with h5py.File(folder / "train" / "train_0002.h5", "r+") as file:
        del file["label"]
        file["label"] = np.zeros(3, "<i4")

    figures = run(folder)

    assert figures["status"] == "failed"
    assert "train_0002.h5" in figures["reason"]


@pytest.mark.long
def test_snapshots_of_the_network_are_saved(run, tmp_path):
    target = {"name": "local", "root": str(tmp_path), "every": 12, "keep": 5, "mode": "sync", "in_flight": 1}
    asked = {"folders": [str(tmp_path / "saved")], "drain_timeout_s": 10.0, "leave": True}

    figures = run(saved=(target, asked))

    assert (figures["status"], figures["reason"]) == ("valid", None), figures
    assert [line["verified"] for line in figures["checkpoints"]] == [True, True]
    filters = 6
    parameters = 9 * (3 + 4 * filters) * filters + 5 * filters + 2 * filters + 2
    assert all(line["bytes"] >= 12 * parameters for line in figures["checkpoints"])
