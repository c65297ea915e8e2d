"""Files that are read from copies, in a script of one's own and in a run."""

import shutil
from pathlib import Path

import pytest

from jobs.benchmarks import images
from jobs.data import staged, staging
from jobs.data.staging import identity
from jobs.errors import DatasetError
from jobs.profiler import table
from jobs.system import files, page_cache
from tests.jobs.jobs_factory import check, make_request


@pytest.fixture
def staged_map(paths, tmp_path):
    """The map of the first two files, whose copies are in ``fast``."""
    copies = tmp_path / "fast"
    copies.mkdir()
    listed = [(path.name, *identity(shutil.copy2(path, copies))) for path in paths[:2]]
    page_cache.sync(copies)
    told = {"schema": 1, "source": str(paths[0].parent), "copies": str(copies), "root": str(tmp_path), "files": listed}
    files.write_json(tmp_path / "map.json", told)
    return tmp_path / "map.json"


def test_paths_become_those_of_the_copies(staged_map, paths, tmp_path):
    found = staged([*paths, "/elsewhere/x"], staged_map)

    copies = [f"{tmp_path}/fast/{path.name}" for path in paths[:2]]
    assert found == [*copies, *map(str, paths[2:]), "/elsewhere/x"]
    (tmp_path / "link").symlink_to(paths[0].parent)
    assert staged([tmp_path / "link" / path.name for path in paths[:2]], staged_map) == copies


@pytest.mark.parametrize("harm", ["copy gone", "copy cut", "original changed"])
def test_a_copy_that_is_none_any_more_is_refused(harm, staged_map, paths, tmp_path):
    copy = tmp_path / "fast" / paths[0].name
    {"copy gone": copy.unlink, "copy cut": lambda: copy.write_bytes(b"x"), "original changed": paths[0].touch}[harm]()

    with pytest.raises(DatasetError, match="copy anew"):
        staged(paths, staged_map)


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
        staged([], tmp_path / "map.json")


def test_a_run_reads_the_copies_and_proves_what_it_read(disk, staged_map, paths, template):
    request = make_request(paths[0].parent, disk / "held")
    request |= {"staged": str(staged_map), "profile": str(disk / "profile-0.npz")}
    request["settings"]["profile"] = {"posix": "counters"}

    run = template.run(request, disk / "run.log", 60)

    assert run["status"] == "valid", run["reason"]
    assert check(run, "same_data")["passed"] is True
    read = set(table.read(disk / "profile-0.npz").files)
    assert {path for path in read if path.endswith(".jpg")} == set(staged(paths, staged_map))


def test_a_training_is_told_the_originals_whose_folders_are_its_classes(staged_map, paths, tmp_path):
    told = []

    def prepare(_, read, originals):
        told.append((read, originals))

    request = make_request(paths[0].parent, tmp_path / "held") | {"staged": str(staged_map)}
    begun = images.begin_with(prepare, lambda _, number: number, labelled=True)
    with begun(request) as work:
        assert work.folders == (paths[0].parent, tmp_path / "fast")

    assert told == [([Path(path) for path in staged(paths, staged_map)], paths)]


def test_a_folder_in_which_the_marker_was_being_written_is_ours(tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / f".{staging.MARKER}.0123456789abcdef{files.TEMPORARY}").write_text("half")  # as `files.whole` names it

    with staging.held(copies, tmp_path):
        assert sorted(files.names(copies)) == [".tfio-lock", staging.MARKER]
