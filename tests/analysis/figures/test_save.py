"""What is written: whole files or none, in no file's place that was read."""

import os
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.figures.kit import save


def test_a_file_is_synced_then_renamed_then_its_folder_is_synced(tmp_path, monkeypatch):
    done, real = [], (os.fsync, os.replace)
    told = Path("/proc/self/fd")
    monkeypatch.setattr(os, "fsync", lambda file: (done.append(str((told / str(file)).readlink())), real[0](file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("renamed"), real[1](*paths)))

    path = save.write_file(tmp_path / "new" / "a.csv", iter([b"a", b"b"]))

    assert (done[0].startswith(f"{tmp_path}/new/.a.csv."), done[1:]) == (True, ["renamed", f"{tmp_path}/new"])
    assert (path.read_bytes(), len([*path.parent.iterdir()])) == (b"ab", 1)
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_whole_and_no_other(tmp_path, monkeypatch, call):
    path = save.write_file(tmp_path / "a.csv", b"old")
    monkeypatch.setattr(os, call, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(AnalysisError, match=r"a\.csv: No space left on device\n\nhint: cure"):
        save.write_file(path, b"new", "cure")

    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("pipe", "exists and is no file"), ("none/a", "there is no folder"), ("read", "is also an input file of this")],
)
def test_what_is_exported_takes_the_place_of_no_pipe_and_of_nothing_that_was_read_and_makes_no_folder(
    tmp_path, name, why
):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "read").write_bytes(b"read")
    before = sorted(tmp_path.iterdir())

    with pytest.raises(AnalysisError, match=why):
        save.export_file(tmp_path / name, b"x", [tmp_path / "gone", tmp_path / "read"])

    assert (sorted(tmp_path.iterdir()), (tmp_path / "read").read_bytes()) == (before, b"read")
    assert save.export_file(tmp_path / "other", b"x", [tmp_path / "read"]).read_bytes() == b"x"


@pytest.mark.parametrize(("name", "why"), [("link", "is a link"), ("file", "is no folder"), ("", ""), ("new", "")])
def test_results_go_into_folders_of_ones_own(tmp_path, name, why):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()

    save.require_own_folders(tmp_path / "link", "new")  # the user's own word
    if not why:
        return save.require_own_folders(tmp_path, name)
    with pytest.raises(AnalysisError, match=why):
        save.require_own_folders(tmp_path, name)
    return None
