"""Datasets: made whole or not at all, resumed, checked against their manifest; the user's own are scanned."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.data import make as module
from jobs.data.make import make_dataset
from jobs.data.manifest import DatasetFile, Manifest, load_manifest, scan_folder, verify_files
from jobs.data.specs import dataset_id
from jobs.data.synthetic_hdf5 import ClimateSpec, HepSpec
from jobs.data.synthetic_images import ImageSpec
from jobs.errors import DatasetError
from jobs.store.folder import Folder

ODD = ("", "[]", "\xff", '{"schema": 1}')
SPEC = ImageSpec(files=24, median_bytes=4_000, sigma=0.3, width=128, height=96, classes=3, seed=5)
SPECS = {
    "images": SPEC,
    "hep": HepSpec(train_files=2, validation_files=1, samples=16, image_size=8, seed=5),
    "climate": ClimateSpec(files=3, height=12, width=18, seed=5),
}
LARGE = ImageSpec(files=320, median_bytes=25_000, sigma=0.3, width=240, height=200, classes=3, seed=5)

MAKE = """
import sys
from pathlib import Path
import jobs.store.store
from jobs.data.make import make_dataset
from jobs.data.synthetic_images import ImageSpec

if __name__ == "__main__":
    jobs.store.store._INTERVAL_S = 0.2
    spec = ImageSpec(**{spec!r})
    make_dataset(Path(sys.argv[1]), spec, name="test", processes=2, progress=lambda done, _: print(done, flush=True))
