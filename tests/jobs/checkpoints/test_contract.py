"""What holds of snapshots whether the slow side is a folder or a bucket: whole and verified, or not there."""

import contextlib
import errno
import json
import os
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, drain_process, lease, snapshots
from jobs.checkpoints.drain_loop import SnapshotSides
from jobs.checkpoints.restart import DrainWarning, latest_snapshot
from jobs.checkpoints.snapshots import MANIFEST_NAME, Snapshots, store_of
from jobs.errors import DamageError, FolderError, ObjectStoreError
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.system import clock
from tests.jobs.checkpoints.child import contents, writer
from tests.jobs.checkpoints.shared import blob, bytes_of, in_this_process, reasons, saved, snapshots_in, steps

FOREIGN = "00000009-step9-deadbeef"
LOOKS = {"folder": "verify_files", "bucket": "copy_out"}
LARGE = {"folder": "shards/ckpt.data-0", "bucket": "000001"}
QUICK = {"attempts": 2, "backoff_s": 0.0}


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
    assert drain_loop.drain_snapshots(*places) == 0
    return buffer, name


def told(call):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return call(), [str(each.message) for each in said]


def rot(place, name):
    (Path(place) / name / "files" / "shards" / "ckpt.data-0").write_bytes(bytes(300_001))


def failing(monkeypatch, call, *errors):
    """Let calls of a store fail with these errors, one after the other, and then succeed."""
    left = [*errors]

    def wrapped(real):
        def act(self, *words):
            if left:
                raise left.pop(0)
            return real(self, *words)

        return act

    for kind in (Folder, Bucket):
        monkeypatch.setattr(kind, call, wrapped(getattr(kind, call)))


def test_snapshots_are_drained_in_order_and_the_newest_are_kept_on_both_sides(places, opened):
    buffer = opened(keep=2)
    for step in range(1, 5):
        buffer.save(step, writer(step))
    assert steps(places[0]) == [1, 2, 3, 4]

    assert drain_loop.drain_snapshots(*places) == 0

    assert (steps(places[0]), steps(places[1])) == ([3, 4], [3, 4])
    assert [snapshots_in(place).verify(name) for place in places for name in snapshots_in(place).names()] == [[]] * 4
    assert all(line["durable_slow_s"] > 0 and line["retries"] == 0 for line in buffer.report(clock.current_moment()))
    assert buffer.wait_until_drained(0)


def test_a_new_fast_folder_joins_the_buffer_of_the_slow_side(places, committed, tmp_path):
    committed[0].close()
    with contextlib.closing(BurstBuffer(tmp_path / "new node", places[1])) as second:
        assert bytes_of(second.latest()) == contents(1)
        assert second.save(2, writer(2)).name.startswith("00000002-")
    assert drain_loop.drain_snapshots(tmp_path / "new node", places[1]) == 0

    assert steps(places[1]) == [1, 2]


def test_what_a_store_keeps_otherwise_is_not_said_committed_and_is_put_anew(places, opened, raw, kind, monkeypatch):
    buffer = opened()
    name = buffer.save(1, writer(1)).name
    large = f"{name}/files/{LARGE[kind]}"
    with monkeypatch.context() as patch:
        lying(patch, raw, large, lambda data: bytes(len(data)))
        assert drain_loop.drain_snapshots(*places) == drain_loop.GAVE_UP
        assert len(reasons(places[0])) == QUICK["attempts"] + 1
        assert "the copy differs from the original: shards/ckpt.data-0 has other bytes" in reasons(places[0])[0]
        assert buffer.report(clock.current_moment())[0]["durable_slow_s"] is None
        assert steps(places[1]) == []
    assert drain_loop.drain_snapshots(*places) == 0
    assert snapshots_in(places[1]).verify(name) == []


