"""What another user has prepared is not followed, not waited for and not overwritten."""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.system import files
from tests.jobs.durability import killed, watched

_PRIVATE = "private, of ours"


@pytest.fixture
def private(tmp_path):
    """Return a file of ours that no one may change through us."""
    file = tmp_path / "private"
    file.write_text(_PRIVATE)
    yield file
    assert file.read_text() == _PRIVATE


def _open_descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_what_is_written_is_there_and_nothing_else(tmp_path):
    files.write_text(tmp_path / "a", "old")

    files.write_text(tmp_path / "a", "new")

    assert files.read_file(tmp_path / "a") == b"new"
    assert files.names_in_folder(tmp_path) == ["a"]


WRITERS = {
    "text": lambda path: files.write_text(path, "new"),
    "JSON": lambda path: files.write_json(path, ["new"]),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_is_synced_before_it_has_its_name_and_its_folder_afterwards(tmp_path, monkeypatch, write):
    deeds, there = [], []

    def done(deed):
        deeds.append(deed)
        there.extend(path.read_bytes() for path in tmp_path.glob(".file.*"))

    watched(monkeypatch, done)

    write(tmp_path / "file")

    (verb, written), *named = deeds
    assert (verb, written.startswith(f"{tmp_path}/.file.")) == ("sync", True)
    assert there == [(tmp_path / "file").read_bytes()] * 2  # what is synced, and named, is all of it
    assert named == [("name", "file"), ("sync", str(tmp_path))]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_kill_at_any_point_leaves_the_old_file_or_the_new_one(tmp_path, write):
    write(tmp_path / "whole")
    new = (tmp_path / "whole").read_bytes()
    for point, left in enumerate((b"old", b"old", new)):
        (tmp_path / "file").write_bytes(b"old")

        assert killed(lambda: write(tmp_path / "file"), point)
        assert (tmp_path / "file").read_bytes() == left


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    files.write_text(tmp_path / "a", "old")

    with pytest.raises(TypeError), files.write_whole(tmp_path / "a") as file:
        file.writelines([b"new", None])
    with pytest.raises(ValueError, match="Out of range"):
        files.write_json(tmp_path / "a", {"b": [float("nan")]})

    assert (tmp_path / "a").read_text() == "old"
    assert files.names_in_folder(tmp_path) == ["a"]


def test_what_is_made_nobody_else_may_write(tmp_path):
    before = os.umask(0)
    try:
        files.make_folder(tmp_path / "folder")
        files.write_text(tmp_path / "folder" / "file", "")
        files.open_to_append(tmp_path / "folder" / "log").close()
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o755
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "folder").iterdir()} == {0o644}
    assert files.reason_to_distrust(tmp_path / "folder") == ""


@pytest.mark.parametrize(
    "act",
    [
        lambda folder: files.read_file(folder / "file"),
        lambda folder: files.write_text(folder / "file", "bad"),
        lambda folder: files.open_to_append(folder / "file"),
        lambda folder: files.make_folder(folder / "new"),
        files.names_in_folder,
        files.folder_tree,
        lambda folder: files.remove(folder / "file"),
        lambda folder: files.rename(folder / "file", folder / "other"),
        lambda folder: files.remove_tree(folder / "below"),
        files.sync_folder,
        files.reason_to_distrust,
    ],
)
def test_a_link_to_a_folder_is_not_followed(tmp_path, act):
    real = tmp_path / "real" / "below"
    real.mkdir(parents=True)
    (real / "file").write_text("kept")
    (real / "below").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    before = _open_descriptors()

    with pytest.raises(OSError, match="link") as found:
        act(tmp_path / "link" / "below")

    assert found.value.filename == str(tmp_path / "link")
    assert sorted(path.name for path in real.iterdir()) == ["below", "file"]
    assert (real / "file").read_text() == "kept"
    assert _open_descriptors() == before


def test_a_link_is_not_read_but_written_over_and_removed_itself(tmp_path, private):
    link = tmp_path / "link"
    link.symlink_to(private)

    with pytest.raises(files.OddFileError, match="no regular file"):
        files.read_file(link)
    with pytest.raises(files.OddFileError, match="no regular file"):
        files.open_to_append(link)
    files.write_text(link, "ours")

    assert not link.is_symlink()
    link.unlink()
    link.symlink_to(tmp_path)
    files.remove_tree(link)
    assert not os.path.lexists(link)


def test_what_is_removed_with_a_folder_is_not_what_its_links_lead_to(tmp_path, private):
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / "up").symlink_to(tmp_path)
    (tmp_path / "folder" / "file").symlink_to(private)

    (tmp_path / "folder" / "a").touch()
    assert [*files.folder_tree(tmp_path / "folder")] == ["a", "below", "below/up", "file"]
    files.remove_tree(tmp_path / "folder")

    assert files.names_in_folder(tmp_path) == ["private"]


