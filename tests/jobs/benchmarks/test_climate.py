"""Runs of `climate`: what is read, by whom, what is thrown away, and that what was predicted is what happened."""

import shutil
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from jobs.benchmarks import climate
from jobs.benchmarks.climate_data import TRAIN, VALIDATION, ClimateRules
from jobs.data.make import make_dataset
from jobs.data.manifest import scan_folder
from jobs.data.readers import READERS
from jobs.data.synthetic_hdf5 import ClimateSpec
from jobs.events import posix_window, tensorflow_trace
from jobs.events.read_time_logs import read_logs
from jobs.system import page_cache
from tests.jobs.jobs_factory import check, passed, request_of

SPEC = ClimateSpec(files=32, height=64, width=96, seed=5)  # of 31 files 24 are for training, 4 for validation
POINTS = 64 * 96
IMAGE = 4 * (4 * POINTS + POINTS + 4 * 4)
KEYS = climate.BENCHMARK.defaults["benchmark"] | {"readers": 2, "image_size": 16, "learning_rate": 1e-3}
STAGED = ("stage_s", "stage_files", "stage_bytes", "stage_found_files")
PREDICTED = (
    "counts_as_predicted", "bytes_as_predicted", "ahead_as_predicted", "equal_steps", "every_sample_once",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("climate") / "climate"
    make_dataset(folder, SPEC, name="climate", processes=1)
    page_cache.sync_file_system(folder)
    return folder


@pytest.fixture
def run(template, made, tmp_path):
    """Run it once in a fresh process; a change goes where its key belongs."""

    def one(folder=made, accelerator=("emulated", 0.0), log=None, dataset=None, **changes):
        own = {key: value for key, value in changes.items() if key in KEYS}
        settings = {
            "benchmark": KEYS | own, "batch_size": 1, "prefetch": 4, "threads": 2, "iterations": None, "seed": 1,
            "cache": "cold", "reader": "offsets", "dataset": dataset or {"height": 64, "width": 96},
            "accelerator": dict(zip(("name", "step_s"), accelerator, strict=True)),
            **{key: value for key, value in changes.items() if key not in KEYS},
        }  # fmt: skip
        kept = {"profile": str(tmp_path / "calls.npz"), "tensorflow": str(tmp_path / "steps.npz")}
        request = request_of(folder, settings, timelog=log and str(log), **kept)
        return template.run(request, tmp_path / "run.log", 100)

    return one


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_reads_what_was_predicted_cold(run, reader, made, tmp_path, disk):
    figures = run(reader=reader, log=tmp_path / "a.timelog", epochs=2)

    assert (figures["status"], figures["reason"]) == ("valid", None), figures
    proofs = (*PREDICTED, "cold", "device_bytes", "complete", "same_data", "time_adds_up")
    assert {rule: passed(figures)[rule] for rule in proofs} == dict.fromkeys(proofs, True)
    assert (figures["train_images"], figures["validation_images"], figures["images_asked"]) == (48, 8, 56)
    assert figures["bytes_read"] == 56 * IMAGE
    # What the kernel says, and the logs of who read.
    assert 28 * IMAGE <= figures["device_bytes"] < 2 * 28 * (17 * POINTS * 4 + 16_384)
    log, _ = read_logs(sorted(tmp_path.glob("a.timelog*")))
    reads = log.events.with_words("kind", "read")
    assert reads["bytes"].sum() == figures["bytes_read"] + figures["bytes_ahead"] == 56 * IMAGE
    by = reads.texts("phase")
    names, rules = sorted(path.name for path in made.glob("data-*.h5")), ClimateRules(31, 1, 0, 2, 1, None, 1)
    for phase in (TRAIN, VALIDATION):
        read = {Path(file).name for file, its in zip(reads.texts("file"), by, strict=True) if its == phase}
        assert read == {names[file] for file in rules.share(phase)}
    assert (by.count("train"), by.count("validation"), {*reads["epoch"].tolist()}) == (48, 8, {0, 1})
    processes = reader in ("h5py_pool", "h5py_shared")
    assert len(list(tmp_path.glob("a.timelog*"))) == 1 + 2 * processes
    assert ("readers_cpu_s" in figures) == processes


def test_profiles_see_each_file_that_is_read_and_what_each_step_did(run, tmp_path):
    asked = {"posix": "trace", "every": 10, "tensorflow": "all"}
    figures = run(profile=asked, reader="h5py_threads", iterations=12, epochs=2)

    assert (passed(figures)["profile_complete"], passed(figures)["time_adds_up"]) == (True, True), figures
    assert (figures["tensorflow"]["error"], figures["tensorflow"]["steps"]) == (None, 24)
    seen = tensorflow_trace.read_trace(tmp_path / "steps.npz").events
    in_order = seen.selected(np.argsort(seen["start"], kind="stable")).rows("name", "start", "end")
    marks = [(seen.words["name"][name], start, end) for name, start, end in in_order]
    marks = [each for each in marks if each[0].startswith("campaign ")]
    assert {name for name, *_ in marks} == {f"campaign {part}" for part in ("next", "compute", "validate", "other")}
    assert all(one[2] <= other[1] for one, other in pairwise(marks)), "one lies in another"
    window = posix_window.read_window(tmp_path / "calls.npz")
    opened = {Path(path).name for path, each in window.files.items() if each["POSIX_OPENS"]}
    assert (len(opened), len(window.marks)) == (28, 2)  # all of both phases; 24 steps
    assert figures["profile"]["bytes_read"] >= 28 * IMAGE


def test_what_is_read_ahead_is_told_and_thrown_away(run):
    """NERSC's runs consumed 9 images and read 29, with 16 kept ready and four calls."""
    few = run(iterations=3, epochs=2, prefetch=4, accelerator=("emulated", 0.02))

    assert passed(few)["ahead_as_predicted"] is True, few
    assert few["train_images"] == 6 < few["train_reads"] <= 6 + 4 + 2
    assert (few["images"], few["images_ahead"]) == (14, few["train_reads"] - 6)
    assert few["bytes_ahead"] == few["images_ahead"] * IMAGE


def test_a_driver_that_takes_the_whole_file_fetches_more_than_is_asked_for(run, disk):
    core, one = (
        run(reader="h5py_threads", driver=driver, preprocess=False, channels=channels)
        for driver, channels in (("core", [0, 1, 2, 10]), ("sec2", [15]))
    )
    every = run(channels=None)

    whole = 28 * 17 * POINTS * 4
    assert core["bytes_read"] == 28 * IMAGE
    assert core["device_bytes"] >= whole
    assert [each["bytes_read"] for each in (every, one)] == [
        28 * 4 * (17 * POINTS + 16 * 4), 28 * 4 * (2 * POINTS + 4),
    ]  # fmt: skip
    assert {each["status"] for each in (core, every, one)} == {"valid"}


@pytest.mark.parametrize("control", ["no_io", "no_compute", "metadata"])
def test_a_control_leaves_out_what_it_says(run, control, tmp_path):
    figures = run(control=control, log=tmp_path / "a.timelog", accelerator=("emulated", 0.001))

    assert figures["status"] == "valid", figures
    assert figures["images"] == 28
    log, _ = read_logs([tmp_path / "a.timelog"])
    done = {log.actions[code] for code in {*log.events["kind"].tolist()}}
    assert ("compute" in done, figures["compute_s"] > 0) == (control != "no_compute",) * 2
    assert ("open" in done) == (control != "no_io")
    assert figures["bytes_read"] == (28 * IMAGE if control == "no_compute" else 0)
    assert ("cold" in passed(figures)) == (control == "no_compute")


def test_copies_on_a_fast_storage_are_what_a_staged_run_reads(run, made, disk, tmp_path):
    (disk / "fast").mkdir()

    figures = run(stage=str(disk / "fast"), log=tmp_path / "a.timelog")

    assert (figures["status"], figures["reason"]) == ("valid", None), figures
    proofs = (*PREDICTED, "cold", "device_bytes", "same_data", "staged_cold")
    assert {rule: passed(figures)[rule] for rule in proofs} == dict.fromkeys(proofs, True)
    log, _ = read_logs([tmp_path / "a.timelog"])
    stage, read = (log.events.with_words("kind", action) for action in ("stage", "read"))
    names = [Path(name) for name in {*read.texts("file")}]
    assert len(names) == figures["stage_files"] == 28
    assert all(name.is_relative_to(disk / "fast") for name in names)
    assert stage["bytes"].sum() == figures["stage_bytes"] == sum((made / name.name).stat().st_size for name in names)
    assert not [path for path in (disk / "fast").rglob("*") if not path.is_dir()]


def test_what_ranks_have_staged_is_added_up_and_took_as_long_as_the_last():
    ranks = [dict(zip(STAGED, values, strict=True)) for values in ((2.0, 3, 4_000_000, 0), (4.0, 2, 1_000_000, 1))]

    whole = climate.BENCHMARK.combined_metrics(ranks)

    assert [whole[key] for key in STAGED] == [4.0, 5, 5_000_000, 1]
    assert whole["stage_mb_per_s"] == 1.25
    assert climate.BENCHMARK.combined_metrics([{}, {}]) == {}


def test_a_users_own_files_are_read_by_the_name_of_their_data_set(run, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    for number in range(12):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file["group/x"] = np.full((3, 5), number, "f8")
    (folder / "manifest.json").write_text(scan_folder(folder, "group/x").to_json(), encoding="utf-8")

    figures = run(folder, dataset={"name": "folder", "path": str(folder), "hdf5": "group/x"}, channels=[0, 2])

    assert (figures["status"], figures["reason"]) == ("valid", None), figures
    assert figures["bytes_read"] == figures["images"] * 2 * 5 * 8 > 0


@pytest.mark.parametrize("what", ["garbage", "smaller"])
def test_a_file_that_is_not_as_the_others_is_named(run, made, tmp_path, what):
    folder = shutil.copytree(made, tmp_path / "odd")
    names = sorted(path.name for path in folder.glob("data-*.h5"))
    odd = folder / names[ClimateRules(31, 1, 0, 1, 1, None, 1).share(TRAIN)[3]]
    if what == "garbage":
        odd.write_bytes(b"no HDF5")
    else:
        with h5py.File(odd, "r+") as file:
            del file["climate/labels"]
            file["climate/labels"] = np.zeros((3, 3), "<f4")

    figures = run(folder, reader="h5py_threads", epochs=3)

    assert figures["status"] == "failed"
    assert odd.name in figures["reason"], figures["reason"]


@pytest.mark.long
def test_a_real_network_learns_and_repeats_itself(run):
    first, other, larger, slower = (
        run(accelerator=("cpu", None), epochs=3, **change)
        for change in ({}, {}, {"image_size": 32}, {"learning_rate": 1e-5})
    )

    assert first["status"] == "valid", first
    assert first["step_loss"] == other["step_loss"] != larger["step_loss"]
    assert np.mean(first["step_loss"][-24:]) < np.mean(slower["step_loss"][-24:])
    assert check(first, "equal_weights")["message"] == check(other, "equal_weights")["message"]
