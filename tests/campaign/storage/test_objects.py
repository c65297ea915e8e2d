"""What is prepared in a bucket: nothing of the user's is replaced, and one campaign at a time measures it."""

from pathlib import Path

import pytest

from campaign.cells.cell import make_cell
from campaign.cells.folder import CampaignFolder
from campaign.errors import EnvironmentFaultError
from campaign.storage import checkpoint_targets, objects
from jobs.data import manifest
from jobs.objects.client import Client, DataError
from tests.campaign.work_lists import compose
from tests.jobs.objects.conftest import signed, store  # noqa: F401 - fixtures

BASELINE = ("benchmark=baseline", "benchmark.access=read", "benchmark.file_mb=2")


@pytest.fixture
def puts(monkeypatch):
    """What is put, by key; nothing is sent."""
    found = {}
    monkeypatch.setattr(Client, "put", lambda client, key, data: found.update({client.prefix + key: data}))
    return found


@pytest.fixture
def prepared(store, folder, monkeypatch, tmp_path):  # noqa: F811
    """Prepare a baseline's object in the bucket of the fake store, for a user whose home is empty."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def prepare(where=folder, *words):
        told = (f"storage.endpoint={store.storage['endpoint']}", "storage.bucket=bucket", "storage.retries=0")
        cell = make_cell(compose("storage=s3", *(words or BASELINE), *told))
        return objects.prepare_objects(cell, where, lambda *_: None, 1)

    return prepare


@pytest.mark.parametrize("key", ["read-2097152.bin", "read-2000000.bin", "mine.jpg"])
def test_a_baseline_replaces_nothing_of_the_users(prepared, store, puts, key):  # noqa: F811
    store.objects = {f"baseline/{key}": b"mine"}

    with pytest.raises(EnvironmentFaultError, match="files that this program did not make"):
        prepared()

    assert not puts


def test_a_baselines_object_is_made_once_below_our_marker(prepared, store, puts):  # noqa: F811
    found = prepared()

    name = f"baseline/{found['file']}"
    assert list(puts) == ["baseline/.tfio-dataset", name]
    store.objects = {"baseline/.tfio-dataset": puts["baseline/.tfio-dataset"], name: bytes(found["bytes"])}
    puts.clear()
    assert prepared() == found
    assert not puts


def test_two_campaigns_of_a_user_wait_for_one_lock_a_bucket(prepared, puts, tmp_path):
    others = [CampaignFolder(tmp_path / name) for name in "ab"]
    (tmp_path / "large").mkdir()
    (tmp_path / ".cache").symlink_to("large")
    locks = [prepared(each)["lock"] for each in others]

    assert len(set(locks)) == 1
    assert Path(locks[0]).parent.parent == tmp_path / "large/tfio-campaign"


def test_a_bucket_has_one_lock_however_its_endpoint_is_spelt(prepared, store, folder):  # noqa: F811
    port = store.server_address[1]
    endpoints = (f"http://127.0.0.1:{port}", f"http://LOCALHOST:{port}/", f"http://[::1]:{port}", "http://127.0.0.1:1")

    locks = [objects.bucket_lock({"endpoint": each, "bucket": "b"}, {}, folder) for each in endpoints]

    assert [lock == locks[0] for lock in locks] == [True, True, True, False]


def test_without_a_place_for_the_lock_nothing_says_that_it_is_held(prepared, puts, tmp_path, folder):
    (tmp_path / ".cache").write_text("in the way")

    with pytest.raises(EnvironmentFaultError, match=r"storage.exclusive=lock: cannot make the lock file"):
        prepared()
    assert prepared(folder, *BASELINE, "storage.exclusive=none")["file"]


def test_an_object_that_changes_while_it_is_prepared_is_told_without_a_traceback(prepared, monkeypatch):
    def gone(*_):
        raise DataError("it is not there")

    monkeypatch.setattr(Client, "list_objects", gone)
    with pytest.raises(EnvironmentFaultError, match="it is not there"):
        prepared()


@pytest.mark.parametrize("below", ["photos", "none"])
def test_a_users_own_objects_are_listed_as_files_of_these_names_would_be(below, prepared, store, folder, tmp_path):  # noqa: F811
    store.objects = {"photos/b/2.JPG": b"22", "photos/a/1.jpg": b"1", "photos/a/notes.txt": b"x", "photos/c/0.png": b""}
    for name, data in store.objects.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "photos/c/0.png").unlink()  # 0 bytes mark a folder
    words = ("benchmark=micro", "dataset=folder", f"dataset.path={below}", "batch_size=1")

    if below == "none":
        with pytest.raises(EnvironmentFaultError, match=r"no objects in .*none that end in \.jpg"):
            prepared(folder, *words)
        return
    data = prepared(folder, *words)

    listed, files = (
        manifest.load_manifest(Path(data["manifest"])),
        manifest.scan_folder(tmp_path / "photos", None, any_kind=False),
    )
    assert (listed.files, listed.classes) == (files.files, files.classes)
    assert (data["files"], data["bytes"], data["path"]) == (2, 3, "s3://bucket/photos")


@pytest.mark.parametrize(("disk", "seen"), [({"disk": "/mnt/hdd"}, ["/mnt/hdd"]), ({}, [])])
def test_of_objects_only_their_disk_is_a_place_of_this_machine(disk, seen):
    data = {"path": "s3://bucket/photos", "folder": "baseline", **disk}
    settings = compose("storage=s3", "storage.endpoint=http://host", "storage.bucket=bucket")

    assert checkpoint_targets.used_paths({"dataset": data, "settings": settings, "targets": []}) == seen
