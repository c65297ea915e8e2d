"""Snapshots in a bucket that keeps other bytes than it was sent, holds what others put there, or fails meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
import warnings
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from jobs.burst_buffer import BurstBuffer, drain_loop, drain_process, pieces, restart, sides, snapshots
from jobs.burst_buffer import bucket as objects
from jobs.burst_buffer.bucket import Bucket
from jobs.burst_buffer.marker import MARKER_NAME
from jobs.burst_buffer.reclaim import clear
from jobs.errors import FolderError
from tests.jobs.burst_buffer.child import contents, writer
from tests.jobs.burst_buffer.shared import bytes_of, reasons, steps
from tests.jobs.objects.fake_store import BUSY

MARKER = f"p/{MARKER_NAME}"
FOREIGN = "00000009-step9-deadbeef"
EMPTY = hashlib.sha256(b"").hexdigest()
DATA = hashlib.sha256(b"other").hexdigest()
QUICK = {"attempts": 2, "backoff_s": 0.0}


class Lying(dict):
    """Objects of a store that keeps what `changed` makes of those whose key ends so."""

    def __init__(self, objects, ending, changed):
        super().__init__(objects)
        self.ending, self.changed = ending, changed

    def __setitem__(self, key, data):
        super().__setitem__(key, self.changed(data) if key.endswith(self.ending) else data)


PUT_S = datetime(2026, 11, 22, 10, tzinfo=UTC).timestamp()  # by the store's clock


def it_is(at_s, monkeypatch):
    monkeypatch.setattr(objects, "time", SimpleNamespace(time=lambda: at_s))


@pytest.fixture
def places(store, tmp_path, monkeypatch):
    """A fast folder and an address; drainers run by hand alone, and files of more than 100 kB have several objects."""
    monkeypatch.setattr(objects, "PART_BYTES", 100_000)
    it_is(PUT_S + 86_400, monkeypatch)  # the store says the same time of all
    monkeypatch.setattr(drain_process.Drainer, "poke", lambda self: None)
    store.objects.clear()
    return tmp_path / "fast", f"{store.storage['endpoint']}/bucket/p"


@pytest.fixture
def opened(places):
    """Make buffers that are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *where, **options: stack.enter_context(
            contextlib.closing(BurstBuffer(*(where or places), **{**QUICK, **options}))
        )


@pytest.fixture
def committed(places, opened):
    """A buffer, and the name of a snapshot that is on both sides."""
    buffer = opened()
    name = buffer.save(1, writer(1)).name
    assert drained(places) == 0
    return buffer, name


def drained(places):
    return drain_loop.drain(places[0], Bucket(places[1]))


def sealed(places):
    return [int(name.split("-")[1].removeprefix("step")) for name in Bucket(places[1]).sealed()]


def manifest(store, *files, name=FOREIGN):
    value = {"schema": 1, "name": name, "step": 9, "files": files, "facts": {"part_bytes": 100_000}}
    store.objects[f"p/{name}/manifest.json"] = json.dumps(value).encode()


def rot(places, name):
    (places[0] / name / "files" / "shards" / "ckpt.data-0").write_bytes(bytes(300_001))


def told(call):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return call(), [str(each.message) for each in said]


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (("/000001", lambda data: bytes(len(data))), "read back otherwise than written: shards/ckpt.data-0 has other"),
        (("/000001", lambda data: data[1:]), "it has 99999 bytes"),
        (("manifest.json", lambda data: data[:-1]), "the manifest reads back otherwise than written"),
        (("manifest.json", lambda data: data.replace(b'"saved_at": 1', b'"saved_at": 2')), "the manifest reads back"),
    ],
)
def test_what_the_store_keeps_otherwise_is_not_said_committed_and_is_put_anew(store, places, opened, lie, why):
    buffer = opened()
    buffer.save(1, writer(1))
    store.objects = Lying(store.objects, *lie)

    assert drained(places) == drain_loop.GAVE_UP
    assert len(reasons(places[0])) == QUICK["attempts"] + 1
    assert why in reasons(places[0])[0]
    assert buffer.report(time.time())[0]["durable_slow_s"] is None

    store.objects = dict(store.objects)
    assert drained(places) == 0
    assert sealed(places) == [1]
    assert Bucket(places[1]).verify(Bucket(places[1]).sealed()[0]) == []


