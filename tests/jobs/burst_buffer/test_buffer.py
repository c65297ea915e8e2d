"""The burst buffer where all goes well, and where it is used wrongly."""

import contextlib
import json
import subprocess
import time
from pathlib import Path

import pytest

from jobs.burst_buffer import BurstBuffer, drain_loop, lease, snapshots
from jobs.burst_buffer.marker import MARKER_NAME
from jobs.burst_buffer.restart import latest
from jobs.burst_buffer.snapshots import MANIFEST_NAME as MANIFEST
from jobs.errors import FolderError, RoomError
from tests.jobs.burst_buffer.child import contents, writer
from tests.jobs.burst_buffer.shared import (
    ROOT,
    by_hand,
    bytes_of,
    command,
    drainer_ended,
    in_this_process,
    saved,
    steps,
    waits_for_drainer,
)  # fmt: skip
from tests.jobs.durability import watched
from tests.jobs.jobs_factory import eventually


@pytest.fixture
def opened(folders):
    """Open buffers on the two folders; drained and closed in the end."""
    with contextlib.ExitStack() as stack:

        def open_one(**options):
            return stack.enter_context(contextlib.closing(BurstBuffer(*folders, **options)))

        yield open_one
    if all(folder.is_dir() for folder in folders):
        drainer_ended(folders[0])


def test_save_makes_every_file_and_name_durable_before_it_comes_back(folders, idle, monkeypatch):
    deeds = []
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        watched(monkeypatch, deeds.append)
        name = buffer.save(1, writer(1)).name

    staging, synced = folders[0] / f"staging-{name}", [Path(path) for verb, path in deeds if verb == "sync"]
    files = [staging / "files" / file for file in contents(1)]
    assert {*files, staging / "files", staging / "files" / "shards", staging, folders[0]} <= set(synced)
    assert synced[-1] == folders[0]


def test_a_snapshot_is_durable_on_the_slow_storage_before_it_is_seen_there(folders, idle, monkeypatch):
    (name,) = saved(folders, 1)
    deeds = []
    watched(monkeypatch, lambda deed: deeds.append(Path(deed[1])))

    assert drain_loop.drain(*folders) == 0

    copying, seen = folders[1] / f"copying-{name}", deeds.index(Path(name))
    files = [copying / "files" / file for file in contents(1)]
    assert {*files, copying / "files", copying / "files" / "shards", copying, folders[1]} <= set(deeds[:seen])
    assert deeds[seen + 1] == folders[1]
    manifest = max(place for place, deed in enumerate(deeds[:seen]) if MANIFEST in str(deed))
    assert all(deeds.index(file) < manifest for file in files)


def test_the_drain_goes_on_after_the_training_has_ended(folders):
    buffer = BurstBuffer(*folders, bandwidth_mb_per_s=1)
    buffer.save(1, writer(1))
    buffer.close()
    assert steps(folders[1]) == []

    assert eventually(lambda: steps(folders[1]) == [1])


def test_a_later_process_finishes_what_was_not_drained(folders, idle):
    saved(folders, 1, 2)

    assert by_hand("drain", *folders).returncode == 0
    assert steps(folders[1]) == [1, 2]


def test_a_new_fast_folder_joins_the_buffer_of_the_slow_one(folders, tmp_path, opened):
    with contextlib.closing(BurstBuffer(*folders)) as first:
        saved = first.save(1, writer(1))
        assert first.drained(20)
        assert saved.path.parent.parent == folders[0]
        assert bytes_of(saved.path) == bytes_of(folders[1] / saved.name / "files") == contents(1)

    with contextlib.closing(BurstBuffer(tmp_path / "new node", folders[1])) as second:
        assert bytes_of(second.latest()) == contents(1)
        second.save(2, writer(2))
        assert second.drained(20)

    assert steps(folders[1]) == [1, 2]


@pytest.mark.parametrize("when", ["before it is read", "while it is read"])
def test_a_fast_copy_that_is_let_go_while_the_newest_is_looked_for_is_no_loss(folders, idle, monkeypatch, when):
    saved(folders, 1, 2)
    look = snapshots.problems

    def let_go(files, *words, **keys):
        monkeypatch.setattr(snapshots, "problems", look)
        assert drain_loop.drain(*folders) == 0  # the slow copies were not there when the search began
        if when == "before it is read":
            snapshots.remove(files.parent)
            return look(files, *words, **keys)
        (files / "ckpt.index").unlink()
        snapshots.remove(files.parent)
        raise FileNotFoundError(2, "No such file or directory", "ckpt.index")

    monkeypatch.setattr(snapshots, "problems", let_go)

    assert bytes_of(latest(*folders)) == contents(2)


