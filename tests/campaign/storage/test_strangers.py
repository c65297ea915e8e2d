"""A storage that any user may write to, and what another one has prepared there."""

import os

import pytest

from campaign.cells.cell import make_cell
from campaign.errors import EnvironmentFaultError
from campaign.storage import checkpoint_targets, datasets, locks
from campaign.storage.roots import own_folder, own_path
from jobs.data import manifest
from jobs.system import files

SMALL = {"files": 6, "median_bytes": 3000, "width": 64, "height": 64, "classes": 2}
OWN = f"tfio-{files.user_name(os.geteuid())}"


@pytest.fixture
def cell(point, scratch):
    """A cell on a small dataset on the scratch file system."""
    point["dataset"] |= SMALL
    point["batch_size"] = 2
    point["storage"]["root"] = str(scratch)
    return make_cell(point)


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


def test_a_link_in_the_place_of_a_lock_is_not_followed(scratch, stranger, tmp_path):
    private = tmp_path / "private"
    private.write_text("ours")
    stranger(os.symlink, private, scratch / "lock")

    with pytest.raises(EnvironmentFaultError, match="cannot lock"):
        locks.acquire_lock(scratch / "lock")

    assert private.read_text() == "ours"
