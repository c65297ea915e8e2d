"""Full and read-only storages under the burst buffer; they are real (tmpfs)."""

import contextlib
import errno
import os
import warnings

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop
from jobs.checkpoints.restart import DrainWarning, latest_snapshot
from jobs.checkpoints.snapshots import Snapshots
from jobs.errors import RoomError
from jobs.store import transfer
from tests.jobs.checkpoints.child import writer
from tests.jobs.checkpoints.shared import blob, in_this_process, saved, steps
from tests.lies import setup

pytestmark = pytest.mark.long

MB = 10**6
QUICK = {"attempts": 2, "backoff_s": 0.01}


@pytest.fixture
def small_fast(folders, staged):
    staged(setup.memory, folders[0], 4)


@pytest.fixture
def small_slow(folders, staged):
    """Make the slow folder a storage of 1 MiB; returns what changes its options."""
    point = staged(setup.memory, folders[1], 1)
    return lambda options: setup.call("mount", "-o", f"remount,{options}", point)


def test_a_full_fast_storage_blocks_until_the_drainer_has_made_room(folders, small_fast):
    with contextlib.closing(BurstBuffer(*folders, bandwidth_mb_per_s=4)) as buffer:
        saved = [buffer.save(step, writer(step, 15 * MB // 10)) for step in range(6)]
        assert buffer.wait_until_drained(120)

    assert all(snapshot.where == "fast" for snapshot in saved)
    assert max(snapshot.waited_s for snapshot in saved) > 0.05
    assert all(snapshot.blocked_s >= snapshot.waited_s + snapshot.write_s for snapshot in saved)
    assert buffer.report()[-1]["waited_s"] == saved[-1].waited_s
    assert steps(folders[1])[-5:] == [1, 2, 3, 4, 5]
    assert blob(latest_snapshot(*folders)) == bytes([5]) * (15 * MB // 10)


def test_fast_copies_go_only_when_the_slow_storage_has_them(folders, small_fast, idle):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        for step in (0, 1):
            buffer.save(step, writer(step, 15 * MB // 10))
        with pytest.raises(RoomError, match="the drain has stopped"):
            buffer.save(2, writer(2, 15 * MB // 10))
        assert steps(folders[0]) == [0, 1]
        assert steps(folders[0], "incomplete") == []

        assert drain_loop.drain_snapshots(*folders) == 0
        buffer.save(2, writer(2, 15 * MB // 10))

    assert steps(folders[0]) == [1, 2]
    assert steps(folders[1]) == [0, 1]


def test_a_snapshot_larger_than_the_fast_storage_is_refused_not_waited_for(folders, small_fast, idle):
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        with pytest.raises(RoomError, match="one snapshot does not fit"):
            buffer.save(0, writer(0, 8 * MB))
        assert buffer.latest() is None


def test_a_training_can_start_again_on_a_fast_storage_without_a_free_byte(folders, small_fast, idle):
    saved(folders, 1, size=3 * MB)
    with (folders[0] / "somebody else's").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert drain_loop.drain_snapshots(*folders) == 0

    with contextlib.closing(BurstBuffer(*folders, keep=2)) as buffer:
        assert blob(buffer.latest()) == bytes([1]) * 3 * MB
        buffer.save(2, writer(2, MB))

    assert (steps(folders[0]), steps(folders[1])) == ([2], [1])


def test_a_full_slow_storage_is_told_at_the_next_save_and_keeps_the_fast_copy(folders, small_slow):
    with contextlib.closing(BurstBuffer(*folders, **QUICK)) as buffer:
        buffer.save(1, writer(1, 2 * MB))
        assert not buffer.wait_until_drained(30)

        with pytest.warns(DrainWarning, match="ENOSPC: No space left on device"):
            saved = buffer.save(2, writer(2, 2 * MB))

        assert any("ENOSPC" in trouble for trouble in buffer.report()[1]["troubles"])
        assert any("gave_up" in trouble for trouble in saved.troubles)
        assert (steps(folders[0]), steps(folders[1])) == ([1, 2], [])

        small_slow("size=16m")
        assert buffer.wait_until_drained(120)
    assert steps(folders[1]) == [1, 2]


def test_a_save_that_waits_for_room_says_meanwhile_why_the_drain_fails(folders, small_fast, small_slow):
    with contextlib.closing(BurstBuffer(*folders, **QUICK)) as buffer:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for step in (1, 2):
                buffer.save(step, writer(step, 15 * MB // 10))
            with pytest.raises(RoomError, match=r"is full and the drain has stopped: .*No space left"):
                buffer.save(3, writer(3, 15 * MB // 10))

        waiting = [str(each.message) for each in told if "waiting for free space on" in str(each.message)]
        assert any("No space left" in each for each in waiting)
        assert (steps(folders[0]), steps(folders[1])) == ([1, 2], [])


def test_a_read_only_slow_storage_is_named_at_once(folders, small_slow, idle, capsys):
    saved(folders, 1)
    small_slow("ro")

    code, _, said = in_this_process(capsys, "drain", *folders)

    assert (code, said.splitlines()[0]) == (
        drain_loop.GAVE_UP,
        f"error: the drain gave up: EROFS: Read-only file system: {folders[1]}/.tfio-burst-buffer.drainer.lock",
    )
    assert steps(folders[0]) == [1]

    small_slow("rw")
    assert drain_loop.drain_snapshots(*folders) == 0
    assert steps(folders[1]) == [1]


def test_a_slow_storage_that_turns_read_only_while_it_copies_is_tidied_up_later(folders, small_slow, idle, monkeypatch):
    saved(folders, 1, **QUICK)

    def cut(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "copy_files", cut)
        patch.setattr(Snapshots, "_try_delete", lambda *_: None)
        assert drain_loop.drain_snapshots(*folders) == drain_loop.GAVE_UP
    assert steps(folders[1], "incomplete") == [1]

    assert drain_loop.drain_snapshots(*folders) == 0
    assert (steps(folders[1], "incomplete"), steps(folders[1])) == ([], [1])
