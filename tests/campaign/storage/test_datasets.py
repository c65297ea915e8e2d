import errno
import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from campaign.cells.cell import make_cell
from campaign.cells.cell_plan import PlannedCell
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from campaign.storage import datasets, made_data
from campaign.storage.roots import storage_of_folder, storage_root
from jobs.data import manifest, staged_copies
from jobs.errors import DatasetError
from jobs.observe.conditions import describe_node
from jobs.system import device, files
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose, with_value

SMALL = {"files": 6, "median_bytes": 3000, "width": 64, "height": 64, "classes": 2}


def _begun(folder, entry, data, status="valid", **provenance):
    """Leave the record of a cell that was begun elsewhere, with a run of this status; None for no run."""
    runs = [{"status": status}] * bool(status)
    leave_record(folder, entry.cell, *runs, data=data, provenance={**describe_node(Path(data["path"])), **provenance})
    return replace(entry, state="running")


@pytest.fixture
def entry(point, tmp_path, monkeypatch):
    """An entry on a small dataset, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    point["dataset"] |= SMALL
    point["batch_size"] = 2
    return lambda **changed: PlannedCell(make_cell({**point, **changed}), "planned", 1, 1)


def _prepared(folder, *entries, redo=False):
    said = []
    datasets.require_possible(entries)
    found = datasets.prepare_datasets(entries, folder, lambda *progress: said.append(progress), redo=redo)
    return [found[entry.cell.id] for entry in entries], said


def test_a_dataset_is_made_once_under_the_root_of_its_storage(entry, folder, tmp_path):
    (data, other), said = _prepared(folder, entry(threads=1), entry(threads=2))

    assert data["path"].startswith(f"{tmp_path}/data/datasets/demo-")
    assert data["files"] == 6
    assert data == other
    assert said[-1] == ("making dataset demo", 6, 6, "images")
    assert said.count(said[-1]) <= 2


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
    assert manifest.load_manifest(Path(after["path"])).parameters[key] == value


def test_files_that_are_no_images_are_made_alike(entry, folder):
    malware = {"name": "malware", "files": 4, "median_bytes": 3000, "classes": 2, "seed": 0}
    reads = {**entry().cell.settings["benchmark"], "preprocess": False}

    (data,), said = _prepared(folder, entry(dataset=malware, benchmark=reads))

    assert (data["files"], said[-1]) == (4, ("making dataset malware", 4, 4, "files"))
    assert (
        Path(data["path"], "class_001/file_000003.bin").stat().st_size
        == manifest.load_manifest(Path(data["path"])).files[3].size
    )


def _map(folder, data, copies, *names):
    """Copy these files of a data set and write the map of it."""
    found = []
    for name in names:
        (copies / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(data["path"]) / name, copies / name)
        found.append((name, *staged_copies.file_identity(copies / name)))
    where = {"schema": 1, "source": data["path"], "copies": str(copies), "root": str(copies.parent)}
    folder.staging.mkdir(exist_ok=True)
    files.write_json(folder.staging / "advised.json", {**where, "files": found})


def test_a_cell_that_reads_copies_says_which_and_is_not_continued_with_others(entry, folder, tmp_path):
    (data,), _ = _prepared(folder, entry())
    names = [file.name for file in manifest.load_manifest(Path(data["path"])).files]
    _map(folder, data, tmp_path / "fast", *names[:2])

    (staged,), _ = _prepared(folder, entry(staging="advised"))

    assert (staged["staged"]["files"], staged["staged"]["root"]) == (2, str(tmp_path))
    assert staged["listed_ns"] == max((tmp_path / "fast" / name).stat().st_ctime_ns for name in names[:2])
    assert staged["checksum"] == data["checksum"]
    begun = _begun(folder, entry(staging="advised"), staged)
    _map(folder, data, tmp_path / "fast", *names[:3])
    with pytest.raises(UsageError, match=r"other data \(staged"):
        _prepared(folder, begun)


@pytest.mark.parametrize(("names", "why"), [([], "has no copy of a file in"), (None, "is not a readable map")])
def test_a_cell_without_copies_is_refused(names, why, entry, folder, tmp_path):
    (data,), _ = _prepared(folder, entry())
    if names is not None:
        _map(folder, data, tmp_path / "fast", *names)

    with pytest.raises(CampaignError, match=why):
        _prepared(folder, entry(staging="advised"))


@pytest.mark.parametrize(
    ("dataset", "changes"),
    [
        ({"train_files": 2, "validation_files": 1, "samples": 8, "image_size": 8, "seed": 0},
         {"train_files": 3, "validation_files": 2, "samples": 9, "image_size": 9, "seed": 1}),
        ({"files": 3, "height": 16, "width": 20, "seed": 0}, {"files": 4, "height": 17, "width": 21, "seed": 1}),
    ],
)  # fmt: skip
def test_every_key_of_an_hdf5_dataset_makes_another_one(dataset, changes, entry, folder):
    reads = {**entry().cell.settings["benchmark"], "preprocess": False}
    (before,), said = _prepared(folder, entry(dataset={"name": "mine", **dataset}, benchmark=reads))

    assert (before["files"], said[-1][3]) == (3, "files")
    for key, value in changes.items():
        (after,), _ = _prepared(folder, entry(dataset={"name": "mine", **dataset, key: value}, benchmark=reads))
        assert after["path"] != before["path"]
        assert manifest.load_manifest(Path(after["path"])).parameters[key] == value


def test_the_name_of_a_dataset_names_its_folder(entry, folder, point):
    (data,), _ = _prepared(folder, entry(dataset={**point["dataset"], "name": "mine"}))

    assert "/datasets/mine-" in data["path"]


def test_a_users_folder_is_used_in_place_and_its_manifest_kept_with_the_campaign(entry, folder, tmp_path):
    images = tmp_path / "mine"
    (images / "cats").mkdir(parents=True)
    (images / "cats" / "a.jpg").write_bytes(b"x" * 10)
    (images / "cats" / "b.PNG").write_bytes(b"y" * 20)
    for name in ("a.jpg", "b.PNG"):
        os.utime(images / "cats" / name, (1, 1))  # as a copy has the time of its source

    (data,), _ = _prepared(folder, entry(dataset={"name": "folder", "path": str(images)}))

    assert (data["path"], data["files"], data["bytes"]) == (str(images), 2, 30)
    assert data["listed_ns"] == (images / "cats" / "b.PNG").stat().st_ctime_ns
    assert data["manifest"].startswith(str(folder.manifests))
    assert sorted(path.name for path in images.rglob("*")) == ["a.jpg", "b.PNG", "cats"]


def test_a_users_hdf5_files_are_used_in_place_by_the_name_of_their_data_set(entry, folder, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("b.h5", "a.NC", "c.hdf5"):
        with h5py.File(mine / name, "w") as file:
            file["group/x"] = [1.0, 2.0]
    (mine / "d.jpg").write_bytes(b"x")
    reads = {**entry().cell.settings["benchmark"], "preprocess": False}
    own = {"name": "folder", "path": str(mine), "hdf5": "group/x"}

    (data,), _ = _prepared(folder, entry(dataset=own, benchmark=reads))

    listed = manifest.load_manifest(Path(data["manifest"]))
    assert [file.name for file in listed.files] == ["a.NC", "b.h5", "c.hdf5"]
    manifest.verify_files(mine, listed)
    (mine / "b.h5").write_bytes(b"other")
    with pytest.raises(DatasetError, match=r"1 of the wrong size \(b.h5\)"):
        manifest.verify_files(mine, listed)
    with pytest.raises(EnvironmentFaultError, match="has no data set 'y'"):
        _prepared(folder, entry(dataset={**own, "hdf5": "y"}, benchmark=reads))


def test_more_batches_than_the_folder_has_images_for_is_an_error(entry, folder, tmp_path):
    (tmp_path / "one.jpg").write_bytes(b"x")

    with pytest.raises(UsageError, match="the dataset has 1"):
        _prepared(folder, entry(iterations=3, dataset={"name": "folder", "path": str(tmp_path)}))


def test_a_relative_root_is_made_in_the_working_folder_and_an_absolute_one_must_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert storage_root({"name": "local", "root": "here/data"}) == tmp_path / "here" / "data"
    assert (tmp_path / "here" / "data").is_dir()
    with pytest.raises(EnvironmentFaultError, match="there is no folder") as caught:
        storage_root({"name": "hdd", "root": str(tmp_path / "hdd")})
    assert "mount the storage" in caught.value.hint
    assert not (tmp_path / "hdd").exists()


def test_what_is_to_be_made_is_told_with_its_bytes_and_what_one_process_takes(entry, folder, tmp_path, monkeypatch):
    baseline = make_cell(with_value(compose("benchmark=baseline"), "benchmark.file_mb", 50))
    now = itertools.count(100.0, 0.25)
    monkeypatch.setattr(made_data.time, "perf_counter", lambda: next(now))

    images, file = made_data.missing_data([entry(threads=1), entry(threads=2), PlannedCell(baseline, "planned", 1, 1)])
    _prepared(folder, entry())

    assert (images.description, images.files, len(images.cells)) == ("data set demo", 6, 2)
    assert (file.description, file.files, file.cells) == ("file of a baseline", 1, {baseline.id})
    assert file.bytes >= 50_000_000
    assert file.processor_s == pytest.approx(0.25 * file.bytes / (16 << 20))
    assert (images.place, Path(file.place).name) == (_prepared(folder, entry())[0][0]["path"], f"read-{file.bytes}.bin")
    assert made_data.missing_data([entry(threads=1)]) == []


def test_a_folder_lies_on_the_innermost_storage_of_the_site(tmp_path):
    (tmp_path / "outer" / "inner" / "mine").mkdir(parents=True)
    site = {"inner": f"{tmp_path}/outer/inner", "outer": f"{tmp_path}/outer", "other": str(tmp_path / "x")}

    for roots in (site, dict(reversed(site.items()))):
        assert storage_of_folder(tmp_path / "outer/inner/mine", roots) == ("inner", site["inner"])
        assert storage_of_folder(tmp_path / "outer", roots) == ("outer", site["outer"])


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


@pytest.mark.parametrize(("status", "at"), [(None, {"host": "node7"}), ("failed", {"host": "node7"}), ("valid", {})])
def test_a_cell_begun_here_or_of_which_nothing_was_measured_elsewhere_is_gone_on_with(status, at, entry, folder):
    (data,), _ = _prepared(folder, entry())

    assert _prepared(folder, _begun(folder, entry(), data, status, **at))[0] == [data]


def test_an_error_of_the_file_system_is_told_with_its_path_and_without_its_number(entry, folder, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/data/file")

    monkeypatch.setattr(datasets.make, "make_dataset", fail)

    with pytest.raises(EnvironmentFaultError, match=r"^cannot prepare the data in .*: /data/file: Input/output error$"):
        _prepared(folder, entry())


def test_nothing_is_made_where_a_later_cell_is_refused(entry, folder, tmp_path, point):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.jpg").write_bytes(b"x")
    elsewhere = {**point["storage"], "name": "memory", "root": "/dev/shm"}  # noqa: S108 - nothing is written
    own = {"name": "folder", "path": str(tmp_path / "mine")}
    baseline = make_cell(with_value(compose("benchmark=baseline"), "benchmark.file_mb", 1))

    with pytest.raises(UsageError, match="does not lie on storage memory"):
        _prepared(folder, PlannedCell(baseline, "planned", 1, 1), entry(), entry(storage=elsewhere, dataset=own))

    assert not (tmp_path / "data").exists()


def test_a_begun_cell_that_may_not_be_gone_on_with_is_found_before_others_are_made(entry, folder, tmp_path):
    (data,), _ = _prepared(folder, entry())
    begun = _begun(folder, entry(), data, host="node7")

    with pytest.raises(UsageError, match="another machine"):
        _prepared(folder, entry(dataset={**entry().cell.settings["dataset"], "seed": 5}), begun)

    assert len(list((tmp_path / "data" / "datasets").iterdir())) == 1


def _striped(count, size_mib):
    """What lfs prints of a file and of a folder with this layout."""
    file = f"f\nlmm_stripe_count:  {count}\nlmm_stripe_size:   {size_mib << 20}\nlmm_stripe_offset: 0\n"
    return {"file": file, "folder": file.replace("lmm_", "")}


def _layout(count, size_mib):
    return {"stripe_count": count, "stripe_size_bytes": size_mib << 20, "offset": 0, "pool": None}


@pytest.fixture
def striped(entry, point):
    """A function that returns an entry on a storage with this layout."""
    return lambda **layout: entry(storage={**point["storage"], **layout})


def test_a_dataset_is_striped_before_it_is_made_and_proved_again_without_being_striped_again(striped, folder, fake_lfs):
    lfs = fake_lfs(**_striped(4, 16))

    (data,), said = _prepared(folder, striped(stripe_count=4, stripe_size_mib=16))

    first = manifest.load_manifest(Path(data["path"])).files[0].name
    proof = [f"getstripe -d {data['path']}", f"getstripe {data['path']}/{first}"]
    assert lfs.read_text().splitlines() == [f"setstripe -c 4 -S 16M {data['path']}", *proof]
    assert data["stripe"] == {"folder": _layout(4, 16), "file": _layout(4, 16)}
    assert said[-1] == ("making dataset demo", 6, 6, "images")
    lfs.unlink()
    assert _prepared(folder, striped(stripe_count=4, stripe_size_mib=16))[0] == [data]
    assert lfs.read_text().splitlines() == proof


def test_another_layout_is_another_folder_and_no_layout_the_folder_of_old(entry, striped, folder, fake_lfs):
    (before,), _ = _prepared(folder, entry())
    fake_lfs(**_striped(4, 1))

    (after,), _ = _prepared(folder, striped(stripe_count=4))

    assert after["path"] == f"{before['path']}-c4"
    assert after["checksum"] == before["checksum"]
    assert "stripe" not in before


@pytest.mark.parametrize(
    ("lfs", "complaint"),
    [
        ({"complaint": "lfs setstripe: cannot: Inappropriate ioctl for device (25)"}, "Inappropriate ioctl"),
        (_striped(2, 1), "has stripe_count=2, not the requested stripe_count=4"),
    ],
)
def test_stripes_that_cannot_be_had_are_the_environments_fault(lfs, complaint, striped, folder, fake_lfs):
    fake_lfs(**lfs)

    with pytest.raises(EnvironmentFaultError, match=complaint) as caught:
        _prepared(folder, striped(stripe_count=4))

    assert "storage.stripe_count=null" in caught.value.hint


def test_a_users_folder_is_not_striped_and_must_have_the_stripes_that_are_named(
    entry, folder, point, fake_lfs, tmp_path
):
    lfs = fake_lfs(**_striped(2, 1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.jpg").write_bytes(b"x" * 10)
    point["storage"]["stripe_count"] = 2

    (data,), _ = _prepared(
        folder, entry(storage=point["storage"], dataset={"name": "folder", "path": str(tmp_path / "mine")})
    )

    assert "setstripe" not in lfs.read_text()
    assert data["stripe"]["file"] == _layout(2, 1)


@pytest.fixture
def on_lustre(tmp_path, monkeypatch):
    """Let this machine's mount table say that all of it is Lustre."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:47 / / rw,flock - lustre 10.0.0.1@o2ib:/work rw,flock\n")
    monkeypatch.setattr(device, "_MOUNTINFO", mounts)


@pytest.mark.parametrize("tells", [True, False])
def test_on_lustre_the_stripes_are_recorded_without_being_asked_for(tells, entry, folder, fake_lfs, on_lustre):
    fake_lfs(**(_striped(1, 1) if tells else {"complaint": "lfs: no"}))

    (data,), _ = _prepared(folder, entry())

    assert data["stripe"] == ({"folder": _layout(1, 1), "file": _layout(1, 1)} if tells else None)