@pytest.mark.parametrize("keep", [1, 2])
def test_the_newest_snapshots_are_kept_on_both_storages(folders, idle, keep):
    saved(folders, *range(1, 5), keep=keep)
    assert steps(folders[0]) == [1, 2, 3, 4]

    assert drain_loop.drain(*folders) == 0

    assert steps(folders[0]) == steps(folders[1]) == [1, 2, 3, 4][-keep:]


def test_a_step_saved_again_after_a_restart_is_the_newest(folders, idle):
    names = saved(folders, 20, 40) + saved(folders, 20)

    assert [snapshots.sequence(name) for name in names] == [1, 2, 3]
    assert bytes_of(latest(*folders)) == contents(20)


def test_a_writer_that_fails_leaves_nothing(folders, idle):
    def write(folder):
        writer(2)(folder)
        raise RuntimeError("out of memory")

    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        with pytest.raises(RuntimeError, match="out of memory"):
            buffer.save(2, write)

        assert bytes_of(buffer.latest()) == contents(1)
    assert [path.name for path in folders[0].iterdir() if "step2" in path.name] == []


def test_a_snapshot_of_nothing_or_of_links_is_refused(folders, idle):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        with pytest.raises(snapshots.DamageError, match="nothing was written"):
            buffer.save(1, lambda folder: None)
        with pytest.raises(snapshots.DamageError, match="no regular file"):
            buffer.save(1, lambda folder: (folder / "link").symlink_to("/etc/passwd"))


def test_the_report_says_when_each_snapshot_was_durable_where(opened):
    buffer = opened(bandwidth_mb_per_s=1)
    saved = buffer.save(7, writer(7))
    ended = time.time()
    assert buffer.drained(20)

    (line,) = buffer.report(ended)

    assert (line["step"], line["bytes"], line["retries"]) == (7, 300_101, 0)
    assert line["durable_fast_s"] == line["blocked_s"] == saved.blocked_s >= saved.write_s > 0
    assert line["drain_s"] >= 0.3  # 0.3 MB at 1 MB/s
    assert 0 < line["exposed_s"] <= line["drain_s"]
    assert line["durable_slow_s"] >= line["drain_s"]
    assert buffer.report()[0]["exposed_s"] == 0.0


def test_two_trainers_cannot_share_a_folder(folders, tmp_path, idle, monkeypatch):
    monkeypatch.setattr(lease, "_TRAINER_WAIT_S", 0.1)
    with contextlib.closing(BurstBuffer(*folders)):
        with pytest.raises(FolderError, match="in use by another trainer"):
            BurstBuffer(*folders)
        with pytest.raises(FolderError, match="in use by another trainer"):
            BurstBuffer(tmp_path / "other", folders[1])

    BurstBuffer(*folders).close()


def test_a_second_drainer_waits_for_the_first(folders, idle):
    saved(folders, 1)
    with lease.lock(folders[0], "drainer"):
        second = subprocess.Popen(command("drain", *folders), cwd=ROOT)
        assert eventually(lambda: waits_for_drainer(folders[0]))
        assert steps(folders[1]) == []

    assert second.wait(30) == 0
    assert steps(folders[1]) == [1]


def test_direct_io_is_refused_before_the_training_where_there_is_none(folders, monkeypatch):
    monkeypatch.setattr("jobs.system.transfer.refuses_direct", lambda folder: True)

    with pytest.raises(FolderError, match="no direct I/O"):
        BurstBuffer(*folders, direct=True)


def test_what_was_torn_when_a_marker_was_written_is_no_stranger_and_goes(folders, idle):
    for folder in folders:
        folder.mkdir()
        (folder / f".{MARKER_NAME}.123.tmp").write_text("{")

    BurstBuffer(*folders).close()

    assert [path for folder in folders for path in folder.glob(".*.tmp")] == []


def test_a_folder_without_a_marker_is_never_touched(folders, tmp_path):
    folders[1].mkdir()
    (folders[1] / "thesis.tex").write_text("years of work")
    (folders[1] / "00000001-step1-00000000").mkdir()

    with pytest.raises(FolderError, match="holds other files, 2 in all"):
        BurstBuffer(*folders)

    assert sorted(path.name for path in folders[1].iterdir()) == ["00000001-step1-00000000", "thesis.tex"]
    assert list(folders[0].iterdir()) == []


