"""Folders of a burst buffer as it has not left them: cleared, claimed anew, unmounted, linked, damaged."""

import contextlib
import errno
import json
import shutil

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, snapshots
from jobs.checkpoints.lease import MARKER_NAME
from jobs.checkpoints.restart import DrainWarning
from jobs.errors import DamageError, FolderError
from jobs.store import transfer
from jobs.system import files
from tests.jobs.checkpoints.child import writer
from tests.jobs.checkpoints.shared import bytes_of, in_this_process, reasons, saved, snapshots_in, steps


def fails(*_):
    raise OSError(errno.EIO, "injected")


def test_a_drainer_does_not_go_on_trying_when_nothing_is_staged_any_more(folders, idle, monkeypatch):
    (name,) = saved(folders, 1, attempts=3, backoff_s=30)

    def cleared(_):
        snapshots_in(folders[0]).delete(name)

    monkeypatch.setattr(transfer, "copy_files", fails)
    monkeypatch.setattr("time.sleep", cleared)

    assert drain_loop.drain_snapshots(*folders) == 0
    assert len(reasons(folders[0])) == 1


def test_a_drainer_leaves_a_folder_that_is_another_buffers_by_now(folders, idle, monkeypatch):
    saved(folders, 1, attempts=3, backoff_s=30)
    marker = folders[0] / MARKER_NAME

    def claimed_anew(*_):
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "id": "another"}))
        fails()

    monkeypatch.setattr(transfer, "copy_files", claimed_anew)

    assert drain_loop.drain_snapshots(*folders) == 0
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

        assert snapshots_in(folders[0]).verify(saved.name) is None
        assert "-step1-" in str(buffer.latest())

    snapshots_in(folders[0]).recover()
    assert [snapshots.training_step(name) for name in snapshots_in(folders[0]).states()] == [1]
    assert not saved.is_symlink()
    assert (kept / snapshots.MANIFEST_NAME).exists() is leads


DEEP = "/".join(["d"] * (files.DEEPEST + 1))


def test_a_snapshot_of_folders_too_deep_in_each_other_is_refused_and_blocks_nothing(folders, idle):
    def write(folder, depth):
        writer(1)(folder)
        for above in range(depth):
            folder.joinpath(*["d"] * (above + 1)).mkdir()
        folder.joinpath(*["d"] * depth, "end").write_bytes(b"x")

    with contextlib.closing(BurstBuffer(*folders, keep=1)) as buffer:
        with pytest.raises(DamageError, match="more than 64 nested folders") as refused:
            buffer.save(1, lambda folder: write(folder, files.DEEPEST + 1))
        assert snapshots_in(folders[0]).states() == {}
        buffer.save(2, lambda folder: write(folder, files.DEEPEST))
        assert drain_loop.drain_snapshots(*folders) == 0
        assert [snapshots_in(side).verify(name) for side in folders for name in snapshots_in(side).states()] == [[], []]
        buffer.save(3, writer(3))
        assert drain_loop.drain_snapshots(*folders) == 0

    assert refused.value.hint == "write files in fewer folders"
    assert [steps(side) for side in folders] == [[3], [3]]


def test_folders_too_deep_in_each_other_that_a_kill_left_are_named_and_cleared(folders, idle, capsys):
    (name,) = saved(folders, 1)
    (folders[0] / name / snapshots.MANIFEST_NAME).unlink()
    (folders[0] / name / "files" / DEEP).mkdir(parents=True)

    code, said, _ = in_this_process(capsys, "list", *folders)
    assert (code, said.split()[:2]) == (0, [name, "incomplete"])
    assert in_this_process(capsys, "clear", *folders)[0] == 0
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("marker", ["[]", '{"schema":1,"id":"a","role":"other"}'])
def test_an_odd_marker_is_said_to_be_none(folders, marker):
    folders[0].mkdir()
    (folders[0] / MARKER_NAME).write_text(marker)

    with pytest.raises(FolderError, match=f"{MARKER_NAME}.* is not a valid marker"):
        BurstBuffer(*folders)


def test_options_in_a_marker_that_nobody_knows_are_told(folders, idle, capsys):
    BurstBuffer(*folders).close()
    marker = folders[0] / MARKER_NAME
    marker.write_text(marker.read_text().replace('"keep"', '"kep"'))

    code, _, said = in_this_process(capsys, "list", *folders)

    assert (code, "the options in the marker file .tfio-burst-buffer.json are not valid" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fast", "other_slow"), "belong to two burst buffers"),
        (("fast", "empty"), "was drained to a store with a marker"),
        (("empty", "slow"), "is no side of a burst buffer"),
        (("empty", "nothing"), "is no side of a burst buffer"),
        (("typo", "slow"), "typo is missing"),
        (("--gone", "fast", "slow"), "still exists"),
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
        assert drain_loop.drain_snapshots(*sides) == 0
    before = bytes_of(tmp_path)

    code, _, why = in_this_process(capsys, "clear", *(word if word[0] == "-" else tmp_path / word for word in words))

    assert (code, said in why) == (2, True), why
    assert bytes_of(tmp_path) == before
    assert (tmp_path / "empty").is_dir()


@pytest.mark.parametrize("side", [0, 1], ids=["fast", "slow"])
def test_clear_by_hand_leaves_a_snapshot_whose_manifest_is_a_folder_by_now_and_removes_the_others(
    folders, idle, capsys, side
):
    _, name, _ = saved(folders, 1, 2, 3)
    assert drain_loop.drain_snapshots(*folders) == 0
    manifest = folders[side] / name / snapshots.MANIFEST_NAME
    manifest.unlink()
    manifest.mkdir()
    (manifest / "thesis.tex").write_text("years")

    code, _, why = in_this_process(capsys, "clear", *folders)

    left = f"these snapshots could not be removed: {folders[side]}/{name} (Is a directory: {manifest})"
    assert (code, left in why) == (2, True), why
    assert [[*snapshots_in(folder).states()] for folder in folders] == [[name] * (number == side) for number in (0, 1)]
    assert (manifest / "thesis.tex").read_text() == "years"
    shutil.rmtree(manifest)
    assert in_this_process(capsys, "clear", *folders)[0] == 0
    assert not any(folder.exists() for folder in folders)


def test_clear_by_hand_removes_the_slow_side_of_a_fast_one_that_is_gone_and_says_so(folders, idle, capsys):
    saved(folders, 1)
    assert drain_loop.drain_snapshots(*folders) == 0
    shutil.rmtree(folders[0])

    code, said, _ = in_this_process(capsys, "clear", "--gone", *folders)

    assert (code, str(folders[1]) in said) == (0, True)
    assert not any(folder.exists() for folder in folders)
