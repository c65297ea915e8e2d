"""What snapshots in a bucket have of their own: objects that are put once, and nobody who could hold a lock."""

import contextlib
import json

import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, lease
from jobs.checkpoints.lease import MARKER_NAME, clear_stores
from jobs.checkpoints.restart import latest_snapshot
from jobs.checkpoints.snapshots import MANIFEST_NAME, store_of
from jobs.errors import FolderError
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from tests.jobs.checkpoints.child import contents, writer
from tests.jobs.checkpoints.shared import bytes_of, saved, snapshots_in, steps
from tests.jobs.checkpoints.test_contract import FOREIGN, QUICK, rot, told
from tests.jobs.objects.fake_store import BUSY


@pytest.fixture
def kind():
    return "bucket"


@pytest.fixture
def committed(places):
    """The name of a snapshot that is on both sides."""
    (name,) = saved(places, 1, **QUICK)
    assert drain_loop.drain_snapshots(*places) == 0
    return name


def test_objects_that_a_store_took_before_it_failed_are_not_put_again(raw, places):
    saved(places, 1, attempts=1)
    store, sent = raw.root, []

    class Refusing(store.RequestHandlerClass):
        def do_PUT(self):  # noqa: N802
            sent.append(self.path.rpartition("/")[2])
            if len(sent) in (3, 4, 5):
                store.script = [BUSY]
            super().do_PUT()

    store.RequestHandlerClass = Refusing
    assert drain_loop.drain_snapshots(*places) == drain_loop.GAVE_UP
    assert drain_loop.drain_snapshots(*places) == 0

    assert steps(places[1]) == [1]
    assert [sent.count(part) for part in ("000000", "000001", "000003")] == [1, 1, 1]


def test_a_store_that_fails_while_it_gives_a_snapshot_leaves_the_other_copy(raw, places, committed, monkeypatch):
    raw[f"{FOREIGN}/files/000000"] = b"other"
    value = {"schema": 1, "name": FOREIGN, "step": 9, "files": [["a", 5, "0"]]}
    raw[f"{FOREIGN}/{MANIFEST_NAME}"] = json.dumps(value).encode()
    bring = Bucket.copy_out

    def refused(*words):
        raw.root.script = [BUSY] * 3
        return bring(*words)

    monkeypatch.setattr(Bucket, "copy_out", refused)
    found, said = told(lambda: latest_snapshot(*places))

    assert bytes_of(found) == contents(1)
    assert any(FOREIGN in each and "503" in each for each in said)


def test_a_trainer_asks_a_store_that_fails_once_each_time_it_looks(raw, places):
    with contextlib.closing(BurstBuffer(*places)) as buffer:
        buffer.save(1, writer(1))
        raw.root.gets.clear()
        raw.root.script = [BUSY] * 9

        assert not buffer.wait_until_drained(0)

    assert raw.root.gets == [f"p/{MARKER_NAME}"]


def test_that_a_bucket_is_away_is_for_its_drainer_to_say(raw, places):
    with contextlib.closing(BurstBuffer(*places)) as buffer:
        raw.root.close()

        assert buffer.save(1, writer(1)).troubles == ()


def test_a_copy_that_is_damaged_again_is_brought_back_again(places, committed):
    for _ in range(2):
        rot(places[0], committed)
        assert bytes_of(told(lambda: latest_snapshot(*places))[0]) == contents(1)


@pytest.mark.parametrize("late", ["files/000003", MANIFEST_NAME])
def test_what_is_put_after_all_was_cleared_keeps_nobody_out_and_goes_but_for_what_is_others(
    raw, places, committed, late
):
    body = raw[f"{committed}/{late}"]
    clear_stores([Folder(places[0]), store_of(places[1])])
    raw[f"{committed}/{late}"] = body

    clear_stores([Folder(places[0]), store_of(places[1])])
    saved(places, 2)
    assert drain_loop.drain_snapshots(*places) == 0
    assert snapshots_in(places[1]).states()[committed] == "incomplete"
    raw[f"{committed}/theirs"] = b"1"
    clear_stores([store_of(places[1])])
    assert dict(raw) == {f"{committed}/theirs": b"1"}


def test_what_has_been_put_in_part_today_is_somebody_elses_who_goes_on(raw, places, committed, it_is):
    raw.root.put_in = {f"p/{FOREIGN}/files/000000": 2000, f"p/{FOREIGN}/files/000001": 2100}
    raw.root.objects |= dict.fromkeys(raw.root.put_in, b"other")
    it_is(1e6)

    assert drain_loop.drain_snapshots(*places) == 0
    assert set(raw.root.put_in) <= set(raw.root.objects)


def test_a_marker_of_any_size_is_refused_without_being_read(raw, places, committed):
    class Counting(raw.root.RequestHandlerClass):
        def _answer(self, status, data, *rest):
            super()._answer(status, data[: 1 << 20], *rest)  # and then silence

    raw.root.RequestHandlerClass = Counting
    raw[MARKER_NAME] = b"{" + b" " * (1 << 22)

    with pytest.raises(FolderError, match=r"\.tfio-burst-buffer\.json is not a valid marker"):
        lease.read_marker(store_of(places[1] + "?timeout_s=5"))
