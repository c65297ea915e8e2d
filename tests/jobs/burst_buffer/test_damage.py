"""Damage and I/O errors under the burst buffer, and what makes room; nothing good is lost and nothing bad is taken.

Errors are injected into the drainer's calls: there is no device-mapper here that would make a disk fail.
"""

import contextlib
import errno
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.burst_buffer import BurstBuffer, drain_loop, drain_process, lease, snapshots
from jobs.burst_buffer.restart import DrainWarning, latest
from jobs.burst_buffer.sides import Sides
from jobs.burst_buffer.snapshots import StoredFile
from jobs.errors import RoomError
from jobs.system import durable, transfer
from tests.jobs.burst_buffer.child import writer
from tests.jobs.burst_buffer.shared import ROOT, blob, reasons, saved, steps

pytestmark = pytest.mark.usefixtures("idle")


def test_a_writer_that_says_full_in_words_alone_is_called_again(folders):
    calls = []

    def write(folder):
        calls.append(sorted(folder.iterdir()))
        writer(2)(folder)
        if len(calls) == 1:
            raise RuntimeError(f"{folder}: {os.strerror(errno.ENOSPC)} [Op:SaveV2]")  # as TensorFlow puts it

    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        buffer.save(1, writer(1))
        assert drain_loop.drain(*folders) == 0
        buffer.save(2, write)

    assert calls == [[], []]
    assert (steps(folders[0]), steps(folders[1])) == ([2], [1])


@pytest.mark.parametrize(("call", "code"), [("copy", errno.EIO), ("sync", errno.ENOSPC), ("hashes", errno.ESTALE)])
def test_an_io_error_of_the_drain_is_retried_until_it_works(folders, monkeypatch, call, code):
    (name,) = saved(folders, 1, attempts=4, backoff_s=0.001)
    real, left = getattr(transfer, call), [code] * 3

    def failing(*arguments, **options):
        if left:
            raise OSError(left.pop(), "injected")
        return real(*arguments, **options)

    monkeypatch.setattr(transfer, call, failing)

    assert drain_loop.drain(*folders) == 0
    assert reasons(folders[0]) == [f"{errno.errorcode[code]}: injected"] * 3
    assert snapshots.read(folders[1] / name).facts["drain_retries"] == 3
    assert snapshots.verify(folders[1] / name) == []


def test_a_copy_that_reads_back_otherwise_is_copied_again(folders, monkeypatch):
    saved(folders, 1, attempts=3, backoff_s=0.001)
    real, broken = transfer.copy, [True]

    def lying(source, target, sizes, how):
        real(source, target, sizes, how)
        if broken and broken.pop():
            flip(target / "ckpt.index")

    monkeypatch.setattr(transfer, "copy", lying)

    assert drain_loop.drain(*folders) == 0
    assert "ckpt.index has other bytes" in reasons(folders[0])[0]
    assert [snapshots.verify(folders[1] / name) for name in snapshots.names(folders[1])] == [[]]


def flip(file, at=50):
    with file.open("r+b") as bytes_:
        bytes_.seek(at)
        old = bytes_.read(1)
        bytes_.seek(at)
        bytes_.write(bytes([old[0] ^ 1]))


def truncate(file):
    os.truncate(file, 50)


DAMAGES = {
    "flipped": (flip, "ckpt.index has other bytes"),
    "truncated": (truncate, "ckpt.index has 50 bytes of 100"),
    "missing": (os.unlink, "ckpt.index is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("broken", "found"), [([0], (0, 1)), ([0, 1], (0, 1)), ([0], (1, 2))])
def test_damage_is_named_and_another_copy_or_an_older_good_snapshot_found(folders, damage, broken, found):
    break_, message = DAMAGES[damage]
    names = dict(zip((1, 2), saved(folders, 1, 2), strict=True))
    assert found[1] == len(broken) == 1 or drain_loop.drain(*folders) == 0
    for side in broken:
        break_(folders[side] / names[2] / "files" / "ckpt.index")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert latest(*folders) == folders[found[0]] / names[found[1]] / "files"

    assert len(told) == len(broken)
    assert all(message in str(warning.message) and names[2] in str(warning.message) for warning in told)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_fast_copy_found_damaged_by_the_drainer_is_never_committed(folders, damage):
    break_, message = DAMAGES[damage]
    with contextlib.closing(BurstBuffer(*folders)) as buffer:
        names = [buffer.save(step, writer(step)).name for step in (1, 2)]
        break_(folders[0] / names[0] / "files" / "ckpt.index")

        assert drain_loop.drain(*folders) == 0

        assert not buffer.drained()
        with pytest.warns(DrainWarning, match=message):
            buffer.save(3, writer(3))
    assert snapshots.names(folders[1]) == names[1:]
    assert steps(folders[0], "damaged") == [1]


@given(st.lists(st.sampled_from(["save", "drain", "evict", "retain"]), max_size=12), st.integers(1, 3))
def test_nothing_that_makes_room_ever_takes_the_newest_snapshot(tmp_path_factory, deeds, keep):
    root = tmp_path_factory.mktemp("buffer")
    folders, newest = (root / "fast", root / "slow"), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drain_process.Drainer, "poke", lambda self: None)
        with contextlib.closing(BurstBuffer(*folders, keep=keep)) as buffer:
            sides = Sides(*folders, lease.pair(*folders)[0], keep)
            for step, deed in enumerate(deeds):
                if deed == "save":
                    buffer.save(step, writer(step, 10))
                    newest = step
                elif deed == "drain":
                    assert drain_loop.drain(*folders) == 0
                else:
                    getattr(sides, {"evict": "evict_one", "retain": "retain"}[deed])()
                found = buffer.latest()
                assert newest is None if found is None else blob(found) == bytes([newest]) * 10


def test_a_snapshot_that_an_older_drainer_takes_away_keeps_no_trainer_from_opening(folders, monkeypatch):
    saved(folders, 1)
    listed = snapshots.names
    gone = "00000001-step1-01234567"
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "names", lambda root, state=None: [gone] * (not state) + listed(root, state))
        snapshots.require_room(folders[0], 1)


