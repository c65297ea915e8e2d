"""The files of a run against their list, before and after it."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.errors import DatasetError
from jobs.observe.data_files import ListedFilesObserver
from jobs.ready_run import ReadyRun

NAMES = [f"{number}.jpg" for number in range(5)]


@pytest.fixture
def observe(tmp_path):
    """A function that observes five files while `meddle` is done to them; returns the figures."""
    for name in NAMES:
        (tmp_path / name).write_bytes(b"x" * 100)

    def run(meddle=lambda _: None, *, listed_ns=None, before=lambda _: None, proof=NAMES):
        sizes = {tmp_path / name: 100 for name in NAMES}
        before(tmp_path)
        files = [tmp_path / name for name in proof]
        observer = ListedFilesObserver(
            {"listed_ns": listed_ns}, ReadyRun(lambda _: {}, tmp_path, list(sizes), files, sizes)
        )
        observer.start()
        meddle(tmp_path)
        observer.stop(failed=False)
        return observer.metrics()

    return run


def _replaced(folder):
    (folder / "new").write_bytes(b"y" * 100)
    (folder / "new").rename(folder / "3.jpg")


def _touched_in_place(folder):
    with (folder / "3.jpg").open("r+b") as file:
        file.write(b"y")
    os.utime(folder / "3.jpg", (0, 0))  # who changes a file may set its times, but not that of its change


def test_files_that_nobody_touches_are_unchanged(observe):
    assert observe() == {"listed_bytes": 500, "changed_files": 0, "changed": []}


@pytest.mark.parametrize(
    "meddle",
    [
        _replaced,
        _touched_in_place,
        lambda folder: (folder / "3.jpg").unlink(),
        lambda folder: (folder / "3.jpg").write_bytes(b"short"),
    ],
)
def test_a_file_that_changes_during_the_run_is_named(meddle, observe):
    found = observe(meddle)

    assert (found["changed_files"], found["changed"]) == (1, ["3.jpg"])


def test_a_file_of_another_size_than_listed_is_named_although_it_stays(observe):
    assert observe(before=lambda folder: (folder / "2.jpg").write_bytes(b"z" * 99))["changed"] == ["2.jpg"]


def test_a_file_of_the_same_size_that_changed_since_it_was_listed_is_named(observe, tmp_path):
    listed_ns = max(path.stat().st_ctime_ns for path in tmp_path.iterdir())

    assert observe(listed_ns=listed_ns)["changed_files"] == 0
    assert observe(before=_replaced, listed_ns=listed_ns)["changed"] == ["3.jpg"]


def test_only_files_that_are_sure_to_be_read_count(observe):
    found = observe(_replaced, proof=NAMES[:2])

    assert found == {"listed_bytes": 200, "changed_files": 0, "changed": []}


def test_objects_that_came_otherwise_than_listed_are_counted_and_the_first_are_named():
    sizes = {"a": 5, "b": 7, "c": 11}
    stored, wrong, compared = {name: SimpleNamespace(size=size) for name, size in sizes.items()}, {"d", "a", "c"}, []
    ranges = SimpleNamespace(compare=lambda: (compared.append(True), wrong.add("b")))
    source = SimpleNamespace(stored=stored, wrong=wrong, ranges=ranges)
    work = SimpleNamespace(source=source, proof=[Path("a"), Path("c")], sizes={})

    assert ListedFilesObserver({}, work).metrics() == {
        "listed_bytes": 16,
        "changed_files": 4,
        "changed": ["a", "b", "c"],
    }
    assert compared == [True]


def _piped(folder):
    (folder / "3.jpg").unlink()
    os.mkfifo(folder / "3.jpg")


def test_a_pipe_that_took_the_place_of_a_file_is_refused_before_the_run_would_wait_for_it(observe):
    assert observe(_piped)["changed"] == ["3.jpg"]

    with pytest.raises(DatasetError, match=r"3\.jpg is not a file any more"):
        observe()
