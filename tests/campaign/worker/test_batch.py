from __future__ import annotations

import json

import pytest

from campaign.errors import EnvironmentFaultError
from campaign.worker import batch as batches
from campaign.worker.batch import Batch

UTC = "2026-11-21T09:00:00.000Z"
LATER = "2026-11-21T10:00:00.000Z"


@pytest.fixture
def made(folder):
    """A function that makes and saves a batch."""

    def make(name="first-0", cells=(("a", "b"), ("c",)), utc=UTC, **more):
        lists = [list(worker) for worker in cells]
        made = Batch(folder.workers / name, "slurm", name.partition("-")[0], "tfio-first", lists, utc, **more)
        made.save()
        return made

    return make


def test_a_batch_is_found_again_as_it_was_saved(folder, made):
    one, other = made(job_id="77"), made("second-0", utc=LATER, refused="invalid partition")

    assert batches.read_all(folder) == [one, other]


def test_batches_come_back_oldest_first_whatever_their_names(folder, made):
    late, early, next_to_it = made("a-0", utc=LATER), made("b-0"), made("b-1")

    assert batches.read_all(folder) == [early, next_to_it, late]


def test_batches_of_one_submission_come_back_in_their_order(folder, made):
    tenth, ninth = made("a-10"), made("a-9")

    assert batches.read_all(folder) == [ninth, tenth]


def test_a_campaign_that_was_never_started_has_no_batches(folder):
    assert batches.read_all(folder) == []


def test_a_cell_belongs_to_the_worker_that_had_it_last(made):
    early, late = made(), made("second-0", cells=(("d",), ("b",)), utc=LATER)

    found = {cell: (batch, index) for cell, batch, index in batches.latest([early, late])}

    assert found == {"a": (early, 0), "b": (late, 1), "c": (early, 1), "d": (late, 0)}


def test_a_batch_is_private_to_its_owner(made):
    assert made().folder.stat().st_mode & 0o777 == 0o700


def test_how_workers_ended_is_kept_and_what_was_known_first_stands(folder, made):
    made().save_ends({0: "Slurm: NODE_FAIL"})
    (again,) = batches.read_all(folder)
    again.save_ends({0: "Slurm: LOST", 1: "done"})

    (found,) = batches.read_all(folder)

    assert found.ended == {0: "Slurm: NODE_FAIL", 1: "done"}
    assert found.open_workers() == []


def test_no_end_is_no_file(made):
    batch = made()

    batch.save_ends({})

    assert not (batch.folder / "ended.json").exists()


def test_saving_a_batch_anew_does_not_forget_how_its_workers_ended(folder, made):
    batch = made()
    batch.save_ends({1: "Slurm: CANCELLED"})

    batch.save()

    assert batches.read_all(folder)[0].ended == {1: "Slurm: CANCELLED"}


def test_workers_are_open_until_their_end_is_known(folder, made):
    made().save_ends({1: "Slurm: CANCELLED"})

    assert batches.read_all(folder)[0].open_workers() == [0]


def test_a_refused_batch_has_no_open_workers(made):
    assert made(refused="invalid partition").open_workers() == []


def test_the_error_that_a_worker_left_is_its_own(made):
    batch = made()
    (batch.folder / "work-1.error.json").write_text('{"message": "no space", "hint": "free some"}')

    assert batch.fault(0) is None
    assert batch.fault(1) == {"message": "no space", "hint": "free some"}


def test_an_error_that_could_not_be_written_whole_is_none(made):
    batch = made()
    (batch.folder / "work-0.error.json").write_text('{"mess')

    assert batch.fault(0) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"token": 3}', '"text"', "\x00"])
def test_a_damaged_batch_is_told_with_the_cure(text, folder, made):
    batch = made()
    (batch.folder / "batch.json").write_text(text)

    with pytest.raises(EnvironmentFaultError, match=r"first-0/batch\.json is damaged") as caught:
        batches.read_all(folder)

    assert "move its folder away" in caught.value.hint
    assert (batch.folder / "batch.json").read_text() == text


@pytest.mark.parametrize("text", ["", "[]", '{"one": "done"}'])
def test_a_damaged_list_of_ends_is_told_with_the_cure(text, folder, made):
    (made().folder / "ended.json").write_text(text)

    with pytest.raises(EnvironmentFaultError, match="damaged") as caught:
        batches.read_all(folder)

    assert "move its folder away" in caught.value.hint


@pytest.mark.parametrize(
    "change", [{"cells": 3}, {"cells": "ab"}, {"cells": [3]}, {"cells": ["a"]}, {"cells": [[1]]}, {"submitted_utc": 0}]
)
def test_a_batch_that_parses_and_is_malformed_is_damaged(change, folder, made):
    path = made().folder / "batch.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(EnvironmentFaultError, match="damaged"):
        batches.read_all(folder)
