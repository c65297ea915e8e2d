"""Folders of a burst buffer as it has not left them: cleared, claimed anew, unmounted, linked, damaged."""

import contextlib
import errno
import json
import shutil

import pytest

from jobs.burst_buffer import BurstBuffer, drain_loop, snapshots
from jobs.burst_buffer.marker import MARKER_NAME
from jobs.burst_buffer.restart import DrainWarning, latest
from jobs.errors import FolderError
from jobs.system import transfer
from tests.jobs.burst_buffer.child import writer
from tests.jobs.burst_buffer.shared import bytes_of, in_this_process, reasons, saved, steps


def fails(*_):
    raise OSError(errno.EIO, "injected")


def test_a_drainer_does_not_go_on_trying_when_nothing_is_staged_any_more(folders, idle, monkeypatch):
    (name,) = saved(folders, 1, attempts=3, backoff_s=30)

    def cleared(_):
        snapshots.remove(folders[0] / name)

    monkeypatch.setattr(transfer, "copy", fails)
    monkeypatch.setattr("time.sleep", cleared)

    assert drain_loop.drain(*folders) == 0
    assert len(reasons(folders[0])) == 1


def test_a_drainer_leaves_a_folder_that_is_another_buffers_by_now(folders, idle, monkeypatch):
    saved(folders, 1, attempts=3, backoff_s=30)
    marker = folders[0] / MARKER_NAME

    def claimed_anew(*_):
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "id": "another"}))
        fails()

    monkeypatch.setattr(transfer, "copy", claimed_anew)

    assert drain_loop.drain(*folders) == 0
    assert reasons(folders[0]) == []
    assert steps(folders[0]) == [1]


def test_without_the_slow_storage_the_newest_is_that_of_the_fast_one(folders, idle):
    buffer = BurstBuffer(*folders)
    saved = buffer.save(1, writer(1))
    shutil.rmtree(folders[1])

    with pytest.warns(DrainWarning, match=f"{folders[1]} cannot be read: No such file"):
        assert buffer.latest() == saved.path


@pytest.mark.parametrize("leads", [True, False], ids=["leads somewhere", "dangles"])
def test_a_link_in_the_place_of_a_snapshot_is_none_and_only_the_link_is_taken_away(folders, idle, tmp_path, leads):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        saved = buffer.save(2, writer(2)).path.parent
        kept = tmp_path / "kept"
        saved.rename(kept if leads else tmp_path / "elsewhere")
        saved.symlink_to(kept)

        assert snapshots.verify(saved) == ["it is a link"]
        with pytest.warns(DrainWarning, match="it is a link"):
            assert "-step1-" in str(buffer.latest())

    snapshots.remove(saved)
    assert steps(folders[0]) == [1]
    assert not list(folders[0].glob("removing-*"))
    assert (kept / snapshots.MANIFEST_NAME).exists() is leads


@pytest.mark.parametrize("marker", ["[]", '{"schema":1,"id":"a","role":"other"}'])
def test_an_odd_marker_is_said_to_be_none(folders, marker):
    folders[0].mkdir()
    (folders[0] / MARKER_NAME).write_text(marker)

    with pytest.raises(FolderError, match=f"{MARKER_NAME}.* is no marker of ours"):
        BurstBuffer(*folders)


def test_options_in_a_marker_that_nobody_knows_are_told(folders, idle, capsys):
    BurstBuffer(*folders).close()
    marker = folders[0] / MARKER_NAME
    marker.write_text(marker.read_text().replace('"keep"', '"kep"'))

    code, _, said = in_this_process(capsys, "status", *folders)

    assert (code, "the marker's options are none of ours" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fast", "other_slow"), "belong to two burst buffers"),
        (("fast", "empty"), "has been drained to a folder with a marker"),
        (("empty", "slow"), "is no side of a burst buffer"),
        (("empty", "nothing"), "is no side of a burst buffer"),
        (("typo", "slow"), "typo is missing"),
        (("--gone", "fast", "slow"), "is there"),
        (("--gone", "typo", "empty"), "is no side of a burst buffer"),
        (("--gone", "typo", "fast"), "is no side of a burst buffer"),
    ],
)
def test_clear_by_hand_removes_nothing_where_the_sides_do_not_belong_together(tmp_path, idle, capsys, words, said):
    for name in ("fast", "slow", "other_fast", "other_slow", "empty", "nothing"):
        (tmp_path / name).mkdir()
    for one in ("", "other_"):
        sides = [tmp_path / f"{one}fast", tmp_path / f"{one}slow"]
        saved(sides, 1)
        assert drain_loop.drain(*sides) == 0
    before = bytes_of(tmp_path)

    code, _, why = in_this_process(capsys, "clear", *(word if word[0] == "-" else tmp_path / word for word in words))

    assert (code, said in why) == (2, True), why
    assert bytes_of(tmp_path) == before
    assert (tmp_path / "empty").is_dir()


@pytest.mark.parametrize("gone", [False, True])
def test_clear_by_hand_removes_a_burst_buffer_and_says_so(folders, idle, capsys, gone):
    saved(folders, 1)
    assert drain_loop.drain(*folders) == 0
    if gone:
        shutil.rmtree(folders[0])

    code, said, _ = in_this_process(capsys, "clear", *["--gone"] * gone, *folders)

    assert (code, str(folders[1]) in said) == (0, True)
    assert not any(folder.exists() for folder in folders)


def test_a_snapshot_that_is_listed_for_ever_and_never_there_is_told_and_an_older_one_found(folders, idle, monkeypatch):
    (name,) = saved(folders, 1)
    listed = snapshots.names
    gone = "00000002-step2-01234567"
    monkeypatch.setattr(snapshots, "names", lambda root, state=None: [*listed(root, state), *[gone] * (not state)])

    with pytest.warns(DrainWarning, match=f"{gone}: it is listed and is not there"):
        assert latest(folders[0]) == folders[0] / name / "files"
