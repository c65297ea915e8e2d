import json

import pytest

from campaign.errors import EnvironmentFaultError
from campaign.worker import batch as batches
from tests.campaign.on_disk import leave_batch
from tests.campaign.work_lists import LATER


@pytest.fixture
def made(folder):
    """A function that writes a batch."""

    def make(name="first-0", cells=(("a", "b"), ("c",)), **more):
        return leave_batch(folder, name, cells, **more)

    return make


def test_a_batch_is_found_again_as_it_was_saved_for_its_owner_alone(folder, made):
    assert batches.read_all(folder) == []
    one, other = made(job_id="77"), made("second-0", utc=LATER, refused="invalid partition")

    assert batches.read_all(folder) == [one, other]
    assert (one.open_workers(), other.open_workers()) == ([0, 1], [])
    assert one.folder.stat().st_mode & 0o777 == 0o700


def test_batches_come_back_oldest_first_and_those_of_one_submission_in_their_order(folder, made):
    late, tenth, ninth = made("a-0", utc=LATER), made("b-10"), made("b-9")

    assert batches.read_all(folder) == [ninth, tenth, late]


def test_a_cell_belongs_to_the_worker_that_had_it_last(made):
    early, late = made(), made("second-0", cells=(("d",), ("b",)), utc=LATER)

    found = batches.latest([early, late])

    assert found == {"a": (early, 0), "b": (late, 1), "c": (early, 1), "d": (late, 0)}


def test_how_workers_ended_is_kept_and_what_was_known_first_stands(folder, made):
    batch = made()
    batch.save_ends({})
    assert not (batch.folder / "ended.json").exists()
    batch.save_ends({0: "Slurm: NODE_FAIL"})
    (again,) = batches.read_all(folder)
    assert again.open_workers() == [1]
    again.save_ends({0: "Slurm: LOST", 1: "done"})
    again.save()

    (found,) = batches.read_all(folder)

    assert found.ended == {0: "Slurm: NODE_FAIL", 1: "done"}
    assert found.open_workers() == []


def test_the_error_that_a_worker_left_is_its_own_where_it_could_be_written_whole(made):
    batch = made()
    (batch.folder / "work-0.error.json").write_text('{"mess')
    (batch.folder / "work-1.error.json").write_text('{"message": "no space", "hint": "free some"}')

    assert batch.fault(0) is None
    assert batch.fault(1) == {"message": "no space", "hint": "free some"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("batch.json", text) for text in ("", "{", "[]", "{}", '{"token": 3}', '"text"', "\x00")),
        *(("ended.json", text) for text in ("", "[]", '{"1": 2}')),
    ],
)
def test_a_damaged_file_of_a_batch_is_told_with_the_cure(name, text, folder, made):
    file = made().folder / name
    file.write_text(text)

    with pytest.raises(EnvironmentFaultError, match=rf"first-0/{name} is damaged") as caught:
        batches.read_all(folder)

    assert "move its folder away" in caught.value.hint
    assert file.read_text() == text


@pytest.mark.parametrize(
    "change", [{"cells": 3}, {"cells": "ab"}, {"cells": [3]}, {"cells": ["a"]}, {"cells": [[1]]}, {"submitted_utc": 0}]
)
def test_a_batch_that_parses_and_is_malformed_is_damaged(change, folder, made):
    path = made().folder / "batch.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(EnvironmentFaultError, match="damaged"):
        batches.read_all(folder)