def lying(patch, raw, name, changed):
    """Let the store keep other bytes of what is received under a name than it was sent."""

    def wrapped(real):
        def receive(self, *words):
            real(self, *words)
            if not str(self).endswith("fast"):
                raw[name] = changed(raw[name])

        return receive

    for kind in (Folder, Bucket):
        patch.setattr(kind, "copy_in", wrapped(kind.copy_in))


@pytest.mark.parametrize("lie", [lambda data: data[:-1], lambda data: data.replace(b'"saved_at": 1', b'"saved_at": 2')])
def test_a_manifest_that_reads_back_otherwise_makes_nothing_visible(places, opened, monkeypatch, lie):
    opened(attempts=1).save(1, writer(1))
    with monkeypatch.context() as patch:
        for kind in (Folder, Bucket):
            put = kind.put
            patch.setattr(kind, "put", lambda self, name, data, put=put: put(self, name, lie(data)))
        assert drain_loop.drain_snapshots(*places) == drain_loop.GAVE_UP
    assert "the manifest reads back other bytes than were written" in reasons(places[0])[0]
    assert steps(places[1]) == []

    assert drain_loop.drain_snapshots(*places) == 0
    assert steps(places[1]) == [1]


@pytest.mark.parametrize("call", ["copy_in", "verify_files", "put"])
def test_an_error_of_the_drain_is_retried_until_it_works_and_each_is_said(places, opened, monkeypatch, call, capsys):
    name = opened(attempts=4).save(1, writer(1)).name
    failing(monkeypatch, call, *[OSError(errno.EIO, "injected")] * 2, ObjectStoreError("away", ""))

    code, _, said = in_this_process(capsys, "drain", *places)

    assert (code, said.count("the drain has failed, and is tried again in 0 s: ")) == (0, 3)
    assert said.splitlines()[0].endswith(" EIO: injected")
    assert reasons(places[0]) == ["EIO: injected"] * 2 + ["away"]
    assert snapshots_in(places[1]).find(name).facts["drain_retries"] == 3
    assert snapshots_in(places[1]).verify(name) == []


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_an_error_that_does_not_pass_by_itself_is_named_at_once_and_not_tried_again(
    places, opened, monkeypatch, code, capsys
):
    opened(attempts=10, backoff_s=60).save(1, writer(1))
    failing(monkeypatch, "copy_in", OSError(code, os.strerror(code)))

    told = in_this_process(capsys, "drain", *places)

    reason = f"{errno.errorcode[code]}: {os.strerror(code)}"
    assert (told[0], f"error: the drain gave up: {reason}\n" in told[2]) == (drain_loop.GAVE_UP, True)
    assert reasons(places[0]) == [reason, "a retry cannot help against this error"]


def test_a_store_that_is_full_keeps_the_fast_copy_and_is_drained_when_there_is_room(places, opened, monkeypatch):
    buffer = opened()
    buffer.save(1, writer(1))
    failing(monkeypatch, "copy_in", *[OSError(errno.ENOSPC, "No space left on device")] * 2)
    assert drain_loop.drain_snapshots(*places) == drain_loop.GAVE_UP
    with pytest.warns(DrainWarning, match="ENOSPC: No space left on device"):
        buffer.save(2, writer(2))
    assert (steps(places[0]), steps(places[1])) == ([1, 2], [])

    assert drain_loop.drain_snapshots(*places) == 0
    assert steps(places[1]) == [1, 2]


def test_a_slow_store_is_waited_for_and_the_bandwidth_is_bounded(places, opened):
    buffer = opened(bandwidth_mb_per_s=1.0, streams=2)
    buffer.save(1, writer(1))

    assert drain_loop.drain_snapshots(*places) == 0
    (line,) = buffer.report({**clock.current_moment(), "seconds": 0.0})
    assert line["drain_s"] >= 0.2  # 0.3 MB at 1 MB/s; the first bytes wait for none
    assert line["exposed_s"] == line["drain_s"]


