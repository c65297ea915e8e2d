"""The journal of what has been put: only what is durable is entered, whatever is killed."""

import pytest

from jobs.store import store as module
from jobs.store.folder import Folder
from jobs.store.store import Journal, PutResult
from tests.jobs.durability import killed, watched

NAMES = [f"file{number}" for number in range(4)]


@pytest.fixture
def store(tmp_path):
    return Folder(tmp_path)


def write(store, numbers):
    """Write files and note each, as a make does; everything is entered at once."""
    with Journal(store, {"made": "so"}) as journal:
        for number in numbers:
            journal.add({number: store.write(NAMES[number], lambda file: file.write(b"whole"))})


def entered(store):
    return Journal(store, {"made": "so"}).read(store.entries(), NAMES)


def test_what_is_entered_is_on_the_device_before(store, monkeypatch):
    deeds = []
    with Journal(store, {"made": "so"}) as journal:
        journal.add({1: store.write(NAMES[1], lambda file: file.write(b"12345"))})
        watched(monkeypatch, lambda deed: deeds.append((*deed, entered(store))))

    assert deeds[0] == ("sync", str(store.root), {})
    assert deeds[-1] == ("sync", str(store.root), {1: PutResult(5)})


def test_a_kill_at_any_point_enters_nothing_that_is_not_whole(store, monkeypatch):
    monkeypatch.setattr(module, "_INTERVAL_S", -1.0)
    point = 0
    while killed(lambda: write(store, range(4)), point):
        found = entered(store)
        assert all((store.root / NAMES[number]).read_bytes() == b"whole" for number in found)
        assert found == {number: PutResult(5) for number in range(len(found))}
        point += 1
    assert point > 12
    assert entered(store) == {number: PutResult(5) for number in range(4)}


@pytest.mark.parametrize("other", [{"made": "otherwise"}, {}])
def test_what_follows_from_something_else_counts_for_nothing(store, other):
    write(store, range(2))

    assert Journal(store, other).read(store.entries(), NAMES) == {}


def test_a_file_that_has_another_size_or_is_gone_is_not_there(store):
    write(store, range(4))
    (store.root / NAMES[1]).write_bytes(b"longer than it was")
    (store.root / NAMES[2]).unlink()

    assert entered(store) == {0: PutResult(5), 3: PutResult(5)}