def test_a_manifest_that_nobody_would_read_is_refused_before_anything_is_put(store, places, opened, monkeypatch):
    name = opened().save(1, writer(1)).name
    size = len(pieces.told(snapshots.read(places[0] / name)))
    monkeypatch.setattr(pieces, "_MOST_BYTES", size)
    assert len(pieces.told(snapshots.read(places[0] / name))) == size
    monkeypatch.setattr(pieces, "_MOST_BYTES", size - 1)

    assert drained(places) == drain_loop.GAVE_UP

    assert "a manifest of" in reasons(places[0])[0]
    assert set(store.objects) == {MARKER}


def test_objects_that_a_store_took_before_it_failed_are_not_put_again(store, places, opened):
    opened(attempts=1).save(1, writer(1))
    handler, sent = store.RequestHandlerClass, []

    class Refusing(handler):
        def do_PUT(self):  # noqa: N802
            sent.append(self.path.rpartition("/")[2])
            if len(sent) in (3, 4, 5):
                store.script = [BUSY]
            super().do_PUT()

    store.RequestHandlerClass = Refusing
    assert drained(places) == drain_loop.GAVE_UP
    assert drained(places) == 0

    assert sealed(places) == [1]
    assert [sent.count(part) for part in ("000000", "000001", "000003")] == [1, 1, 1]


@pytest.mark.parametrize("lost", [True, False])
def test_a_source_that_rots_before_it_is_put_anew_never_becomes_visible(store, places, committed, lost):
    buffer, name = committed
    if lost:
        del store.objects[f"p/{name}/000001"]
    else:
        store.objects = {MARKER: store.objects[MARKER]}
    for _ in range(2):  # the second is set aside where the first was
        rot(places, name)
        assert drained(places) == 0
        assert steps(places[0], "damaged") == [1]
        assert sealed(places) == []
        assert not buffer.drained(0)
        assert set(store.objects) == {MARKER}
        (places[0] / f"damaged-{name}").rename(places[0] / name)
        (places[0] / f"damaged-{name}").mkdir()


@pytest.mark.parametrize(
    "files",
    [
        [],
        [["a", 1.5, EMPTY]],
        [["x" * 256, 0, EMPTY]],
        [["a/" * 1500 + "a", 0, EMPTY]],
        [["\ud800", 0, EMPTY]],
        [["a", 0, EMPTY], ["a/b", 0, EMPTY]],
        [["a", 5, EMPTY]],
    ],
)
def test_a_strange_manifest_neither_ends_drainers_and_trainers_nor_hides_a_good_copy(store, places, opened, files):
    buffer = opened()
    buffer.save(1, writer(1))
    store.objects[f"p/{FOREIGN}/000000"] = b"other"
    manifest(store, *files)

    assert drained(places) == 0
    assert 1 in sealed(places)
    assert bytes_of(told(buffer.latest)[0]) == contents(1)


def test_manifests_without_files_do_not_count_to_what_is_kept(store, places, opened):
    buffer = opened(keep=2)
    for number in (8, 9):
        manifest(store, name=f"0000000{number}-step9-deadbeef")
    buffer.save(1, writer(1))

    assert drained(places) == 0
    assert sealed(places) == [1]


def test_a_store_that_fails_while_it_gives_a_snapshot_leaves_the_other_copy(store, places, committed, monkeypatch):
    manifest(store, ["a", 5, DATA])
    store.objects[f"p/{FOREIGN}/000000"] = b"other"
    bring = objects._bring  # noqa: SLF001

    def refused(*rest):
        store.script = [BUSY] * 3
        return bring(*rest)

    monkeypatch.setattr(objects, "_bring", refused)
    found, said = told(committed[0].latest)

    assert bytes_of(found) == contents(1)
    assert any(FOREIGN in each and "503" in each for each in said)


