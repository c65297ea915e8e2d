"""A burst buffer whose folders another user has prepared, or that hold what looks like snapshots."""

import json
import os
import shutil

import pytest

from jobs.checkpoints import drain_loop, drain_process, lease, snapshots
from jobs.checkpoints.lease import JOURNAL_NAME, LOG_NAME, MARKER_NAME
from jobs.store.folder import Folder
from tests.jobs.checkpoints.shared import in_this_process, saved, steps


@pytest.fixture(scope="module")
def drained(tmp_path_factory):
    """A buffer that has drained three snapshots and keeps two."""
    root = tmp_path_factory.mktemp("drained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_process.Drainer, "poke", lambda self: None)
        saved((root / "fast", root / "slow"), 1, 2, 3, keep=2)
    assert drain_loop.drain_snapshots(root / "fast", root / "slow") == 0
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
    name = snapshots.new_snapshot_name(9, 9)
    (fast / name / "files").mkdir(parents=True)
    manifest = {"name": name, "step": 9, "files": [["$(id > /tmp/ran)\n", 1, "0"]], "facts": {}, "schema": 1}
    (fast / name / "manifest.json").write_text(json.dumps(manifest))


def test_a_fast_folder_of_another_user_is_refused_and_its_journal_is_not_written(
    scratch, slow, stranger, tmp_path, capsys
):
    private = tmp_path / "bashrc"
    private.write_text("# ours\n")
    buffer_id = lease.read_marker(Folder(slow))["id"]
    stranger(_prepare, scratch / "fast", buffer_id, private)

    code, _, said = in_this_process(capsys, "drain", scratch / "fast", slow)

    assert (code, f"error: {scratch / 'fast'} belongs to nobody" in said, "\nhint: " in said) == (2, True, True)
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