@pytest.mark.parametrize("lost", [True, False])
def test_a_source_that_rots_before_it_is_put_never_becomes_visible(places, opened, raw, lost):
    buffer = opened()
    name = buffer.save(1, writer(1)).name
    before = set(raw)
    if lost:
        (places[0] / name / "files" / "ckpt.index").unlink()
    else:
        rot(places[0], name)

    assert drain_loop.drain_snapshots(*places) == 0

    assert (steps(places[0], "damaged"), steps(places[1]), set(raw)) == ([1], [], before)
    assert not buffer.wait_until_drained(0)
    with pytest.warns(DrainWarning, match="ckpt.index is missing" if lost else "has other bytes"):
        buffer.save(2, writer(2))
    assert buffer._sides.evict_one()  # noqa: SLF001 - as where the fast storage is full
    assert steps(places[0], "damaged") == []


ODD = ["[" * 100_000, '{"schema": 1e999}', "[]", "7", "{}", '{"schema": 1, "name": [], "step": 1, "files": {}}', "\xff"]
NAMES = ["../../outside", "/tmp/outside", "a/../../outside", "", ".", "a//b", "a\x00b", 7]  # noqa: S108
ROWS = [*([name, 1, "0"] for name in NAMES), ["a", -1, "0"], ["a", True, "0"], ["a", 1], ["a", 1.5, "0"]]


def foreign(raw, manifests):
    """Leave snapshots with these manifests, texts or what stands in one; returns their names."""
    names = [f"{step:08}-step{step}-deadbeef" for step, _ in enumerate(manifests, 9)]
    for name, odd in zip(names, manifests, strict=True):
        whole = {"schema": 1, "name": name, "step": snapshots.training_step(name), "facts": {}}
        text = odd if isinstance(odd, str) else json.dumps(whole | odd)
        raw[f"{name}/files/000000"] = b"other"
        raw[f"{name}/{MANIFEST_NAME}"] = text.encode("latin-1")
    return names


def test_an_odd_manifest_counts_for_nothing_and_ends_neither_drainer_nor_trainer(places, opened, raw):
    buffer = opened(keep=1)
    names = foreign(raw, [*ODD, {"files": []}, *({"files": [row]} for row in ROWS)])
    buffer.save(1, writer(1))

    assert drain_loop.drain_snapshots(*places) == 0

    for name in names:
        with pytest.raises(DamageError):  # before any file that it names is looked for
            snapshots_in(places[1]).read(name)
    assert steps(places[1], "complete") == [1]
    found, said = told(lambda: latest_snapshot(*places))
    assert bytes_of(found) == contents(1)
    assert [name for name in names if not any(name in each for each in said)] == []


def test_a_newer_version_is_refused_and_its_snapshots_are_not_cleared(places, committed, raw):
    buffer, name = committed
    buffer.close()
    for key in (f"{name}/{MANIFEST_NAME}", lease.MARKER_NAME):
        raw[key] = json.dumps({**json.loads(raw[key]), "schema": 2}).encode()
        before = dict(raw)
        with pytest.raises(FolderError, match="schema 2, newer than 1"):
            BurstBuffer(*places)
        with pytest.raises(FolderError, match="schema 2, newer than 1"):
            lease.clear_stores([store_of(place) for place in places])
        assert dict(raw) == before
        raw[key] = json.dumps({**json.loads(raw[key]), "schema": 1}).encode()


@pytest.mark.parametrize("broken", [(0,), (1,), (0, 1)])
def test_damage_is_named_and_another_copy_or_an_older_good_snapshot_found(places, committed, raw, kind, broken):
    buffer, first = committed
    name = buffer.save(2, writer(2)).name
    assert drain_loop.drain_snapshots(*places) == 0
    if 0 in broken:
        rot(places[0], name)
    if 1 in broken:
        raw[f"{name}/files/{LARGE[kind]}"] = bytes(len(raw[f"{name}/files/{LARGE[kind]}"]))

    found, said = told(buffer.latest)

    assert bytes_of(found) == contents(1 if broken == (0, 1) else 2)
    assert len(said) == sum(place in (0, 1) for place in broken) * (broken != (1,))
    assert all("shards/ckpt.data-0 has other bytes" in each and name in each for each in said)
    assert first.startswith("00000001")


