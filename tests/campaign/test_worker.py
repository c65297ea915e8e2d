from __future__ import annotations

import json

import pytest
from fake_template import FakeTemplate, failed, figures, invalid

from campaign import record
from campaign.worker import Worker, WorkerStoppedError, lock_path


@pytest.fixture
def work(cells, tmp_path):
    """A work list for three cells."""
    made, conduct = cells
    root = tmp_path / "data"
    root.mkdir()
    dataset = {"path": str(root), "manifest": str(root), "lock": str(lock_path(root, tmp_path)), "checksum": "c"}
    return {
        "token": "first",
        "words": ["-m", "threads=1,2,4"],
        "conduct": conduct,
        "cells": [
            {
                "id": cell.id, "benchmark": cell.benchmark, "version": cell.version, "settings": cell.settings,
                "dataset": dataset, "position": position, "missing": 5,
            }
            for position, cell in enumerate(made)
        ],
    }  # fmt: skip


def _walk(folder, work, *answers):
    template = FakeTemplate(*answers)
    Worker(folder, work, template).walk()
    return template, [record.read(folder.record(item["id"])) for item in work["cells"]]


def test_each_cell_gets_its_warm_up_and_its_measured_runs(folder, work):
    template, records = _walk(folder, work)

    assert len(template.asked) == 18
    for recorded in records:
        assert recorded["status"] == "done"
        assert [run["role"] for run in recorded["runs"]] == ["warmup", *["measured"] * 5]
        assert [run["run"] for run in recorded["runs"]] == [0, 1, 2, 3, 4, 5]


def test_the_run_is_asked_for_what_the_cell_says(folder, work):
    work["conduct"]["run_timeout_s"] = 77

    template, _ = _walk(folder, work)

    argument, log, timeout_s = template.asked[0]
    assert argument["settings"] == work["cells"][0]["settings"]
    assert argument["limits"] == work["conduct"]["checks"]
    assert log == folder.cell(work["cells"][0]["id"]) / "run-0.log"
    assert timeout_s == 77


def test_the_record_is_on_disk_before_during_and_after_each_run(folder, work):
    seen = []
    path = folder.record(work["cells"][0]["id"])

    class Looking(FakeTemplate):
        def run(self, *request):
            seen.append([run["status"] for run in record.read(path)["runs"]])
            return super().run(*request)

    work["cells"] = work["cells"][:1]
    Worker(folder, work, Looking()).walk()

    assert seen[:3] == [["running"], ["valid", "running"], ["valid", "valid", "running"]]


def test_a_failed_run_takes_nothing_else_down(folder, work):
    _, records = _walk(folder, work, figures(), failed())

    assert [run["status"] for run in records[0]["runs"]] == ["valid", "failed", "valid", "valid", "valid", "valid"]
    assert records[0]["runs"][1]["log_tail"] == "the last words"
    assert [recorded["status"] for recorded in records] == ["done"] * 3


def test_a_cell_is_given_up_after_two_failures_in_a_row_and_the_next_one_runs(folder, work):
    _, records = _walk(folder, work, failed(), failed())

    assert [recorded["status"] for recorded in records] == ["failed", "done", "done"]
    assert len(records[0]["runs"]) == 2
    assert "killed by signal 9" in records[0]["reason"]


def test_invalid_runs_are_kept_and_do_not_end_a_cell(folder, work):
    _, records = _walk(folder, work, *[invalid()] * 6)

    assert records[0]["status"] == "invalid"
    assert len(records[0]["runs"]) == 6


def test_a_stopped_worker_keeps_what_was_measured_and_tells_of_the_run_under_way(folder, work):
    with pytest.raises(WorkerStoppedError):
        _walk(folder, work, figures(), figures(), WorkerStoppedError())

    recorded = record.read(folder.record(work["cells"][0]["id"]))
    assert [run["status"] for run in recorded["runs"]] == ["valid", "valid", "failed"]
    assert "stopped" in recorded["runs"][2]["reason"]
    assert recorded["status"] == "running"


