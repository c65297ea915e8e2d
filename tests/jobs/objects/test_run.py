"""A run on objects: the same images as from files, and nothing that went wrong is left out."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from jobs.benchmarks import baseline
from jobs.data import manifest
from jobs.errors import EngineError
from jobs.objects.client import Client
from tests.jobs.jobs_factory import check, make_request
from tests.jobs.objects.conftest import CREDENTIALS
from tests.jobs.objects.fake_store import BUSY, DENIED

OF = "tests.jobs.objects.object_jobs"


@pytest.fixture
def request_of(store, shared_images, tmp_path):
    """A request for these images in the store; what is changed goes where its key belongs."""

    def made(storage=None, **changes):
        store.objects = {f"below/it/{path.name}": path.read_bytes() for path in shared_images.iterdir()}
        request = make_request(shared_images, tmp_path / "held", **changes)
        listed = manifest.load_manifest(tmp_path / "held")
        objects = tuple((store.etag(f"below/it/{file.name}"), None) for file in listed.files)
        (tmp_path / "held" / manifest.MANIFEST_NAME).write_text(replace(listed, objects=objects).to_json())
        request["settings"]["storage"] = {**store.storage, "prefix": "below", **(storage or {})}
        return {**request, "dataset": "s3://bucket/below/it"}

    return made


@pytest.mark.parametrize("engine", ["threads", "async"])
def test_objects_give_the_pixels_that_files_give_by_either_engine(engine, request_of, job, shared_images, tmp_path):
    of_files = make_request(shared_images, tmp_path / "files")

    found = [
        job("pixels", of=OF, environment=CREDENTIALS, request=request)
        for request in (of_files, request_of({"engine": engine}))
    ]

    assert len(found[0]) == 24
    assert found[0] == found[1]


@pytest.mark.parametrize(("engine", "preprocess"), [("threads", True), ("async", False)])
def test_a_run_on_objects_counts_its_requests_and_retries_and_says_what_it_cannot_prove(
    engine, preprocess, request_of, store, job
):
    request = request_of({"engine": engine, "concurrency": 3 if engine == "async" else None}, preprocess=preprocess)
    store.script = [None, (503, "SlowDown"), "close"]

    run = job("execute", of=OF, environment=CREDENTIALS, request=request)

    assert (run["status"], run["images"], run["image_errors"]) == ("valid", 24, 0)
    assert run["bytes_read"] == sum(map(len, store.objects.values())) == run["listed_bytes"] == run["objects"]["bytes"]
    assert len(store.gets) == run["objects"]["requests"] + run["objects"]["retries"] == 24 + 2
    assert run["objects"]["errors"] == {"503": 1, "closed": 1}
    assert 0 < run["objects"]["first_byte_s"]["p50"] <= run["objects"]["first_byte_s"]["max"]
    assert run["objects"]["concurrency"] == (3 if engine == "async" else 2)
    assert check(run, "cold")["passed"] is None
    assert "cannot be seen from here" in check(run, "cold")["message"]
    assert check(run, "same_data")["passed"]
    assert check(run, "time_adds_up")["passed"]
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in json.dumps(run)


@pytest.mark.parametrize(("access", "readers"), [("read", 1), ("random_read", 3)])
def test_a_baseline_of_an_object_says_how_many_read_it(access, readers, store):
    benchmark = {"access": access, "engine": "auto", "seconds_max": 1.0}
    settings = {"storage": store.storage, "benchmark": benchmark, "threads": 3, "seed": 0}
    asked = {"file": "photos/01.jpg", "file_bytes": 1001, "block_bytes": 1001, "raw": None}

    with baseline.begin_run({"settings": settings, "baseline": asked}) as work:
        assert work.source.engine == {"engine": "threads", "concurrency": readers}


@pytest.fixture
def put_request(store, monkeypatch):
    """A request to put eight objects of 1 MiB by three writers."""
    benchmark = {"name": "baseline", "access": "write", "engine": "auto", "file_mb": 8, "transfer_mib": 1}
    settings = {"storage": store.storage, "benchmark": benchmark, "threads": 3, "cache": "cold"}
    asked = {"file": "baseline/written-x.bin", "file_bytes": 8 << 20, "block_bytes": 1 << 20, "raw": None}
    return {"settings": settings, "baseline": asked, "trace": None}


def test_a_baseline_puts_objects_sees_them_listed_and_removes_only_its_own(put_request, store, job):
    store.objects["baseline/written-x.bin/000001"] = b"of a run that was killed"
    store.script, before = [BUSY], {key: data for key, data in store.objects.items() if "written" not in key}

    run = job("execute", of=OF, environment=CREDENTIALS, request=put_request)

    assert (run["status"], run["reason"], run["requests"], run["bytes_written"]) == ("valid", None, 8, 8 << 20), run
    assert run["write_mb_per_s"] > 0
    assert (run["objects"]["concurrency"], run["objects"]["errors"]) == (3, {"503": 1})
    assert check(run, "reached_device")["passed"] is None  # the store's disk is elsewhere
    assert store.objects == before


def test_objects_that_are_not_listed_as_they_were_put_fail_the_run(put_request, store, monkeypatch):
    monkeypatch.setattr(Client, "put", lambda *_: None)

    with (
        baseline.begin_run(put_request) as work,
        pytest.raises(EngineError, match="the store lists 0 objects of 0 bytes"),
    ):
        work.measure(nullcontext())


def test_an_object_that_changed_makes_the_run_invalid_by_name(request_of, store, job):
    request = request_of()
    store.objects["below/it/003.jpg"] = store.objects["below/it/004.jpg"]

    run = job("execute", of=OF, environment=CREDENTIALS, request=request)

    assert (run["status"], run["images"]) == ("invalid", 23)
    assert [bad["file"] for bad in run["unreadable"]] == run["changed"] == ["003.jpg"]
    assert (run["objects"]["requests"], run["objects"]["errors"]) == (24, {"wrong data": 2})
    assert len(store.gets) > 24 + 1  # what was dropped was asked for again, when the run was over


def test_a_store_that_refuses_ends_the_run_with_its_word(request_of, store, template, tmp_path):
    store.script = [DENIED] * 100
    argument = {"request": request_of(), "environment": CREDENTIALS}

    run = template.run(argument, tmp_path / "log", 60, job=f"{OF}:execute")

    assert run["status"] == "failed"
    assert "access denied" in run["end"]["words"]
    assert len(store.gets) <= 4  # what was under way


def test_a_thread_of_a_pipeline_keeps_its_state_in_the_interpreter_between_two_calls(job):
    calls = job("calls_of_threads", of=OF)

    assert calls
    assert all(counted == list(range(len(counted))) for counted in calls)
    assert max(map(len, calls)) > 1
