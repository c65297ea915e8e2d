"""A burst buffer whose folders another user has prepared, or that hold what looks like snapshots."""

import contextlib
import errno
import json
import os
import shutil

import pytest

from jobs.burst_buffer import BurstBuffer, drain_loop, drain_process, lease, restart, snapshots
from jobs.burst_buffer.marker import JOURNAL_NAME, LOG_NAME, MARKER_NAME
from jobs.burst_buffer.restart import DrainWarning
from jobs.errors import DamageError
from jobs.system import transfer
from tests.jobs.burst_buffer.child import writer
from tests.jobs.burst_buffer.shared import drainer_ended, in_this_process, saved, steps


@pytest.fixture(scope="module")
def drained(tmp_path_factory):
    """A buffer that has drained three snapshots and keeps two."""
    root = tmp_path_factory.mktemp("drained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_process.Drainer, "poke", lambda self: None)
        saved((root / "fast", root / "slow"), 1, 2, 3, keep=2)
    assert drain_loop.drain(root / "fast", root / "slow") == 0
    return root


@pytest.fixture
def slow(drained, tmp_path):
    """Return the slow folder of a copy of that buffer; the fast one lies beside it."""
    shutil.copytree(drained, tmp_path, dirs_exist_ok=True)
    return tmp_path / "slow"


def _prepare(fast, buffer_id, victim):
    """Make a fast folder of that buffer, with a link for a journal and a command in the name of a file."""
    fast.mkdir()
    options = {"keep": 2, "attempts": 1, "backoff_s": 0}
    (fast / MARKER_NAME).write_text(json.dumps({"schema": 1, "id": buffer_id, "role": "fast", "options": options}))
    (fast / ".tfio-burst-buffer.drainer.lock").touch()
    (fast / JOURNAL_NAME).symlink_to(victim)
    name = snapshots.new_name(9, 9)
    (fast / name / "files").mkdir(parents=True)
    manifest = {"name": name, "step": 9, "files": [["$(id > /tmp/ran)\n", 1, "0"]], "facts": {}, "schema": 1}
    (fast / name / "manifest.json").write_text(json.dumps(manifest))


def test_a_fast_folder_of_another_user_is_refused_and_its_journal_is_not_written(
    scratch, slow, stranger, tmp_path, capsys
):
    private = tmp_path / "bashrc"
    private.write_text("# ours\n")
    buffer_id = lease.marker_of(slow)["id"]
    stranger(_prepare, scratch / "fast", buffer_id, private)

    code, _, said = in_this_process(capsys, "drain", scratch / "fast", slow)

    assert (code, f"error: {scratch / 'fast'} is nobody's" in said, "\nhint: " in said) == (2, True, True)
    assert private.read_text() == "# ours\n"
    assert steps(slow) == [2, 3]


@pytest.mark.parametrize("place", [JOURNAL_NAME, LOG_NAME, MARKER_NAME])
@pytest.mark.parametrize("trap", ["link", "pipe"])
def test_a_link_or_a_pipe_in_a_folder_of_ours_is_neither_followed_nor_waited_for(slow, tmp_path, capsys, place, trap):
    private, trapped = tmp_path / "bashrc", slow.with_name("fast") / place
    private.write_text("# ours\n")
    trapped.unlink(missing_ok=True)
    os.mkfifo(trapped) if trap == "pipe" else trapped.symlink_to(private)

    code, *_ = in_this_process(capsys, "drain", slow.with_name("fast"), slow)

    assert code == (2 if place == MARKER_NAME else 0)
    assert private.read_text() == "# ours\n"


NAMES = ["../../outside", "/tmp/outside", "a/../../outside", "", ".", "a//b", "a\x00b", 7]  # noqa: S108
ODD = ["[" * 100_000, '{"schema": 1e999}', "[]", "7", "{}", '{"schema": 1, "name": [], "step": 1, "files": {}}', "\xff"]


@pytest.mark.parametrize("odd", [*ODD, *([name, 1, "0"] for name in NAMES), ["a", -1, "0"], ["a", True, "0"], ["a", 1]])
def test_an_odd_manifest_is_damage_and_an_older_snapshot_is_taken(slow, odd):
    older, newest = snapshots.names(slow)
    path = slow / newest / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_bytes((odd if isinstance(odd, str) else json.dumps({**manifest, "files": [odd]})).encode("latin-1"))

    with pytest.raises(DamageError):  # before any file that it names is looked for
        snapshots.read(slow / newest)
    with pytest.warns(DrainWarning, match=newest):
        assert restart.latest(slow) == slow / older / "files"


def test_a_pipe_among_the_files_of_a_snapshot_is_found_and_not_waited_for(slow):
    file = slow / snapshots.names(slow)[-1] / "files" / "ckpt.index"
    file.unlink()
    os.mkfifo(file)

    (wrong,) = snapshots.verify(file.parents[1])

    assert "ckpt.index" in wrong


def test_empty_folders_that_are_named_like_snapshots_push_no_good_one_out(slow):
    good = snapshots.names(slow)
    for sequence in (50, 51, 52):
        (slow / snapshots.new_name(sequence, sequence)).mkdir()

    with contextlib.closing(BurstBuffer(slow.with_name("fast"), slow, keep=2)) as buffer:
        buffer.save(60, writer(60))
        assert buffer.drained(60)
    drainer_ended(slow.with_name("fast"))

    kept = [name for name in snapshots.names(slow) if snapshots.verify(slow / name) == []]
    assert [snapshots.step(name) for name in kept] == [3, 60]
    assert kept[0] == good[-1]


def test_a_drain_that_gives_up_says_why(folders, idle, capsys, monkeypatch):
    saved(folders, 1, attempts=1, backoff_s=0.0)
    monkeypatch.setattr(transfer, "copy", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))

    code, _, said = in_this_process(capsys, "drain", *folders)

    assert (code, "ENOSPC: No space left" in said, "\nhint: " in said) == (3, True, True)


def test_thousands_of_folders_in_each_other_end_no_drain_with_a_traceback(slow, nested, capsys):
    fast = slow.with_name("fast")
    marker = json.loads((fast / MARKER_NAME).read_text())
    marker["options"]["attempts"] = 1
    (fast / MARKER_NAME).write_text(json.dumps(marker))
    nested(slow / "removing-00000001-step1-0000abcd")

    drained, verified = (in_this_process(capsys, verb, fast, slow) for verb in ("drain", "verify"))

    assert (drained[0], verified[0]) == (3, 0)
    assert "more than 64 folders in each other" in drained[2]