def test_a_second_sitting_warms_up_again_and_adds_only_what_is_missing(folder, work):
    work["cells"] = work["cells"][:1]
    with pytest.raises(WorkerStoppedError):
        _walk(folder, work, figures(1), figures(2), figures(3), WorkerStoppedError())
    again = {**work, "token": "second", "cells": [{**work["cells"][0], "missing": 3}]}

    _, (recorded,) = _walk(folder, again)

    roles = [(run["role"], run["status"]) for run in recorded["runs"]]
    assert roles == [
        ("warmup", "valid"), ("measured", "valid"), ("measured", "valid"), ("measured", "failed"),
        ("warmup", "valid"), ("measured", "valid"), ("measured", "valid"), ("measured", "valid"),
    ]  # fmt: skip
    assert [run["token"] for run in recorded["runs"]] == ["first"] * 4 + ["second"] * 4
    assert recorded["status"] == "done"


def test_a_run_that_a_killed_worker_left_open_is_told_as_interrupted(folder, work):
    work["cells"] = work["cells"][:1]
    _walk(folder, work)
    path = folder.record(work["cells"][0]["id"])
    killed = record.read(path)
    record.begin_run(killed, "measured", "first")
    record.write(path, killed)

    _, (recorded,) = _walk(folder, {**work, "cells": [{**work["cells"][0], "missing": 1}]})

    assert recorded["runs"][6]["reason"].startswith("interrupted")


def test_redo_measures_anew_and_loses_nothing(folder, work):
    work["cells"] = work["cells"][:1]
    _walk(folder, work, *[figures(111)] * 6)
    work["conduct"]["redo"] = True

    _, (recorded,) = _walk(folder, work, *[figures(222)] * 6)

    (old,) = folder.cell(work["cells"][0]["id"]).glob("superseded-*/record.json")
    assert [run["images_per_s"] for run in recorded["runs"]] == [222] * 6
    assert [run["images_per_s"] for run in json.loads(old.read_text())["runs"]] == [111] * 6


def test_a_damaged_record_is_set_aside_and_the_cell_measured_anew(folder, work):
    work["cells"] = work["cells"][:1]
    path = folder.record(work["cells"][0]["id"])
    path.parent.mkdir(parents=True)
    path.write_text("{damaged")

    _, (recorded,) = _walk(folder, work)

    (old,) = path.parent.glob("damaged-*/record.json")
    assert old.read_text() == "{damaged"
    assert recorded["status"] == "done"


def test_no_warm_up_where_none_is_asked_for(folder, work):
    work["conduct"]["warmup_runs"] = 0

    _, records = _walk(folder, work)

    assert [run["role"] for run in records[0]["runs"]] == ["measured"] * 5


def test_a_read_only_storage_is_locked_in_the_campaign_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("campaign.worker.os.access", lambda *_: False)

    assert lock_path(tmp_path / "root", tmp_path / "results").parent == tmp_path / "results"


def test_the_wait_for_the_storage_is_in_the_record(folder, work, monkeypatch):
    class Held:
        def __init__(self, path, mode):
            assert (str(path), mode) == (work["cells"][0]["dataset"]["lock"], 0o666)

        def __enter__(self):
            clock[0] += 12.5

        def __exit__(self, *_):
            return None

    clock = [0.0]
    monkeypatch.setattr("campaign.worker.FileLock", Held)
    monkeypatch.setattr("campaign.worker.time.perf_counter", lambda: clock[0])

    _, records = _walk(folder, work)

    assert records[0]["runs"][0]["lock_wait_s"] == 12.5


def test_the_provenance_stands_in_the_record(folder, work):
    _, records = _walk(folder, work)

    provenance = records[0]["provenance"]
    assert provenance["versions"]["tensorflow"][0].isdigit()
    assert provenance["mount"]["fstype"]
    assert provenance["started_utc"] < provenance["finished_utc"]
    assert records[0]["campaign"] == {
        "token": "first", "words": ["-m", "threads=1,2,4"], "position": 0, "order_seed": 0
    }  # fmt: skip
