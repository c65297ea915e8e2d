"""A storage that any user may write to, and what another one has prepared there."""

import fcntl
import os

import pytest

from campaign.cells import record
from campaign.cells.cell import make_cell
from campaign.cluster.cell_state import WorkerState
from campaign.cluster.progress import CellShare, Follower, WatchedWorkers
from campaign.errors import EnvironmentFaultError
from campaign.storage import checkpoint_targets, datasets, locks
from campaign.storage.roots import own_folder, own_path
from jobs.data import manifest
from jobs.system import files
from tests.campaign.work_lists import walk

SMALL = {"files": 6, "median_bytes": 3000, "width": 64, "height": 64, "classes": 2}
OWN = f"tfio-{files.user_name(os.geteuid())}"


@pytest.fixture
def cell(point, scratch):
    """A cell on a small dataset on the scratch file system."""
    point["dataset"] |= SMALL
    point["batch_size"] = 2
    point["storage"]["root"] = str(scratch)
    return make_cell(point)


@pytest.fixture
def theirs(cell, folder, scratch):
    """The dataset of the cell, made by another user where it would have been made before."""
    (scratch / "datasets").mkdir()
    data = datasets.dataset_on_this_node(cell, folder)
    for path in (scratch / "datasets", *(scratch / "datasets").rglob("*")):
        os.chown(path, 65534, 65534)
    assert data["path"].startswith(str(scratch / "datasets"))
    return data


@pytest.mark.parametrize("mode", [0o1777, 0o775])
def test_where_others_may_write_too_each_user_has_a_folder(mode, scratch, tmp_path):
    scratch.chmod(mode)

    assert own_folder(scratch, "baseline") == scratch / OWN / "baseline"
    assert files.reason_to_distrust(scratch / OWN) == ""
    assert own_folder(tmp_path, "baseline") == tmp_path / "baseline"  # only we may write there
    assert (tmp_path / "baseline").is_dir()
    files.make_folder(scratch / "datasets")
    assert own_path(scratch, "datasets") == scratch / "datasets"  # what is ours already keeps its place


@pytest.mark.parametrize("taken", [OWN, f"{OWN}/baseline"])
def test_a_folder_that_another_user_has_taken_is_refused(scratch, stranger, taken):
    def take():
        (scratch / taken).mkdir(parents=True)

    stranger(take)

    with pytest.raises(EnvironmentFaultError, match="belongs to nobody") as error:
        own_folder(scratch, "baseline")
    assert "storage.root=" in error.value.hint


def test_a_dataset_of_another_user_is_read_where_it_is(cell, folder, theirs):
    again = datasets.dataset_on_this_node(cell, folder)

    assert {**again, "listed_ns": 0} == {**theirs, "listed_ns": 0}  # its owner changed


def test_a_dataset_of_another_user_that_is_not_whole_is_made_anew_for_us(cell, folder, theirs, scratch, tmp_path):
    image = next((scratch / "datasets").rglob("*.jpg"))
    image.unlink()
    image.symlink_to(tmp_path)
    before = {path: path.lstat().st_mtime_ns for path in (scratch / "datasets").rglob("*")}

    data = datasets.dataset_on_this_node(cell, folder)

    assert data["path"].startswith(str(scratch / OWN / "datasets"))
    assert data["checksum"] == theirs["checksum"]
    assert {path: path.lstat().st_mtime_ns for path in (scratch / "datasets").rglob("*")} == before


def test_links_in_the_place_of_our_folders_are_not_followed(cell, folder, scratch, stranger, tmp_path):
    (tmp_path / "precious").mkdir()
    stranger(os.symlink, tmp_path / "precious", scratch / "datasets")
    stranger(os.symlink, tmp_path / "precious", scratch / OWN)

    with pytest.raises(EnvironmentFaultError, match="link"):
        datasets.dataset_on_this_node(cell, folder)

    assert [*(tmp_path / "precious").iterdir()] == []


def test_a_root_that_is_a_link_is_the_users_word(cell, folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    cell.settings["storage"]["root"] = str(tmp_path / "root")

    data = datasets.dataset_on_this_node(cell, folder)

    assert data["path"].startswith(str(tmp_path / "disk" / "datasets"))
    assert manifest.load_manifest(tmp_path / "disk" / "datasets" / data["path"].rpartition("/")[2])


def test_snapshots_go_to_a_folder_of_ours(direct_point, scratch):
    direct_point["checkpoint"]["root"] = str(scratch)
    cell = make_cell(direct_point)
    item = {"id": cell.id, "settings": cell.settings, "targets": checkpoint_targets.target_roots(cell.settings)}

    asked = checkpoint_targets.snapshot_request(item, {"drain_timeout_s": 1.0}, "")

    assert asked["folders"] == [str(scratch / OWN / "checkpoints" / cell.id)]


def _hold(path, told, until):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(told, b".")
    os.read(until, 1)


@pytest.fixture
def held(stranger, scratch):
    """The lock of a storage that another user holds, and a function that lets it go."""
    seen, told = os.pipe()
    until, let_go = os.pipe()
    child = os.fork()
    if not child:
        try:
            stranger(_hold, scratch / "lock", told, until)
        finally:
            os._exit(0)
    os.read(seen, 1)
    yield scratch / "lock", lambda: os.write(let_go, b".")
    os.write(let_go, b".")
    os.waitpid(child, 0)
    for pipe in (seen, told, until, let_go):
        os.close(pipe)


def test_a_worker_says_in_its_record_who_holds_the_lock(held, work, folder, monkeypatch):
    lock, let_go = held
    work["cells"] = work["cells"][:1]
    item = work["cells"][0]
    item["dataset"]["lock"] = str(lock)
    waits, write = [], record.write_record
    watched = WatchedWorkers({0: Follower(folder, [CellShare(item["id"], 1, 1, {})], 1, work["token"])})

    def written(*words):
        write(*words)
        waits.extend(watched.take_picture({0: WorkerState("running")}).waits)
        if waits:
            let_go()

    monkeypatch.setattr(record, "write_record", written)
    walk(folder, work)

    assert (waits[0]["code"], waits[0]["words"]) == ("lock", str(lock))
    assert waits[0]["holder"].startswith("process ")
    assert waits[0]["holder"].endswith(" of nobody")


def test_a_link_in_the_place_of_a_lock_is_not_followed(scratch, stranger, tmp_path):
    private = tmp_path / "private"
    private.write_text("ours")
    stranger(os.symlink, private, scratch / "lock")

    with pytest.raises(EnvironmentFaultError, match="cannot lock"):
        locks.acquire_lock(scratch / "lock")

    assert private.read_text() == "ours"