@pytest.mark.parametrize("broken", range(2))
def test_list_says_where_each_snapshot_is_and_with_verify_what_is_wrong(places, committed, raw, capsys, broken):
    buffer, name = committed
    buffer.save(2, writer(2))
    if broken:
        (large,) = [key for key in raw if key.endswith((*LARGE.values(),)) and key.startswith(name)]
        raw[large] = bytes(len(raw[large]))

    listed, verified = (in_this_process(capsys, "list", *more, *places) for more in ((), ("--verify",)))

    assert (listed[0], verified[0]) == (0, broken)
    assert [line.split()[1] for line in listed[1].splitlines()] == ["complete", "waiting", "complete"]
    wrong = "shards/ckpt.data-0 has other bytes: its SHA-256 differs" if broken else "good"
    assert [line.split("  ")[-1] for line in verified[1].splitlines()] == ["good", "good", wrong]


def test_drain_by_hand_says_which_snapshots_were_damaged_before_they_were_drained(places, committed, capsys):
    name = committed[0].save(2, writer(2)).name
    rot(places[0], name)

    first, again = (in_this_process(capsys, "drain", *places) for _ in range(2))

    assert first == again
    assert (first[0], f"not drained: {name}\n" in first[2], "\nhint: " in first[2]) == (1, True, True)


def test_restore_by_hand_prints_where_the_newest_whole_snapshot_lies_also_on_a_new_node(places, committed, capsys):
    node = places[0].with_name("another node")
    node.mkdir()
    rot(places[0], committed[1])

    (code, said, why), other = (in_this_process(capsys, "restore", fast, places[1]) for fast in (places[0], node))

    assert (code, bytes_of(Path(said.strip()))) == (0, contents(1))
    assert why.startswith("warning: ")
    assert (other[0], bytes_of(Path(other[1].strip())), other[2]) == (0, contents(1), "")


@pytest.mark.parametrize("what", ["notes.txt", "00000001-step1-00000000/mine", "snapshots/of/mine"])
def test_a_place_that_holds_what_is_not_ours_is_refused_and_not_touched(places, raw, what):
    raw[what] = b"years of work"
    said = "it has other files, such as .*1 in all"

    with pytest.raises(FolderError, match=said):
        BurstBuffer(*places)

    assert dict(raw) == {what: b"years of work"}


def test_whole_snapshots_without_a_marker_are_somebody_elses(places, committed, raw, tmp_path):
    committed[0].close()
    del raw[lease.MARKER_NAME]
    for name in [name for name in raw if name.endswith(".lock")]:
        del raw[name]

    with pytest.raises(FolderError, match=f"it has other files, such as {committed[1]}"):
        BurstBuffer(tmp_path / "other", places[1])


def test_other_files_among_ours_stay_when_all_of_ours_is_cleared(places, committed, raw, capsys):
    committed[0].close()
    raw["notes.txt"] = b"mine"

    code, said, _ = in_this_process(capsys, "clear", *places)

    assert (code, places[1].partition("?")[0] in said) == (0, True)
    assert dict(raw) == {"notes.txt": b"mine"}
    assert not places[0].exists()


def test_a_slow_side_that_is_another_ones_by_now_is_told_and_gets_nothing(places, opened, raw):
    opened().save(1, writer(1))
    raw[lease.MARKER_NAME] = json.dumps({**json.loads(raw[lease.MARKER_NAME]), "id": "another"}).encode()
    before = set(raw)

    code = None
    with contextlib.suppress(FolderError):  # of two folders it is said at once
        code = drain_loop.drain_snapshots(*places)

    assert code in (None, drain_loop.GAVE_UP)
    assert (set(raw), steps(places[0])) == (before, [1])


