"""The burst buffer where all goes well, and where it is used wrongly."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, lease
from jobs.checkpoints.buffer import DirectTarget
from jobs.checkpoints.lease import MARKER_NAME
from jobs.checkpoints.snapshots import MANIFEST_NAME as MANIFEST
from jobs.checkpoints.snapshots import Snapshots
from jobs.errors import DamageError, FolderError, RoomError
from jobs.system import clock
from tests.jobs.checkpoints.child import contents, writer
from tests.jobs.checkpoints.shared import (
    ROOT,
    by_hand,
    bytes_of,
    command,
    drainer_ended,
    drainer_lock,
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

    durable_before_it_is_seen(deeds, folders[0], name)


def test_a_snapshot_is_durable_on_the_slow_storage_before_it_is_seen_there(folders, idle, monkeypatch):
    (name,) = saved(folders, 1)
    deeds = []
    watched(monkeypatch, deeds.append)

    assert drain_loop.drain_snapshots(*folders) == 0

    durable_before_it_is_seen(deeds, folders[1], name)


def durable_before_it_is_seen(deeds, root, name):
    """The manifest gets its name when all else is durable, and that name is durable at the end."""
    seen, folder = deeds.index(("name", MANIFEST)), root / name
    files = [folder / "files" / file for file in contents(1)]
    before = [folder / f"files/{part}" for part in ("", "shards")]
    assert {*files, *before, folder, root} <= {Path(path) for verb, path in deeds[:seen] if verb == "sync"}
    assert deeds[seen - 1][0] == "sync"
    assert MANIFEST in deeds[seen - 1][1]
    assert deeds[seen + 1] == ("sync", str(folder))


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
        with pytest.raises(DamageError, match="nothing was written"):
            buffer.save(1, lambda folder: None)
        with pytest.raises(DamageError, match="no regular file"):
            buffer.save(1, lambda folder: (folder / "link").symlink_to("/etc/passwd"))


def test_the_report_says_when_each_snapshot_was_durable_where(opened):
    buffer = opened(bandwidth_mb_per_s=1)
    saved = buffer.save(7, writer(7))
    ended = clock.current_moment()
    assert buffer.wait_until_drained(120)

    (line,) = buffer.report(ended)

    assert (line["step"], line["bytes"], line["retries"]) == (7, 300_101, 0)
    assert line["durable_fast_s"] == line["blocked_s"] == saved.blocked_s >= saved.write_s > 0
    assert line["drain_s"] >= 0.3  # 0.3 MB at 1 MB/s
    assert 0 < line["exposed_s"] <= line["drain_s"]
    assert line["durable_slow_s"] >= line["drain_s"]
    assert buffer.report()[0]["exposed_s"] == 0.0


def test_a_second_drainer_waits_for_the_first_and_says_so(folders, idle):
    saved(folders, 1)
    with drainer_lock(folders[0]):
        second = subprocess.Popen(command("drain", *folders), cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: waits_for_drainer(folders[0]))
        assert steps(folders[1]) == []

    said = f"waiting for the drainer of {folders[0]}, which stays as long as its trainer\n"
    assert (second.communicate(timeout=120)[1], second.returncode) == (said, 0)
    assert steps(folders[1]) == [1]


def test_what_was_torn_when_a_marker_was_written_is_no_stranger_and_goes(folders, idle):
    for folder in folders:
        folder.mkdir()
        (folder / f".{MARKER_NAME}.123.tmp").write_text("{")

    BurstBuffer(*folders).close()

    assert [path for folder in folders for path in folder.glob(".*.tmp")] == []


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
    with pytest.raises(FolderError, match="or one is inside the other"):
        BurstBuffer(folders[0], folders[0] / "slow")
    assert not (folders[0] / "slow").exists()
    with pytest.raises(FolderError, match="/not is missing; make the folder"):
        BurstBuffer(folders[0], tmp_path / "not" / "there")


@pytest.mark.parametrize("taken", ["fast", "slow", "both", "only"])
def test_a_trainer_of_folders_that_another_one_uses_hears_so_and_leaves_no_folder(
    folders, tmp_path, idle, monkeypatch, taken
):
    monkeypatch.setattr(lease, "_TRAINER_WAIT_S", 0.1)
    mine = {"fast": (folders[0], tmp_path / "new"), "slow": (tmp_path / "new", folders[1]), "both": folders}
    with contextlib.closing(BurstBuffer(*folders)):
        with pytest.raises(FolderError, match="is in use by another trainer") as refused:
            DirectTarget(folders[0]) if taken == "only" else BurstBuffer(*mine[taken])
        assert refused.value.hint == "give each training its own folders"
        assert sorted(tmp_path.iterdir()) == sorted(folders)


def test_too_little_room_for_one_snapshot_is_said_before_the_training(folders):
    with pytest.raises(RoomError, match="does not fit"):
        BurstBuffer(*folders, snapshot_bytes=10**16)


@pytest.mark.parametrize(
    "options",
    [
        *({"keep": 0}, {"streams": 0}, {"attempts": 0}, {"bandwidth_mb_per_s": 0}, {"backoff_s": -1}),
        *({"keep": 1.5}, {"attempts": "3"}),
    ],
)
def test_what_cannot_be_meant_is_refused(folders, options):
    with pytest.raises(ValueError, match=r"negative|1 or more|more than 0|whole numbers"):
        BurstBuffer(*folders, **options)


def test_what_cannot_be_printed_is_no_damage(folders, idle):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, lambda place: (place / "x").write_text("x"))
    with Path("/dev/full").open("w") as full:
        done = by_hand("list", *folders, stdout=full)

    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "hint: make sure that standard output can be written" in done.stderr


def test_what_is_listed_for_a_program_that_reads_no_more_is_no_error(folders, idle):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as nobody:
        done = by_hand("list", *folders, stdout=nobody)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_ctrl_c_ends_a_drain_by_hand_without_a_traceback(folders, idle, capsys, monkeypatch):
    codes = []
    saved(folders, 1)
    monkeypatch.setattr(drain_loop, "drain_snapshots", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr(os, "_exit", lambda code: codes.append(code) or sys.exit(code))

    code, *said = in_this_process(capsys, "drain", *folders)

    assert (code, codes, said) == (128 + signal.SIGINT, [130], ["", ""])


def test_a_folder_of_any_name_stands_on_one_line_and_acts_on_no_terminal(tmp_path, idle, capsys):
    places = [tmp_path / "two\nlines\x1b[31m" / side for side in ("fast", "slow")]
    places[0].parent.mkdir()
    saved(places, 1)

    said = [in_this_process(capsys, verb, *places) for verb in ("list", "clear", "list")]

    assert all("two\\nlines\\x1b[31m" in out + error and "\x1b" not in out + error for _, out, error in said)
    assert [out.count("\n") for _, out, _ in said] == [1, 1, 0]


def test_a_snapshot_that_a_drainer_removes_meanwhile_is_not_called_good(folders, idle, capsys, monkeypatch):
    first, second = saved(folders, 1, 2)
    verify = Snapshots.verify
    monkeypatch.setattr(Snapshots, "verify", lambda self, name: None if name == first else verify(self, name))

    code, out, _ = in_this_process(capsys, "list", "--verify", *folders)

    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, [second])
