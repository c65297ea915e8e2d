from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from campaign import prepare, record
from campaign.cell import make_cell
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.plan import Entry
from jobs import manifest
from jobs.machine import describe

SMALL = {"files": 6, "median_bytes": 3000, "width": 64, "height": 64, "classes": 2}


def _begun(folder, entry, data, **provenance):
    """Leave the record of a cell that was begun elsewhere."""
    made = record.new(entry.cell, {"token": "t"}, data)
    made["provenance"] = {**describe(Path(data["path"])), **provenance}
    record.write(folder.record(entry.cell.id), made)
    return replace(entry, state="running")


@pytest.fixture
def entry(point, tmp_path, monkeypatch):
    """An entry on a small dataset, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    point["dataset"] |= SMALL
    point["batch_size"] = 2
    return lambda **changed: Entry(make_cell({**point, **changed}), "planned", 1)


def _prepared(folder, *entries, redo=False):
    said = []
    found = prepare.datasets(entries, folder, lambda *progress: said.append(progress), redo=redo)
    return [found[entry.cell.id] for entry in entries], said


def test_a_dataset_is_made_under_the_root_of_its_storage(entry, folder, tmp_path, point):
    (data,), said = _prepared(folder, entry())

    assert data["path"].startswith(f"{tmp_path}/data/datasets/demo-")
    assert data["files"] == 6
    assert said[-1] == ("demo", 6, 6)


def test_two_cells_on_one_dataset_prepare_it_once(entry, folder):
    one, other = entry(threads=1), entry(threads=2)

    data, said = _prepared(folder, one, other)

    assert data[0] == data[1]
    assert said.count(("demo", 6, 6)) <= 2


@pytest.mark.parametrize(
    ("key", "value"),
    [("files", 8), ("median_bytes", 4000), ("sigma", 0.1), ("width", 96), ("height", 96), ("classes", 3), ("seed", 1)],
)
def test_every_key_of_a_synthetic_dataset_makes_another_one(key, value, entry, folder, point):
    (before,), _ = _prepared(folder, entry())
    point["dataset"][key] = value

    (after,), _ = _prepared(folder, entry(dataset=point["dataset"]))

    assert after["path"] != before["path"]
    assert after["checksum"] != before["checksum"]
    assert manifest.load(Path(after["path"])).parameters[key] == value


def test_the_name_of_a_dataset_names_its_folder(entry, folder, point):
    (data,), _ = _prepared(folder, entry(dataset={**point["dataset"], "name": "mine"}))

    assert "/datasets/mine-" in data["path"]


def test_a_users_folder_is_used_in_place_and_its_manifest_kept_with_the_campaign(entry, folder, tmp_path):
    images = tmp_path / "mine"
    (images / "cats").mkdir(parents=True)
    (images / "cats" / "a.jpg").write_bytes(b"x" * 10)
    (images / "cats" / "b.PNG").write_bytes(b"y" * 20)

    (data,), _ = _prepared(folder, entry(dataset={"name": "folder", "path": str(images)}))

    assert (data["path"], data["files"], data["bytes"]) == (str(images), 2, 30)
    assert data["manifest"].startswith(str(folder.manifests))
    assert sorted(path.name for path in images.rglob("*")) == ["a.jpg", "b.PNG", "cats"]


def test_more_batches_than_the_folder_has_images_for_is_an_error(entry, folder, tmp_path):
    (tmp_path / "one.jpg").write_bytes(b"x")

    with pytest.raises(UsageError, match="the dataset has 1"):
        _prepared(folder, entry(iterations=3, dataset={"name": "folder", "path": str(tmp_path)}))


def test_a_relative_root_belongs_to_the_working_folder_and_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert prepare.storage_root({"name": "local", "root": "here/data"}) == tmp_path / "here" / "data"
    assert (tmp_path / "here" / "data").is_dir()


def test_an_absolute_root_that_is_missing_is_an_error_and_not_made(tmp_path):
    with pytest.raises(EnvironmentFaultError, match="there is no folder") as caught:
        prepare.storage_root({"name": "hdd", "root": str(tmp_path / "hdd")})

    assert "mount it" in caught.value.hint
    assert not (tmp_path / "hdd").exists()


@pytest.mark.parametrize(
    ("elsewhere", "complaint"),
    [
        ({"host": "node7"}, "another machine (host was node7"),
        ({"cpu": "Z80"}, "another machine (cpu was Z80"),
        ({"versions": {"tensorflow": "1.10"}}, "other software (tensorflow was 1.10"),
    ],
)
def test_a_cell_begun_elsewhere_is_not_continued_here(elsewhere, complaint, entry, folder):
    (data,), _ = _prepared(folder, entry())
    begun = _begun(folder, entry(), data, **elsewhere)

    with pytest.raises(UsageError) as caught:
        _prepared(folder, begun)

    assert complaint in caught.value.message
    assert "redo=true" in caught.value.hint
    assert _prepared(folder, begun, redo=True)[0] == [data]


def test_a_cell_begun_here_is_continued(entry, folder):
    (data,), _ = _prepared(folder, entry())

    assert _prepared(folder, _begun(folder, entry(), data))[0] == [data]


def test_a_folder_is_not_called_by_the_name_of_a_storage_it_does_not_lie_on(entry, folder, tmp_path, point):
    (tmp_path / "a.jpg").write_bytes(b"x")
    point["storage"] |= {"name": "memory", "root": "/dev/shm"}  # noqa: S108 - another file system, nothing is written

    with pytest.raises(UsageError, match="does not lie on storage memory"):
        _prepared(folder, entry(storage=point["storage"], dataset={"name": "folder", "path": str(tmp_path)}))