@pytest.mark.parametrize("moment", ["restored", "_bring"])
def test_what_another_drainer_removes_while_it_is_brought_makes_way_for_its_newer_one(
    places, opened, monkeypatch, tmp_path, moment
):
    buffer = opened(keep=1)
    buffer.save(1, writer(1))
    drained(places)
    buffer.save(2, writer(2))
    of = Bucket if moment == "restored" else objects
    then = getattr(of, moment)

    def raced(*rest):
        monkeypatch.setattr(of, moment, then)
        drained(places)
        return then(*rest)

    monkeypatch.setattr(of, moment, raced)
    (tmp_path / "other").mkdir()
    found, said = told(lambda: restart.latest(tmp_path / "other", Bucket(places[1])))

    assert bytes_of(found) == contents(2)
    assert said == []


def test_a_second_trainer_takes_the_bucket_and_the_first_ones_drainer_waits_for_its_end(places, opened, tmp_path):
    first, theirs = opened(keep=1), (tmp_path / "other", places[1])
    second = opened(*theirs, keep=1)
    told(lambda: first.save(1, writer(1)))
    for step in (2, 3):
        second.save(step, writer(step))
    alive, trainer = os.pipe()
    with os.fdopen(alive), os.fdopen(trainer, "w"):
        assert drain_loop.drain(places[0], Bucket(places[1]), alive) == drain_loop.GAVE_UP
        assert "has been taken by another trainer" in "".join(first.troubles())
        assert not first.drained(0)
        assert drained(theirs) == 0
        assert second.drained(0)
        assert not first.drained(0)  # its snapshot is in no bucket, though an older one than those that are there
    assert sealed(places) == [3]
    assert drained(places) == 0


def test_a_save_itself_says_that_another_trainer_has_the_bucket(places, opened, tmp_path):
    first = opened()
    assert first.save(1, writer(1)).troubles == ()
    opened(tmp_path / "other", places[1])

    with pytest.warns(restart.DrainWarning, match="has been taken by another trainer"):
        saved = first.save(2, writer(2))

    assert [each for each in saved.troubles if "give each training its own prefix" in each]
    assert bytes_of(saved.path) == contents(2)


def test_a_save_itself_says_that_its_prefix_was_emptied(store, places, opened):
    first = opened()
    store.objects.clear()

    with pytest.warns(restart.DrainWarning, match="is not the place of this burst buffer any more"):
        first.save(1, writer(1))


def test_a_store_that_is_slow_to_say_whose_it_is_is_not_waited_for_and_its_answer_comes_later(
    places, opened, tmp_path, monkeypatch
):
    first = opened()
    opened(tmp_path / "other", places[1])
    asked, answers = sides.Sides.require_slow, threading.Event()
    monkeypatch.setattr(sides.Sides, "require_slow", lambda mine: answers.wait(30) and asked(mine))
    monkeypatch.setattr(sides, "_ANSWER_S", 0.0)

    assert first.save(1, writer(1)).troubles == ()

    answers.set()
    monkeypatch.setattr(sides, "_ANSWER_S", 30.0)
    with pytest.warns(restart.DrainWarning, match="has been taken by another trainer"):
        first.save(2, writer(2))


def test_that_a_bucket_is_away_is_for_its_drainer_to_say(store, places, opened):
    first = opened()
    store.close()

    assert first.save(1, writer(1)).troubles == ()


def test_what_a_dead_trainer_left_is_drained_to_a_bucket_that_another_one_has_opened(places, opened, tmp_path):
    opened().save(1, writer(1))
    opened(tmp_path / "other", places[1])
    alive, trainer = os.pipe()
    os.close(trainer)
    with os.fdopen(alive):
        assert drain_loop.drain(places[0], Bucket(places[1]), alive) == 0
    assert sealed(places) == [1]


def test_a_trainer_asks_a_store_that_fails_once_each_time_it_looks(store, places, opened):
    buffer = opened()
    buffer.save(1, writer(1))
    store.gets.clear()
    store.script = [BUSY] * 9

    assert not buffer.drained(0)

    assert store.gets == [MARKER]


