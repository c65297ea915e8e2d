"""Data sets of HDF5 files that are objects: gotten by ranges, the same bytes as from files, and each one counted."""

import hashlib
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.data.make import make_dataset
from jobs.data.manifest import MANIFEST_NAME, scan_folder
from jobs.data.readers import Part, open_reader
from jobs.data.synthetic_hdf5 import ClimateSpec, HepSpec
from jobs.errors import DatasetError
from jobs.objects import ranges, run_objects
from jobs.objects.client import DataError, StoredObject
from tests.jobs.jobs_factory import check
from tests.jobs.objects.conftest import CREDENTIALS

OF = "tests.jobs.objects.object_jobs"
HEP = HepSpec(train_files=3, validation_files=2, samples=16, image_size=48, seed=5)
CLIMATE = ClimateSpec(files=16, height=48, width=64, seed=5)  # of 15 files 12 are for training, 1 for validation
OWN = {
    "hepcnn": {"name": "hepcnn", "shuffle": "global", "epochs": 2, "control": "none", "readers": 2, "width": 0.05,
               "learning_rate": 1e-3, "dropout": 0.2},
    "climate": {"name": "climate", "epochs": 2, "control": "none", "driver": "sec2", "channels": [0, 1, 2, 10],
                "readers": 2, "preprocess": True, "image_size": 16, "learning_rate": 1e-3, "stage": None},
}  # fmt: skip
PIECES = 5  # of a file: of hepcnn its data sets; of climate labels, and two each of fields and statistics
EXPECTED = {
    "hepcnn": ("equal_steps", "every_sample_once"),
    "climate": ("ahead_as_predicted", "equal_steps", "every_sample_once"),
}


@pytest.fixture
def put(store, tmp_path):
    """Put a folder of files below `below/it`; returns their manifest, with ETags and checksums."""

    def done(folder, listed):
        store.objects = {f"below/it/{file.name}": (folder / file.name).read_bytes() for file in listed.files}
        known = [(store.etag(key), hashlib.sha256(data).hexdigest()) for key, data in store.objects.items()]
        return replace(listed, objects=tuple(known))

    return done


@pytest.fixture
def request_of(store, put, tmp_path):
    def made(benchmark, storage=None):
        folder = tmp_path / benchmark
        listed = put(
            folder, make_dataset(folder, HEP if benchmark == "hepcnn" else CLIMATE, name=benchmark, processes=1)
        )
        (folder / MANIFEST_NAME).write_text(listed.to_json())
        settings = {
            "benchmark": OWN[benchmark], "batch_size": 8 if benchmark == "hepcnn" else 1, "seed": 1, "cache": "cold",
            "reader": "offsets", "accelerator": {"name": "emulated", "step_s": 0.0}, "checkpoint": {"name": "none"},
            "storage": {**store.storage, "prefix": "below", **(storage or {})},
            **({"threads": 2, "prefetch": 4, "iterations": None} if benchmark == "climate" else {}),
            "dataset": {"height": 48, "width": 64} if benchmark == "climate" else {},
        }  # fmt: skip
        return {
            "settings": settings, "dataset": "s3://bucket/below/it", "manifest": str(folder),
            "trace": None, "checkpoint": None, "timelog": None, "profile": None, "tensorflow": None,
        }  # fmt: skip

    return made


@pytest.mark.parametrize(("benchmark", "engine"), [("hepcnn", "async"), ("climate", "threads")])
def test_a_training_from_objects_gets_what_was_predicted_by_either_engine(benchmark, engine, request_of, store, job):
    request = request_of(benchmark, {"engine": engine, "checksum": True})

    run = job("execute", of=OF, environment=CREDENTIALS, request=request)

    assert (run["status"], run["reason"]) == ("valid", None), run
    rules = ("counts_as_predicted", "bytes_as_predicted", "complete", "same_data", *EXPECTED[benchmark])
    assert {rule: check(run, rule)["passed"] for rule in rules} == dict.fromkeys(rules, True)
    assert check(run, "cold")["passed"] is None
    ahead = run.get("bytes_ahead", 0)
    assert run["objects"]["bytes"] == run["bytes_read"] + ahead == run["bytes_predicted"] + ahead
    assert run["objects"]["concurrency"] == 2
    loads = run["loads"] if benchmark == "hepcnn" else run["train_reads"] + run["validation_reads"]
    assert run["objects"]["requests"] == PIECES * loads
    if benchmark == "hepcnn":  # where a load of objects came from is not claimed
        assert "cold_as_predicted" not in {check["rule"] for check in run["checks"]}
        assert {*run["load_list"]["resident"]} == {None}
        assert {run[f"{phase}_{end}_loads"] for phase in ("train", "validation") for end in ("cold", "warm")} == {0}
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in json.dumps(run)