def test_other_files_in_our_folder_stay(folders, idle):
    BurstBuffer(*folders).close()
    for folder in folders:
        (folder / "notes").mkdir()
        (folder / "staging-mine").mkdir()
    saved(folders, *range(3), keep=1)
    assert drain_loop.drain(*folders) == 0

    assert all((folder / name).is_dir() for folder in folders for name in ("notes", "staging-mine"))


def test_a_slow_storage_that_is_not_mounted_any_more_is_not_taken_for_a_new_one(folders, idle):
    BurstBuffer(*folders).close()
    folders[1].rename(folders[1].with_name("unmounted"))
    folders[1].mkdir()

    with pytest.raises(FolderError, match="is empty") as caught:
        BurstBuffer(*folders)

    assert list(folders[1].iterdir()) == []
    assert "mount the slow storage" in caught.value.hint


def test_folders_of_two_buffers_and_of_the_wrong_side_are_refused(folders, tmp_path, idle):
    BurstBuffer(*folders).close()
    others = tmp_path / "fast2", tmp_path / "slow2"
    BurstBuffer(*others).close()

    with pytest.raises(FolderError, match="two burst buffers"):
        BurstBuffer(folders[0], others[1])
    with pytest.raises(FolderError, match="is the slow side"):
        BurstBuffer(folders[1], folders[0])
    with pytest.raises(FolderError, match="lie in one another"):
        BurstBuffer(folders[0], folders[0] / "slow")
    assert not (folders[0] / "slow").exists()
    with pytest.raises(FolderError, match="/not is missing; make it"):
        BurstBuffer(folders[0], tmp_path / "not" / "there")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("file", ["marker", "manifest"])
def test_a_newer_version_is_refused(folders, idle, which, file):
    (name,) = saved(folders, 1)
    assert drain_loop.drain(*folders) == 0
    path = folders[which] / (MARKER_NAME if file == "marker" else f"{name}/{snapshots.MANIFEST_NAME}")
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))

    with pytest.raises(FolderError, match="schema 2, newer than 1"):
        BurstBuffer(*folders)


def test_too_little_room_for_one_snapshot_is_said_before_the_training(folders):
    with pytest.raises(RoomError, match="does not fit"):
        BurstBuffer(*folders, snapshot_bytes=10**16)


@pytest.mark.parametrize(
    "options",
    [
        *({"keep": 0}, {"streams": 0}, {"attempts": 0}, {"bandwidth_mb_per_s": 0}, {"backoff_s": -1}),
        *({"when_full": "drop"}, {"keep": 1.5}, {"attempts": "3"}),
    ],
)
def test_what_cannot_be_meant_is_refused(folders, options):
    with pytest.raises(ValueError, match=r"negative|1 or more|more than 0|when_full|whole numbers"):
        BurstBuffer(*folders, **options)


def test_status_and_verify_tell_where_snapshots_are_and_what_is_wrong(folders, idle, capsys):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        name = buffer.save(1, writer(1)).name
        assert drain_loop.drain(*folders) == 0
        waiting = buffer.save(2, writer(2)).name
    (folders[1] / name / "files" / "empty").write_bytes(b"!")

    status, verified = (in_this_process(capsys, verb, *folders) for verb in ("status", "verify"))

    assert (status[0], verified[0]) == (0, 1)
    assert {(line.split()[0], line.split()[1]) for line in status[1].splitlines()} == {
        (name, "evictable"), (waiting, "staged"), (name, "committed"),
    }  # fmt: skip
    assert f"{name}  {folders[1]}  empty has 1 bytes of 0" in verified[1]


def test_the_verbs_leave_a_folder_of_somebody_else_alone(folders, capsys):
    for folder in folders:
        folder.mkdir()
    (folders[1] / "thesis.tex").write_text("years of work")

    code, _, said = in_this_process(capsys, "drain", *folders)

    assert (code, "error: " in said, "hint: name an empty folder" in said) == (2, True, True)
    assert [path.name for folder in folders for path in folder.iterdir()] == ["thesis.tex"]


def test_what_cannot_be_printed_is_no_damage(folders, idle):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, lambda place: (place / "x").write_text("x"))
    with Path("/dev/full").open("w") as full:
        done = by_hand("verify", *folders, stdout=full)

    assert done.returncode == 2
    assert "No space left on device" in done.stderr
