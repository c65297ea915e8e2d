"""A baseline's folder that another user has made first."""

import os

import pytest

from jobs.benchmarks.engines import datafile
from jobs.errors import DatasetError


@pytest.fixture
def private(tmp_path):
    file = tmp_path / "private"
    file.write_text("ours")
    yield file
    assert file.read_text() == "ours"


def _made(folder):
    return datafile.made(datafile.claimed(folder), 1 << 20, lambda *_: None)


def _prepared(folder, private):
    """Fill the folder with links that are named as files that are being written would be."""
    folder.mkdir()
    for number in range(os.getpid(), os.getpid() + 50):
        (folder / f"..tfio-baseline.{number}.tmp").symlink_to(private)
    for name in (".tfio-baseline.lock", f"read-{1 << 20}.part"):
        (folder / name).symlink_to(private)


def test_nothing_is_written_to_a_folder_of_another_user(scratch, stranger, private):
    stranger(_prepared, scratch / "baseline", private)

    with pytest.raises(DatasetError, match="is nobody's") as error:
        _made(scratch / "baseline")

    assert "root=" in error.value.hint


def test_a_link_in_the_place_of_the_folder_is_not_followed(scratch, stranger, tmp_path):
    (tmp_path / "ours").mkdir()
    stranger(os.symlink, tmp_path / "ours", scratch / "baseline")

    with pytest.raises(DatasetError, match="link"):
        _made(scratch / "baseline")

    assert [*(tmp_path / "ours").iterdir()] == []


def test_links_in_a_folder_of_ours_are_not_followed(tmp_path, private):
    datafile.claimed(tmp_path / "baseline")
    (tmp_path / "baseline" / f"read-{1 << 20}.part").symlink_to(private)
    (tmp_path / "baseline" / f"read-{1 << 20}.bin").symlink_to(private)

    made = _made(tmp_path / "baseline")

    assert not made.is_symlink()
    assert made.stat().st_size == 1 << 20