def _huge(path):
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("make", "act", "why"),
    [
        (
            lambda path: path.hardlink_to(path.with_name("private")),
            files.open_to_append,
            "another owner, or hard links",
        ),
        (os.mkfifo, files.read_file, "no regular file"),
        (os.mkfifo, files.open_to_append, "no regular file"),
        (os.mkdir, files.read_file, "Is a directory|no regular file"),
        (_huge, lambda path: files.read_file(path, 100), "more than 100 bytes"),
    ],
    ids=["hard link", "pipe", "pipe to write", "folder", "huge"],
)
def test_what_is_no_file_of_ours_in_bounds_is_refused_and_not_waited_for(tmp_path, private, make, act, why):
    make(tmp_path / "odd")

    with pytest.raises(files.OddFileError, match=why):
        act(tmp_path / "odd")


def test_names_of_files_that_are_being_written_cannot_be_guessed(tmp_path):
    seen = set()
    for _ in range(2):
        with files.write_whole(tmp_path / "file"):
            seen |= {name for name in files.names_in_folder(tmp_path) if name.endswith(files.TEMPORARY)}

    assert len(seen) == 2


def test_a_folder_of_another_user_is_told_by_his_name(scratch, stranger):
    folder = scratch / "baseline"
    stranger(os.mkdir, folder)

    assert files.reason_to_distrust(folder) == f"{folder} belongs to nobody"


def test_a_folder_that_others_may_write_is_not_trusted(scratch):
    folder = scratch / "folder"
    files.make_folder(folder)
    assert files.reason_to_distrust(folder) == ""

    folder.chmod(0o775)
    assert "chmod go-w" in files.reason_to_distrust(folder)
    folder.chmod(0o755)
    scratch.chmod(0o777)
    assert "chmod +t" in files.reason_to_distrust(folder)


def test_a_folder_that_is_there_is_taken_and_a_link_to_one_is_not(tmp_path):
    files.make_folder(tmp_path / "folder", exist_ok=True)
    files.make_folder(tmp_path / "folder", exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / "folder")

    for name, exist_ok, error in (
        ("link", True, "link"),
        ("folder", False, "File exists"),
        ("none/x", True, "No such"),
    ):
        with pytest.raises(OSError, match=error):
            files.make_folder(tmp_path / name, exist_ok=exist_ok)


def test_the_stamps_of_files_in_folders_are_those_of_regular_ones_that_no_link_leads_to(tmp_path):
    for name in ("a", "b", "empty", "odd", "waits"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / name / "x").write_text(name)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "odd" / "x").symlink_to("../a/x")
    os.mkfifo(tmp_path / "waits" / "x")

    found = files.file_stamps(tmp_path, "x")

    assert found == {name: files.file_stamp(tmp_path / name / "x") for name in ("a", "b")}
    (tmp_path / "b" / "x").chmod(0o600)
    files.write_text(tmp_path / "a" / "x", "a")
    assert not set(found.items()) & set(files.file_stamps(tmp_path, "x").items())


NS = SimpleNamespace(f_bavail=3_000_000, f_blocks=9_000_000, f_bfree=5_000_000, f_frsize=4096, f_bsize=1 << 20)


def test_a_path_of_the_user_loses_its_links_and_a_loop_of_links_is_an_error_of_the_file_system(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "loop").symlink_to("loop")

    assert files.resolve_links("~/link") == tmp_path / "folder"
    with pytest.raises(OSError, match="Too many levels of symbolic links") as caught:
        files.resolve_links(tmp_path / "loop" / "below")
    assert caught.value.errno == errno.ELOOP


def test_what_this_user_may_still_write_is_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: NS)

    assert files.free_bytes(tmp_path) == 3_000_000 * 4096
    assert files.error_if_too_large(tmp_path, 3_000_000 * 4096) == ""
    lack = files.error_if_too_large(tmp_path, 17_000_000_000)
    assert lack == f"{tmp_path} needs 17,000 MB more, and its device has 12,288 MB free"
    assert files.error_if_too_large(tmp_path, 3_000_000 * 4096 + 1)
    assert [files.format_bytes(count) for count in (900, 9_999_000, 10_000_000)] == ["1 kB", "9,999 kB", "10 MB"]


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EIO, "x"), False),
        (ValueError("write: No space left on device [Op:SaveV2]"), True),
        (ValueError("Disk quota exceeded"), True),
        (ValueError("x"), False),
    ],
)
def test_a_full_storage_is_told_by_the_number_of_the_error_or_its_text(error, is_full):
    assert files.is_full(error) is is_full


@pytest.fixture
def clock(clock, monkeypatch):
    monkeypatch.setattr("time.monotonic", clock.now)
    return clock


@pytest.mark.parametrize(
    ("fails", "timeout_s", "waited_s"), [(0, 0.0, 0.0), (3, 3.5, 3.5), (9, 60.0, 55.5), (3, 3.4, None)]
)
def test_a_write_is_tried_again_at_growing_intervals_for_as_long_as_is_allowed(
    fails, timeout_s, waited_s, clock, capfd
):
    began_s, left = clock.now(), [fails]

    def write():
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.ENOSPC, "No space left on device", "/x")
        return "written"

    if waited_s is None:
        with pytest.raises(OSError, match="No space"):
            files.keep_trying(write, timeout_s)
    else:
        assert files.keep_trying(write, timeout_s) == "written"
        assert clock.now() - began_s == waited_s  # 0.5 + 1 + 2 + 4 + 8 + 10 ... s
        assert capfd.readouterr().err.count("cannot write /x (No space left on device)") == fails
