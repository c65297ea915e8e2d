"""A burst buffer whose folders another user has prepared, or that hold what looks like snapshots."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from jobs.burst_buffer import BurstBuffer, claim, restart, snapshots
from jobs.burst_buffer.restart import DrainWarning
from jobs.errors import DamageError
from tests.jobs.burst_buffer.child import writer
from tests.jobs.burst_buffer.storages import tmpfs

_SECOND = 1.0


def by_hand(*words):
    return subprocess.run(
        [sys.executable, "-m", "jobs.burst_buffer", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _wait_for_the_drainer(fast):
    with claim.lock(fast, "drainer"):
        pass


@pytest.fixture
def slow(tmp_path):
    """Return the slow folder of a buffer that has drained three snapshots and keeps two."""
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    with contextlib.closing(BurstBuffer(fast, slow, keep=2)) as buffer:
        for step in (1, 2, 3):
            buffer.save(step, writer(step))
        assert buffer.drained(60)
    _wait_for_the_drainer(fast)
    return slow


def _prepare(fast, buffer_id, victim):
    """Make a fast folder of that buffer, with a link for a journal and a command in the name of a file."""
    fast.mkdir()
    options = {"keep": 2, "attempts": 1, "backoff_s": 0}
    (fast / claim.MARKER_NAME).write_text(
        json.dumps({"schema": 1, "id": buffer_id, "role": "fast", "options": options})
    )
    (fast / ".tfio-burst-buffer.drainer.lock").touch()
    (fast / claim.JOURNAL_NAME).symlink_to(victim)
    name = snapshots.new_name(9, 9)
    (fast / name / "files").mkdir(parents=True)
    manifest = {"name": name, "step": 9, "files": [["$(id > /tmp/ran)\n", 1, "0"]], "facts": {}, "schema": 1}
    (fast / name / "manifest.json").write_text(json.dumps(manifest))


def test_a_fast_folder_of_another_user_is_refused_and_its_journal_is_not_written(scratch, slow, stranger, tmp_path):
    private = tmp_path / "bashrc"
    private.write_text("# ours\n")
    buffer_id = claim.read(slow)["id"]
    stranger(_prepare, scratch / "fast", buffer_id, private)

    done = by_hand("drain", scratch / "fast", slow)

    assert done.returncode == 2
    assert f"error: {scratch / 'fast'} is nobody's" in done.stderr
    assert "hint: " in done.stderr
    assert private.read_text() == "# ours\n"
    assert [snapshots.step(name) for name in snapshots.names(slow)] == [2, 3]


@pytest.mark.parametrize("place", [claim.JOURNAL_NAME, claim.LOG_NAME, claim.MARKER_NAME])
def test_a_link_or_a_pipe_in_a_folder_of_ours_is_neither_followed_nor_waited_for(slow, tmp_path, place):
    private = tmp_path / "bashrc"
    private.write_text("# ours\n")
    fast = slow.with_name("fast")
    for make in (lambda path: path.symlink_to(private), os.mkfifo):
        (fast / place).unlink()
        make(fast / place)
        began = time.monotonic()

        done = by_hand("drain", fast, slow)

        assert time.monotonic() - began < 5
        assert done.returncode in (0, 2, 3)
        assert "Traceback" not in done.stderr
        assert private.read_text() == "# ours\n"


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "a/../../outside", "", ".", "a//b", "a\x00b", 7])  # noqa: S108
def test_a_manifest_names_files_of_its_own_snapshot_alone(slow, name):
    folder = slow / snapshots.names(slow)[-1]
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][0][0] = name
    (folder / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(DamageError, match=r"manifest\.json"):
        snapshots.read(folder)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"schema": 1e999}', "[]", "7", "{}", '{"schema": 1, "name": [], "step": 1, "files": {}}', "\xff"],
)
def test_an_odd_manifest_is_damage_and_an_older_snapshot_is_taken(slow, text):
    older, newest = snapshots.names(slow)
    (slow / newest / "manifest.json").write_bytes(text.encode("latin-1"))

    with pytest.warns(DrainWarning, match=newest):
        assert restart.latest(slow) == slow / older / "files"


@pytest.mark.parametrize("marker", ["[" * 100_000, '{"schema": 1e999, "id": "a", "role": "slow"}', "[]", "7", "null"])
def test_an_odd_marker_is_refused_by_its_name(slow, marker):
    (slow / claim.MARKER_NAME).write_text(marker)

    done = by_hand("status", slow.with_name("fast"), slow)

    assert done.returncode == 2
    assert str(slow / claim.MARKER_NAME) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pipe_among_the_files_of_a_snapshot_is_found_within_a_second(slow):
    file = slow / snapshots.names(slow)[-1] / "files" / "ckpt.index"
    file.unlink()
    os.mkfifo(file)
    began = time.monotonic()

    wrong = snapshots.verify(file.parents[1])

    assert time.monotonic() - began < _SECOND
    assert wrong
    assert "ckpt.index" in wrong[0]


def test_empty_folders_that_are_named_like_snapshots_push_no_good_one_out(slow):
    good = snapshots.names(slow)
    for sequence in (50, 51, 52):
        (slow / snapshots.new_name(sequence, sequence)).mkdir()

    with contextlib.closing(BurstBuffer(slow.with_name("fast"), slow, keep=2)) as buffer:
        buffer.save(60, writer(60))
        assert buffer.drained(60)
    _wait_for_the_drainer(slow.with_name("fast"))

    kept = [name for name in snapshots.names(slow) if snapshots.verify(slow / name) == []]
    assert [snapshots.step(name) for name in kept] == [3, 60]
    assert kept[0] == good[-1]


def test_a_drain_that_gives_up_says_why(tmp_path, idle):
    with tmpfs(tmp_path / "slow", 1):
        options = {"attempts": 1, "backoff_s": 0.0}
        with contextlib.closing(BurstBuffer(tmp_path / "fast", tmp_path / "slow", **options)) as buffer:
            buffer.save(1, writer(1))
        with contextlib.suppress(OSError):
            (tmp_path / "slow" / "ballast").write_bytes(bytes(1 << 20))

        done = by_hand("drain", tmp_path / "fast", tmp_path / "slow")

    assert done.returncode == 3
    assert "ENOSPC" in done.stderr
    assert "hint: " in done.stderr