def test_the_wait_between_retries_doubles_up_to_its_bound_however_often_it_is_tried(monkeypatch):
    pauses, options = [], drain_loop.Options(attempts=1100, backoff_s=1, backoff_max_s=5)
    monkeypatch.setattr(drain_loop, "_attempt", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "injected")))
    monkeypatch.setattr(drain_loop, "_pause", lambda seconds, _: pauses.append(seconds))
    sides, journal = SimpleNamespace(idle=lambda: False), SimpleNamespace(tell=lambda *_, **__: None)

    assert drain_loop._insist(sides, options, journal, SimpleNamespace(alive=True)) is None  # noqa: SLF001

    assert (pauses[:5], pauses[-1], len(pauses)) == ([1, 2, 4, 5, 5], 5, 1099)


def test_all_that_is_wrong_with_the_files_of_a_snapshot_is_told_each_kind_in_order(tmp_path):
    (name,) = saved((tmp_path / "fast", tmp_path / "slow"), 1)
    files = tmp_path / "fast" / name / "files"
    expected = [*snapshots.read(files.parent).files, StoredFile("lost", 1, "0")]
    for more in ("b", "a"):
        os.mkfifo(files / more)
    flip(files / "ckpt.index")

    assert snapshots.problems(files, expected) == [
        "lost is missing",
        *(f"{more} is not in the manifest" for more in "ab"),
        *(f"{more} is no regular file" for more in "ab"),
        "ckpt.index has other bytes: its SHA-256 differs",
    ]


@pytest.mark.parametrize("state", ["staging", "copying"])
def test_what_a_dead_process_left_is_finished_where_it_has_its_manifest_and_goes_where_it_has_none(folders, state):
    names = saved(folders, 1, 2, 3)
    for name in names[:2]:
        (folders[0] / name).rename(folders[0] / f"{state}-{name}")
    (folders[0] / f"{state}-{names[0]}" / snapshots.MANIFEST_NAME).unlink()
    (folders[0] / f"removing-{names[0]}").mkdir()

    snapshots.recover(folders[0], [state])

    assert snapshots.names(folders[0]) == names[1:]
    assert [path.name for path in folders[0].iterdir() if "-step" in path.name and path.name not in names] == []


@pytest.mark.parametrize(("free", "fits"), [(9_699_898, False), (9_699_899, True), (9_699_900, True)])
def test_snapshots_fit_where_they_have_room_with_what_older_ones_of_ours_take(folders, monkeypatch, free, fits):
    (name,) = saved(folders, 1)
    ours = sum(file.stat().st_size for file in (folders[0] / name).rglob("*"))
    monkeypatch.setattr(durable, "free_bytes", lambda _: free + 300_101 - ours)
    said = rf"2 snapshots of 5 MB do not fit on {folders[0]}: 10 MB are free"

    with contextlib.nullcontext() if fits else pytest.raises(RoomError, match=said):
        snapshots.require_room(folders[0], 5_000_000, copies=2)


@pytest.mark.parametrize(("free", "fits"), [(300_100, False), (300_101, True), (300_102, True)])
def test_a_snapshot_is_written_where_just_its_bytes_are_free(folders, monkeypatch, free, fits):
    with contextlib.closing(BurstBuffer(*folders, snapshot_bytes=300_101)) as buffer:
        monkeypatch.setattr(durable, "free_bytes", lambda _: free)
        with contextlib.nullcontext() if fits else pytest.raises(RoomError, match="one snapshot does not fit"):
            buffer.save(1, writer(1))


def test_what_another_place_has_is_brought_to_the_first_one(folders):
    (name,) = saved(folders, 1)
    asked, other = [], folders[0].rename(folders[0].with_name("elsewhere"))
    folders[0].mkdir()

    def restored(wanted, first):
        asked.append((wanted, first))
        return other / wanted

    found = latest(folders[0], folders[1], SimpleNamespace(sealed=lambda: [name], restored=restored))

    assert (asked, found) == ([(name, folders[0])], other / name / "files")


def test_a_snapshot_that_fell_through_has_waited_for_nothing_and_is_where_it_is_to_stay(folders, monkeypatch):
    with contextlib.closing(BurstBuffer(*folders, when_full="fall_through", snapshot_bytes=1000)) as buffer:
        monkeypatch.setattr(durable, "free_bytes", lambda folder: 0 if folder == folders[0] else 1 << 40)
        buffer.save(1, writer(1, 1000))
        (line,) = buffer.report()

    expected = {"where": "slow", "waited_s": 0.0, "drain_s": 0.0, "durable_fast_s": None, "retries": 0}
    assert {key: line[key] for key in expected} == expected
    assert line["durable_slow_s"] == line["blocked_s"] >= line["write_s"] > 0


def test_a_drainer_that_outlives_its_trainer_is_no_matter_of_a_warning():
    script = (
        "import subprocess; from jobs.burst_buffer import drain_process\n"
        "drain_process.left_running.append(subprocess.Popen(['sleep', '1']))"
    )
    words = [sys.executable, "-W", "always", "-c", script]

    assert subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stderr == ""