@pytest.fixture
def reading(store, put, tmp_path):
    """A reader of one file with these data sets, as an object; and its source."""

    def done(**written):
        folder = tmp_path / "own"
        folder.mkdir()
        with h5py.File(folder / "a.h5", "w") as file:
            for name, (values, how) in written.items():
                file.create_dataset(name, data=values, **how)
        storage = {**store.storage, "prefix": "below", "checksum": True}
        listed = put(folder, scan_folder(folder, next(iter(written))))
        return run_objects.objects_of_dataset(storage, "s3://bucket/below/it", listed, None, 2)

    return done


@pytest.mark.parametrize("chunks", [None, (3, 2, 5)])
@pytest.mark.parametrize("engine", ["threads", "async"])
def test_ranges_give_the_bytes_of_any_plain_layout(engine, chunks, reading, store, monkeypatch):
    values = np.random.default_rng(0).random((11, 7, 9))
    monkeypatch.setattr("jobs.objects.ranges.PART_BYTES", 1000)  # several requests for a range
    parts = [Part("x"), Part("x", (0, 4, 5))]

    with reading(x=(values, {"chunks": chunks})) as objects:
        objects.engine["engine"] = engine
        with open_reader("offsets", parts, ["a.h5"], readers=1, source=objects) as reader:
            whole, some = reader.read("a.h5")

    np.testing.assert_array_equal(whole, values)
    np.testing.assert_array_equal(some, values[[0, 4, 5]])


def test_what_the_library_must_read_and_what_is_no_hdf5_is_said_with_the_address(reading, store):
    part, address = [Part("x")], "s3://bucket/below/it/a.h5"

    with reading(x=(np.zeros((100, 100)), {"compression": "gzip"})) as objects:
        with pytest.raises(DatasetError, match=f"{address}: x has the filter"):
            open_reader("offsets", part, ["a.h5"], source=objects).__enter__()
        store.objects["below/it/a.h5"] = bytes(len(store.objects["below/it/a.h5"]))
        with pytest.raises(DataError, match="the object has changed"):
            open_reader("offsets", part, ["a.h5"], source=objects).__enter__()
        store.objects.clear()
        with pytest.raises(DataError, match="is missing"):
            open_reader("offsets", part, ["a.h5"], source=objects).__enter__()


def test_an_object_that_is_no_hdf5_is_named(reading, store):
    with reading(x=(np.zeros(9), {})) as objects:
        store.objects["below/it/a.h5"] = b"junk" * 100
        objects.stored["a.h5"] = StoredObject("it/a.h5", 400, store.etag("below/it/a.h5"))
        with pytest.raises(DatasetError, match="cannot be read as HDF5"):
            open_reader("offsets", [Part("x")], ["a.h5"], source=objects).__enter__()


@pytest.mark.parametrize("engine", ["threads", "async"])
def test_a_wrong_byte_of_a_range_is_seen_by_its_checksum_after_the_clock_whichever_load_had_it(engine, reading, store):
    with reading(x=(np.random.default_rng(0).random(5000), {})) as objects:
        objects.engine["engine"] = engine
        with open_reader("offsets", [Part("x")], ["a.h5"], source=objects) as reader:
            objects.ranges.compare()
            assert objects.wrong == set()
            store.script = ["spoiled"]
            assert not reader.read("a.h5")[0].any()
            assert reader.read("a.h5")[0].any()  # loaded again, as it is
        objects.ranges.compare()

        assert objects.wrong == {"a.h5"}


def test_a_training_ends_with_the_word_for_an_object_that_changed(request_of, store, template, tmp_path):
    argument = {"request": request_of("hepcnn", {"engine": "async"}), "environment": CREDENTIALS}
    store.script = [None] * 12 + ["changed"] * 1000

    run = template.run(argument, tmp_path / "log", 60, job=f"{OF}:execute")

    assert run["status"] == "failed"
    assert "the object has changed since it was listed (ETag)" in run["end"]["words"]


SIZES = (1, 65_535, 65_536, 65_537, 200_000)
DEED = st.tuples(st.sampled_from([0, 1, 2]), st.integers(-70_000, 200_100), st.integers(0, 70_000))


@given(st.sampled_from(SIZES), st.lists(DEED, max_size=8))
def test_an_object_is_read_as_a_file_of_its_bytes_is(size, deeds):
    content = np.random.default_rng(size).bytes(size)
    plain, seen = io.BytesIO(content), []

    def read(_name, view, offset):
        assert offset + len(view) <= size
        seen.append(len(view))
        view[:] = content[offset : offset + len(view)]

    file = ranges.ObjectFile(SimpleNamespace(read=read), "x", size, "s3://b/x")
    for whence, offset, count in [(0, 0, 5), *deeds]:
        if offset + (0, plain.tell(), size)[whence] >= 0:
            assert file.seek(offset, whence) == plain.seek(offset, whence)
        assert file.read(count) == plain.read(count)

    assert (seen[0], repr(file), file.readable(), file.seekable()) == (min(size, 65_536), "s3://b/x", True, True)
