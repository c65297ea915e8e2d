"""One folder of snapshots, without a burst buffer: complete or invisible, and nobody else's."""

import errno
import json
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import restart, snapshots
from jobs.checkpoints.buffer import DirectTarget
from jobs.errors import FolderError, RoomError
from jobs.store.transfer import FLUSH_BYTES
from jobs.system import clock
from tests.jobs.checkpoints.child import contents, writer
from tests.jobs.checkpoints.shared import snapshots_in
from tests.lies import setup


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "only"


@pytest.fixture
def target(folder):
    with closing(DirectTarget(folder)) as target:
        yield target


def test_a_saved_snapshot_is_complete_and_the_newest(target, folder):
    target.save(1, writer(1))
    snapshot = target.save(2, writer(2))

    assert restart.latest_snapshot(target.fast) == snapshot.path
    assert {name: (snapshot.path / name).read_bytes() for name in contents(2)} == contents(2)
    assert snapshots_in(folder).verify(snapshot.name) == []


def _write_until_flushed(flushed):
    def write(folder):
        (folder / "large").write_bytes(bytes(FLUSH_BYTES))
        (folder / "small").write_bytes(b"x")
        assert flushed.wait(20)

    return write


def test_a_large_file_is_flushed_while_the_snapshot_is_written(target, monkeypatch):
    flushed, names, fsync = threading.Event(), [], os.fsync

    def watched(descriptor):
        fsync(descriptor)
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        flushed.set()

    monkeypatch.setattr(os, "fsync", watched)
    snapshot = target.save(1, _write_until_flushed(flushed))

    assert names.count("large") >= 2, "flushed once while it was written, and made durable at the end"
    assert names.count("small") == 1
    assert snapshots_in(target.fast).verify(snapshot.name) == []


def test_what_could_not_be_flushed_is_no_snapshot_though_a_later_flush_reports_nothing(target, folder, monkeypatch):
    failed, fsync = threading.Event(), os.fsync

    def failing_once(descriptor):
        is_large = Path(f"/proc/self/fd/{descriptor}").readlink().name == "large"
        if is_large and not failed.is_set():
            failed.set()
            raise OSError(errno.EIO, "lost")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing_once)
    with pytest.raises(OSError, match="lost"):
        target.save(1, _write_until_flushed(failed))

    assert snapshots_in(folder).names() == []


def test_what_a_killed_trainer_was_writing_goes_and_the_order_goes_on_and_the_newest_are_kept(folder):
    with closing(DirectTarget(folder)) as target:
        for step in (7, 8, 9):
            target.save(step, writer(step))
    (folder / "00000004-step8-0123abcd" / "files").mkdir(parents=True)

    with closing(DirectTarget(folder, keep=2)) as target:
        target.save(3, writer(3))

    assert [
        (snapshots.sequence_number(name), snapshots.training_step(name)) for name in snapshots_in(folder).states()
    ] == [
        (3, 9),
        (4, 3),
    ]


def test_a_direct_snapshot_needs_no_drain_and_its_times_say_so(target):
    target.save(1, writer(1))

    (line,) = target.report(clock.current_moment())
    assert target.wait_until_drained(0.0)
    assert (line["where"], line["drain_s"], line["exposed_s"]) == ("only", 0.0, 0.0)
    assert 0 < line["write_s"] <= line["blocked_s"] == line["durable_fast_s"] == line["durable_slow_s"]


@pytest.mark.parametrize("other", ["stranger", "missing", "newer", "fast", "slow"])
def test_a_folder_that_is_not_ours_is_refused_and_not_touched(tmp_path, folder, other):
    if other == "stranger":
        folder.mkdir()
        (folder / "thesis.tex").write_text("years")
    elif other == "missing":
        folder = folder / "deeper"
    elif other == "newer":
        with closing(DirectTarget(folder)) as target:
            manifest = target.save(1, writer(1)).path.parent / snapshots.MANIFEST_NAME
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schema": 2}))
    else:
        sides = {"fast": tmp_path / "f", "slow": tmp_path / "s"}
        BurstBuffer(**sides).close()
        folder = sides[other]
    before = sorted(folder.rglob("*")) if folder.exists() else None

    with pytest.raises(FolderError) as refused:
        DirectTarget(folder)

    assert refused.value.hint
    assert (sorted(folder.rglob("*")) if folder.exists() else None) == before


def test_a_folder_of_a_direct_target_is_no_side_of_a_burst_buffer(target, folder, tmp_path):
    target.close()

    with pytest.raises(FolderError, match="is no burst buffer"):
        BurstBuffer(folder, tmp_path / "slow")


def test_a_storage_that_runs_full_says_so_and_keeps_what_is_there(tmp_path, staged):
    with closing(DirectTarget(staged(setup.memory, tmp_path / "small", 4))) as target:
        first = target.save(1, writer(1, size=3 << 20))

        with pytest.raises(RoomError, match="is full"):
            target.save(2, writer(2, size=3 << 20))

        assert restart.latest_snapshot(target.fast) == first.path