def test_a_copy_that_is_damaged_again_is_brought_back_again(places, committed):
    buffer, name = committed
    for _ in range(2):
        rot(places, name)
        assert bytes_of(told(buffer.latest)[0]) == contents(1)


@pytest.mark.parametrize("late", ["000003", "manifest.json"])
def test_what_is_put_after_all_was_cleared_keeps_nobody_out_and_goes_but_for_what_is_others(
    store, places, committed, opened, late
):
    buffer, name = committed
    body = store.objects[f"p/{name}/{late}"]
    buffer.close()
    clear([places[0], Bucket(places[1])])
    store.objects[f"p/{name}/{late}"] = body

    clear([places[0], Bucket(places[1])])
    opened().save(2, writer(2))
    assert drained(places) == 0
    assert (name, "copying") in Bucket(places[1]).states()
    store.objects[f"p/{name}/theirs"] = b"1"
    clear([Bucket(places[1])])
    assert store.objects == {f"p/{name}/theirs": b"1"}


def test_whole_snapshots_without_a_marker_are_somebody_elses(store, places, committed, tmp_path):
    del store.objects[MARKER]

    with pytest.raises(FolderError, match=f"it holds other objects, such as {committed[1]}"):
        BurstBuffer(tmp_path / "other", places[1])


@pytest.mark.parametrize("remains", ["000000", "manifest.json"])
def test_what_is_incomplete_for_a_day_goes_and_what_is_whole_stays(store, places, opened, monkeypatch, remains):
    buffer = opened()
    store.objects[f"p/{FOREIGN}/000000"] = b"other"
    if remains == "manifest.json":
        manifest(store, ["a", 6, DATA])
    buffer.save(1, writer(1))
    assert drained(places) == 0
    assert (FOREIGN, "copying") in Bucket(places[1]).states()

    it_is(PUT_S + 86_401, monkeypatch)
    assert drained(places) == 0
    assert not [key for key in store.objects if FOREIGN in key]
    assert sealed(places) == [1]


def test_what_has_been_put_in_part_today_is_somebody_elses_who_goes_on(store, places, opened):
    store.put_in = {f"p/{FOREIGN}/000000": 2000, f"p/{FOREIGN}/000001": 2100}
    store.objects |= dict.fromkeys(store.put_in, b"other")
    opened()

    assert drained(places) == 0
    assert set(store.put_in) <= set(store.objects)


def test_when_a_drain_ended_is_the_drainers_time_and_not_the_servers(places, opened, monkeypatch):
    buffer = opened()
    monkeypatch.setattr(objects, "time", time)
    monkeypatch.setattr(drain_loop.Journal, "tell", lambda *_, **__: None)  # it is killed before it says so
    buffer.save(1, writer(1))
    assert drained(places) == 0

    (line,) = buffer.report(time.time())
    assert 0 < line["drain_s"] < line["durable_slow_s"] < 600


def test_a_snapshot_that_goes_between_two_looks_is_not_there(store, places, committed, monkeypatch):
    visible = Bucket._visible  # noqa: SLF001

    def raced(self, *rest):
        found = visible(self, *rest)
        store.objects.pop(f"p/{committed[1]}/manifest.json", None)
        return found

    monkeypatch.setattr(Bucket, "_visible", raced)
    assert Bucket(places[1]).committed(committed[1])["name"] == committed[1]
    assert Bucket(places[1]).committed(committed[1]) is None


def test_a_marker_of_any_size_is_refused_without_being_read(store, places, committed):
    class Counting(store.RequestHandlerClass):
        def _answer(self, status, data, *rest):
            super()._answer(status, data[: 1 << 20], *rest)  # and then silence

    store.RequestHandlerClass = Counting
    store.objects[MARKER] = b"{" + b" " * (1 << 22)

    with pytest.raises(FolderError, match=r"such as \.tfio-burst-buffer\.json"):
        Bucket(places[1] + "?timeout_s=5").marker()