def test_an_incomplete_snapshot_is_removed_by_the_next_drainer_whatever_the_clock_says(
    places, opened, raw, kind, it_is
):
    opened().save(1, writer(1))
    raw[f"{FOREIGN}/files/000000"] = b"other"
    assert steps(places[1], "incomplete") == [9]
    for late_s in (-1e6, 86_400):
        it_is(late_s)
        assert drain_loop.drain_snapshots(*places) == 0
        assert steps(places[1], "incomplete") == ([9] if kind == "bucket" else [])
    it_is(86_401)  # in a bucket nobody else can be seen: there it is left for a day
    assert drain_loop.drain_snapshots(*places) == 0
    assert (steps(places[1], "incomplete"), steps(places[1])) == ([], [1])


def test_a_list_that_cannot_be_had_in_full_removes_nothing_and_drains_nothing_twice(
    places, committed, kind, raw, monkeypatch
):
    buffer, _ = committed
    buffer.save(2, writer(2))
    before = set(raw)
    if kind == "bucket":
        raw.root.rows_of_endless = 20  # all that there are, again and again
        monkeypatch.setattr("jobs.system.untrusted.MOST_NAMES", 100)
    else:
        failing(monkeypatch, "folders", *[OSError(errno.EIO, "injected")] * 20)

    assert drain_loop.drain_snapshots(*places) == drain_loop.GAVE_UP
    assert set(raw) == before


@pytest.mark.parametrize("when", ["before it is read", "while it is read"])
def test_a_copy_that_is_let_go_while_the_newest_is_looked_for_is_no_loss(places, kind, opened, monkeypatch, when):
    buffer = opened(keep=1)
    buffer.save(1, writer(1))
    assert drain_loop.drain_snapshots(*places) == 0
    buffer.save(2, writer(2))
    of = {"folder": Folder, "bucket": Bucket}[kind]
    of, name = (Snapshots, "restored_folder") if when == "before it is read" else (of, LOOKS[kind])
    then = getattr(of, name)

    def raced(self, *words):
        monkeypatch.setattr(of, name, then)
        assert drain_loop.drain_snapshots(*places) == 0
        return then(self, *words)

    monkeypatch.setattr(of, name, raced)
    elsewhere = places[0].with_name("elsewhere")
    elsewhere.mkdir()
    found, said = told(lambda: latest_snapshot(elsewhere, places[1]))

    assert (bytes_of(found), said) == (contents(2), [])


@given(st.lists(st.sampled_from(["save", "drain", "evict", "retain"]), max_size=12), st.integers(1, 3))
def test_nothing_that_makes_room_ever_takes_the_newest_snapshot(tmp_path_factory, deeds, keep):
    root = tmp_path_factory.mktemp("buffer")
    places, newest = (root / "fast", root / "slow"), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_process.Drainer, "poke", lambda self: None)
        with contextlib.closing(BurstBuffer(*places, keep=keep)) as buffer:
            sides = SnapshotSides(*map(snapshots_in, places), lease.identify_pair(*map(store_of, places))[0], keep)
            for step, deed in enumerate(deeds):
                if deed == "save":
                    buffer.save(step, writer(step, 10))
                    newest = step
                elif deed == "drain":
                    assert drain_loop.drain_snapshots(*places) == 0
                else:
                    getattr(sides, {"evict": "evict_one", "retain": "remove_surplus"}[deed])()
                found = buffer.latest()
                assert newest is None if found is None else blob(found) == bytes([newest]) * 10


def test_of_many_saved_names_the_order_goes_on(places):
    names = saved(places, 20, 40) + saved(places, 20)

    assert [snapshots.sequence_number(name) for name in names] == [1, 2, 3]
    assert bytes_of(latest_snapshot(*places)) == contents(20)
