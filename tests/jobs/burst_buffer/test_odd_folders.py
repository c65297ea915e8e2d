"""Folders of a burst buffer as it has not left them: cleared, claimed anew, unmounted, linked, damaged."""

import contextlib
import errno
import json
import shutil

import pytest

from jobs.burst_buffer import BurstBuffer, claim, drain, snapshots, transfer
from jobs.burst_buffer.drain import Journal
from jobs.burst_buffer.restart import DrainWarning
from jobs.errors import FolderError
from tests.jobs.burst_buffer.child import writer


def steps(root):
    return [snapshots.step(name) for name in snapshots.names(root)]


def reasons(fast):
    return [event["reason"] for event in Journal(fast).read()[0] if "reason" in event]


def fails(*_):
    raise OSError(errno.EIO, "injected")


def test_a_drainer_does_not_go_on_trying_when_nothing_is_staged_any_more(folders, idle, monkeypatch):
    with contextlib.closing(BurstBuffer(*folders, attempts=3, backoff_s=30)) as buffer:
        saved = buffer.save(1, writer(1))

    def cleared(_):
        snapshots.remove(saved.path.parent)

    monkeypatch.setattr(transfer, "copy", fails)
    monkeypatch.setattr("time.sleep", cleared)

    assert drain.drain(*folders) == 0
    assert len(reasons(folders[0])) == 1


def test_a_drainer_leaves_a_folder_that_is_another_buffers_by_now(folders, idle, monkeypatch):
    with contextlib.closing(BurstBuffer(*folders, attempts=3, backoff_s=30)) as buffer:
        buffer.save(1, writer(1))
    marker = folders[0] / claim.MARKER_NAME

    def claimed_anew(*_):
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "id": "another"}))
        fails()

    monkeypatch.setattr(transfer, "copy", claimed_anew)

    assert drain.drain(*folders) == 0
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


@pytest.mark.parametrize(
    "marker", ['{"schema":1,"id":"a"}', '{"schema":1e400}', '{"schema":1,"role":"fast"}', '{"schema":[1]}', "[]"]
)
def test_half_a_marker_is_said_to_be_none(folders, marker):
    folders[0].mkdir()
    (folders[0] / claim.MARKER_NAME).write_text(marker)

    with pytest.raises(FolderError, match="is no marker of ours"):
        BurstBuffer(*folders)


@pytest.mark.parametrize("options", [{"keep": 1.5}, {"streams": 0}, {"attempts": "3"}])
def test_options_that_are_no_whole_numbers_are_refused(options):
    with pytest.raises(ValueError, match="whole numbers"):
        drain.Options(**options)