"""


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture(scope="module", params=SPECS)
def any_kind(request, tmp_path_factory):
    """Each kind of dataset that there is."""
    folder = tmp_path_factory.mktemp("whole") / "dataset"
    make_dataset(folder, SPECS[request.param], name="test", processes=2)
    return SPECS[request.param], folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "dataset"
    make_dataset(folder, SPEC, name="test", processes=2)
    return folder


@pytest.fixture
def made(whole, tmp_path):
    folder = tmp_path / "dataset"
    shutil.copytree(whole, folder)
    return folder


@pytest.fixture
def start(tmp_path):
    """Start a make in a process of its own; it is running when it has reported so many images."""
    script = tmp_path / "make.py"
    script.write_text(MAKE.replace("{spec!r}", repr(vars(LARGE))))
    started = []

    def begin(folder, images):
        command = [sys.executable, str(script), str(folder)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        for line in process.stdout:
            if int(line) >= images:
                return process
        pytest.fail(process.stderr.read())

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_dataset_is_what_its_manifest_says(whole):
    manifest = load_manifest(whole)

    verify_files(whole, manifest)
    assert manifest.kind == "synthetic"
    assert manifest.parameters == vars(SPEC)
    assert set(manifest.generator) == {"generator", "numpy", "pillow"}
    assert len(manifest.files) == SPEC.files
    assert manifest.classes == ("class_000", "class_001", "class_002")
    assert manifest.total_bytes == sum(len(data) for name, data in contents(whole).items() if name != "manifest.json")
    assert manifest.quantiles["median"] == pytest.approx(SPEC.median_bytes, rel=0.03)
    assert all(file.name.startswith(manifest.classes[file.label]) for file in manifest.files)


def test_the_number_of_processes_changes_no_byte_and_progress_goes_up_to_the_number_of_files(any_kind, tmp_path):
    (spec, whole), calls = any_kind, []

    make_dataset(tmp_path, spec, name="test", processes=1, progress=lambda done, total: calls.append((done, total)))

    assert contents(tmp_path) == contents(whole)
    assert calls == sorted(calls)
    assert calls[-1] == (spec.files, spec.files)
    assert len(calls) > spec.files // 8  # files that are made at a time


def test_another_seed_gives_other_bytes_and_another_folder(any_kind, tmp_path):
    spec, whole = any_kind
    other = replace(spec, seed=6)

    make_dataset(tmp_path, other, name="test", processes=1)

    assert (tmp_path / spec.name(0)).read_bytes() != (whole / spec.name(0)).read_bytes()
    assert dataset_id("test", other) != dataset_id("test", spec)


@pytest.mark.long
def test_a_killed_make_resumes_and_equals_an_unbroken_one(start, tmp_path):
    broken, unbroken = tmp_path / "broken", tmp_path / "unbroken"
    process = start(broken, images=100)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert gone
    assert not alive, "processes outlived the make"
    assert not (broken / "manifest.json").exists()
    (broken / "class_001" / ".image_000001.jpg.77.tfio-tmp").write_bytes(b"torn")
    kept = module._read_journal(Folder(broken), LARGE, dataset_id("test", LARGE), Folder(broken).entries())[1]  # noqa: SLF001
    names = [LARGE.name(index) for index in kept]
    stamps = {name: (broken / name).stat().st_mtime_ns for name in names}
    first = []

    make_dataset(broken, LARGE, name="test", processes=2, progress=lambda done, _: first.append(done))

    assert kept
    assert first[0] >= len(kept)
    assert {name: (broken / name).stat().st_mtime_ns for name in names} == stamps
    assert not list(broken.rglob("*.tmp"))
    make_dataset(unbroken, LARGE, name="test", processes=2)
    assert contents(broken) == contents(unbroken)


def test_ctrl_c_ends_a_make_at_once_and_leaves_whole_files_only(start, tmp_path):
    folder = tmp_path / "dataset"
    process = start(folder, images=24)
    os.killpg(process.pid, signal.SIGINT)

    process.communicate(timeout=20)

    assert process.returncode in {1, 130, -signal.SIGINT}
    images = list(folder.glob("class_*/*.jpg"))
    assert images
    assert all(path.read_bytes().endswith(b"\xff\xd9") for path in images)
    assert not list(folder.rglob("*.tmp"))
    assert not (folder / "manifest.json").exists()


def test_a_missing_a_truncated_and_an_added_image_are_named_with_the_cure(made):
    manifest = load_manifest(made)
    os.truncate(made / "class_000/image_000000.jpg", 10)
    (made / "class_001/image_000001.jpg").unlink()
    (made / "class_002/holiday.JPEG").write_bytes(b"")
    (made / "notes.txt").write_text("does not matter")

    with pytest.raises(DatasetError) as caught:
        verify_files(made, manifest)

    assert "1 missing (class_001/image_000001.jpg)" in caught.value.message
    assert "1 of the wrong size (class_000/image_000000.jpg)" in caught.value.message
    assert "1 not in the manifest (class_002/holiday.JPEG)" in caught.value.message
    assert f"rm {made / 'manifest.json'}" in caught.value.hint


def test_the_cure_that_is_named_repairs_the_dataset_and_writes_only_what_differs(any_kind, tmp_path):
    spec, whole = any_kind
    made = shutil.copytree(whole, tmp_path / "dataset")
    cut, gone, kept = (made / spec.name(index) for index in range(3))
    os.truncate(cut, 10)
    gone.unlink()
    (made / f".{kept.name}.0.tmp").write_text("of one that was killed")
    before = kept.stat().st_mtime_ns
    (made / "manifest.json").unlink()

    make_dataset(made, spec, name="test", processes=1)

    assert contents(made) == contents(whole)
    assert kept.stat().st_mtime_ns == before
    assert not [*made.rglob("*.tmp")]


def _shortened(text):
    document = json.loads(text)
    document["files"].pop()
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "told", "cure"),
    [
        *((lambda _, odd=odd: odd, "damaged", "give the same command again") for odd in ODD),
        (_shortened, "checksum", ""),
        (lambda text: json.dumps({**json.loads(text), "schema": 2}), "schema 2", "update"),
    ],
)
def test_an_odd_manifest_is_an_error_that_names_it_with_a_cure(made, change, told, cure):
    path = made / "manifest.json"
    path.write_bytes(change(path.read_text()).encode("latin-1"))

    with pytest.raises(DatasetError, match=told) as caught:
        load_manifest(made)

    assert str(path) in caught.value.message
    assert cure in caught.value.hint


def test_too_little_space_is_said_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(Folder, "free_bytes", lambda _: 1_000)

    with pytest.raises(DatasetError, match="has 1 kB free") as caught:
        make_dataset(tmp_path, SPEC, name="test", processes=1)

    assert "free some space" in caught.value.hint
    assert not list(tmp_path.rglob("*.jpg"))


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_an_id_follows_from_name_and_parameters(seed, sigma):
    spec = replace(SPEC, seed=seed, sigma=sigma)

    assert dataset_id("demo", spec) == dataset_id("demo", replace(spec))
    assert dataset_id("demo", spec) != dataset_id("demo", replace(spec, seed=seed + 1))
    assert dataset_id("demo", spec).startswith("demo-")


def test_sub_folders_are_classes_and_images_of_all_spellings_are_found(tmp_path):
    images = ["cat/.hidden.png", "cat/a.png", "cat/b.JPG", "dog/deep/y.PNG", "dog/x.jpeg", "top.jpg"]
    for name in (*reversed(images), "dog/readme.txt", "cat/b.webp"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")

    manifest = scan_folder(tmp_path)

    assert manifest.kind == "folder"
    assert manifest.classes == (".", "cat", "dog", "dog/deep")
    assert [file.name for file in manifest.files] == images
    assert [file.label for file in manifest.files] == [1, 1, 1, 3, 2, 0]
    assert manifest.total_bytes == 30
    assert manifest.left_out == {".txt": 1, ".webp": 1}


def test_a_scan_writes_nothing_and_verifies_until_the_folder_changes_which_nobody_is_told_to_make_anew(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"1")
    before = tmp_path.stat().st_mtime_ns

    manifest = scan_folder(tmp_path)
    verify_files(tmp_path, manifest)

    assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]
    assert tmp_path.stat().st_mtime_ns == before
    (tmp_path / "a.jpg").write_bytes(b"22")

    with pytest.raises(DatasetError, match="wrong size") as caught:
        verify_files(tmp_path, manifest)

    assert "rm " not in caught.value.hint


def test_links_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.jpg").write_bytes(b"1")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/linked").symlink_to(tmp_path / "real")
    (tmp_path / "real/up").symlink_to(tmp_path / "set")

    (tmp_path / "set/b.jpg").symlink_to(tmp_path / "nowhere")

    found = [(file.name, file.size) for file in scan_folder(tmp_path / "set").files]

    assert found == [("b.jpg", 0), ("linked/a.jpg", 1)]


def _refused(folder):
    with pytest.raises(DatasetError, match="closed: Permission denied") as caught:
        scan_folder(folder)
    assert "chmod" in caught.value.hint


def test_a_sub_folder_that_cannot_be_read_is_named(scratch, stranger):
    (scratch / "closed").mkdir(mode=0)

    stranger(_refused, scratch)


@pytest.mark.parametrize(("name", "message"), [("", "no images"), ("gone", "does not exist"), ("file", "is no folder")])
def test_a_folder_without_images_is_an_error(tmp_path, name, message):
    (tmp_path / "file").write_text("")

    with pytest.raises(DatasetError, match=message):
        scan_folder(tmp_path / name)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_the_quantiles_are_numpys_and_the_checksum_is_that_of_any_order(sizes):
    files = tuple(DatasetFile(str(number), size, 0) for number, size in enumerate(sizes))

    found, other = (Manifest("folder", {}, None, order, (".",)) for order in (files, files[::-1]))

    expected = np.quantile(sizes, [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
    assert list(found.quantiles.values()) == pytest.approx(expected.tolist())
    assert (found.total_bytes, found.checksum) == (sum(sizes), other.checksum)
    assert found.checksum != Manifest("folder", {}, None, files[1:], (".",)).checksum
