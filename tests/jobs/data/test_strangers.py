"""A dataset's folder that another user has made first."""

import os

import pytest

from jobs.data import make, manifest, specs
from jobs.data.synthetic_images import ImageSpec
from jobs.errors import DatasetError

SPEC = ImageSpec(files=4, classes=2, median_bytes=1200, sigma=0.0, width=32, height=32, seed=1)


@pytest.fixture
def precious(tmp_path):
    """Return a folder of ours with files that are named like images."""
    folder = tmp_path / "precious"
    for index in range(SPEC.files):
        (folder / SPEC.name(index)).parent.mkdir(parents=True, exist_ok=True)
        (folder / SPEC.name(index)).write_text("ours")
    yield folder
    assert {file.read_text() for file in folder.rglob("*.jpg")} == {"ours"}
    assert len([*folder.rglob("*")]) == SPEC.classes + SPEC.files


def _made(folder):
    return make.make_dataset(folder, SPEC, name="demo", processes=1)


def _prepared(folder, precious):
    """Make the folder as one of ours, with a link for its first class."""
    folder.mkdir(parents=True)
    (folder / ".tfio-dataset").write_text(specs.dataset_id("demo", SPEC) + "\n")
    (folder / "class_000").symlink_to(precious / "class_000")


def test_nothing_is_written_to_a_folder_of_another_user(scratch, stranger, precious):
    folder = scratch / "demo"
    stranger(_prepared, folder, precious)

    with pytest.raises(DatasetError, match="belongs to nobody") as error:
        _made(folder)

    assert "root=" in error.value.hint
    assert sorted(path.name for path in folder.iterdir()) == [".tfio-dataset", "class_000"]


def test_nothing_is_written_below_a_link_in_the_place_of_the_datasets(scratch, stranger, precious):
    stranger(os.symlink, precious, scratch / "datasets")

    with pytest.raises(DatasetError, match="link"):
        _made(scratch / "datasets" / "demo")


def test_a_link_in_a_folder_of_ours_is_not_followed(tmp_path, precious):
    _prepared(tmp_path / "demo", precious)

    with pytest.raises(DatasetError, match="link"):
        _made(tmp_path / "demo")


@pytest.mark.parametrize("names", [["../../secret.jpg"], ["/etc/secret.jpg"], ["a//b.jpg"], [7], ["", "../secret.jpg"]])
def test_a_manifest_names_files_below_its_folder_alone(tmp_path, names):
    made = manifest.Manifest("synthetic", {}, {}, tuple(manifest.DatasetFile(name, 1, 0) for name in names), ("a",))
    (tmp_path / "manifest.json").write_text(made.to_json())

    with pytest.raises(DatasetError, match="damaged"):
        manifest.load_manifest(tmp_path)


def test_a_missing_manifest_is_named_and_a_pipe_in_its_place_not_waited_for(tmp_path):
    with pytest.raises(DatasetError, match=r"manifest\.json is missing"):
        manifest.load_manifest(tmp_path)
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(DatasetError, match=r"manifest\.json"):
        manifest.load_manifest(tmp_path)
