"""Files that are read from copies, in a script of one's own and in a run."""

import shutil

import pytest

from jobs.data import staged_copies, staged_paths
from jobs.data.staged_copies import file_identity
from jobs.errors import DatasetError
from jobs.events import posix_window
from jobs.system import files, page_cache
from tests.jobs.jobs_factory import check, make_request


@pytest.fixture
def staged_map(paths, tmp_path):
    """The map of the first two files, whose copies are in ``fast``."""
    copies = tmp_path / "fast"
    copies.mkdir()
    listed = [(path.name, *file_identity(shutil.copy2(path, copies))) for path in paths[:2]]
    page_cache.sync_file_system(copies)
    told = {"schema": 1, "source": str(paths[0].parent), "copies": str(copies), "root": str(tmp_path), "files": listed}
    files.write_json(tmp_path / "map.json", told)
    return tmp_path / "map.json"


def test_paths_become_those_of_the_copies(staged_map, paths, tmp_path):
    found = staged_paths([*paths, "/elsewhere/x"], staged_map)

    copies = [f"{tmp_path}/fast/{path.name}" for path in paths[:2]]
    assert found == [*copies, *map(str, paths[2:]), "/elsewhere/x"]
    (tmp_path / "link").symlink_to(paths[0].parent)
    assert staged_paths([tmp_path / "link" / path.name for path in paths[:2]], staged_map) == copies


@pytest.mark.parametrize("harm", ["copy gone", "copy cut", "original changed"])
def test_a_copy_that_is_none_any_more_is_refused(harm, staged_map, paths, tmp_path):
    copy = tmp_path / "fast" / paths[0].name
    {"copy gone": copy.unlink, "copy cut": lambda: copy.write_bytes(b"x"), "original changed": paths[0].touch}[harm]()

    with pytest.raises(DatasetError, match="copy again"):
        staged_paths(paths, staged_map)


@pytest.mark.parametrize(
    "text",
    ["{}", '{"schema": 1, "source": "/a", "copies": "/b", "root": "/b", "files": [["../x", 1, 1]]}',
     '{"schema": 1, "source": "/a", "copies": "b", "root": "/b", "files": [["x", 1, 1]]}',
     '{"schema": 1, "source": "/a", "copies": "/b", "root": "/b", "files": [["x\\u0000y", 1, 1]]}',
     '{"schema": 2}', '{"schema": 1, "source": "/a", "copies": "/b", "root": "/b", "files": [["x", "y", 1]]}'],
)  # fmt: skip
def test_what_is_no_map_is_refused(text, tmp_path):
    (tmp_path / "map.json").write_text(text)

    with pytest.raises(DatasetError, match="map"):
        staged_paths([], tmp_path / "map.json")


def test_a_run_reads_the_copies_and_proves_what_it_read(disk, staged_map, paths, template):
    request = make_request(paths[0].parent, disk / "held")
    request |= {"staged": str(staged_map), "profile": str(disk / "profile-0.npz")}
    request["settings"]["profile"] = {"posix": "counters"}

    run = template.run(request, disk / "run.log", 60)

    assert run["status"] == "valid", run["reason"]
    assert check(run, "same_data")["passed"] is True
    read = set(posix_window.read_window(disk / "profile-0.npz").files)
    assert {path for path in read if path.endswith(".jpg")} == set(staged_paths(paths, staged_map))


def test_copies_are_taken_away_but_those_to_keep_and_what_is_no_copy_any_more(tmp_path):
    source, copies = tmp_path / "data", tmp_path / "copies"
    for name in ("a/1", "a/2", "b/3", "c", "d", "e"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    shutil.copytree(source, copies)
    (copies / "e").write_text("otherwise")
    (copies / "b/other").write_text("theirs")
    (copies / "f").symlink_to(source / "c")

    assert staged_copies.remove_copies(source, copies, keep=("d",)) == (
        4,
        [copies / "b/other", copies / "e", copies / "f"],
    )
    assert sorted(path.name for path in copies.rglob("*")) == ["b", "d", "e", "f", "other"]
    for name in ("e", "b/other", "f"):
        (copies / name).unlink()
    assert staged_copies.remove_copies(source, copies) == (1, [])
    assert not copies.exists()


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([5], [1]),
        ([1 << 27] * 4, [2, 2]),
        ([1 << 28, 1], [1, 1]),
        ([(1 << 28) + 1, 1], [1, 1]),
        ([0] * 513, [256, 256, 1]),
    ],
)
def test_files_are_copied_in_batches_of_so_many_files_and_bytes(sizes, batches, monkeypatch, tmp_path):
    wanted = [(str(number), size, 7) for number, size in enumerate(sizes)]
    source = {tmp_path / "data" / name: (size, changed) for name, size, changed in wanted}
    monkeypatch.setattr(staged_copies, "file_identity", source.get)
    monkeypatch.setattr("jobs.system.files.free_bytes", lambda _: 1 << 40)

    found = staged_copies.missing_copies(tmp_path / "data", tmp_path, wanted)

    assert [len(batch) for batch in found] == batches
    assert [each for batch in found for each in batch] == wanted
