"""Copies in streams and under a cap; every key of the drain provably acts."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.store import transfer
from jobs.store.transfer import TransferOptions

SEGMENT = 64 * 2**20


@pytest.fixture
def places(tmp_path):
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    return tmp_path / "from", tmp_path / "to"


@given(st.lists(st.integers(0, 2_500_000), min_size=1, max_size=4), st.integers(1, 4))
def test_a_copy_has_the_bytes_of_its_source_whatever_the_streams(tmp_path_factory, sizes, streams):
    source, target = tmp_path_factory.mktemp("from"), tmp_path_factory.mktemp("to")
    for number, size in enumerate(sizes):
        (source / str(number)).write_bytes(os.urandom(size))
    named = [(str(number), size) for number, size in enumerate(sizes)]

    transfer.copy_files(source, target, named, TransferOptions(streams=streams))

    assert [(target / n).read_bytes() for n, _ in named] == [(source / n).read_bytes() for n, _ in named]
    assert transfer.hash_files([target / n for n, _ in named]) == transfer.hash_files(
        [source / n for n, _ in named], streams=streams
    )


def test_streams_copy_at_the_same_time(places, monkeypatch):
    meeting = threading.Barrier(3, timeout=10)
    for name in "abc":
        (places[0] / name).write_bytes(b"x")
    monkeypatch.setattr(transfer, "_copy_range", lambda *_: meeting.wait())

    transfer.copy_files(*places, [(name, 1) for name in "abc"], TransferOptions(streams=3))

    assert not meeting.broken


def test_a_large_file_is_shared_by_the_streams(places, monkeypatch):
    spans = []
    monkeypatch.setattr(transfer, "_copy_range", lambda source, target, span, cap: spans.append(span))
    (places[0] / "file").touch()

    transfer.copy_files(*places, [("file", 2 * SEGMENT + 5)], TransferOptions(streams=2))

    assert sorted((span.start, span.stop) for span in spans) == [
        (0, SEGMENT), (SEGMENT, 2 * SEGMENT), (2 * SEGMENT, 2 * SEGMENT + 5)
    ]  # fmt: skip


@pytest.mark.parametrize("streams", [1, 3])
def test_the_cap_bounds_all_streams_together(places, monkeypatch, streams):
    waits, pause = [], time.sleep
    monkeypatch.setattr("time.monotonic", lambda: pause(0.005) or 0.0)  # here streams come between one another
    monkeypatch.setattr("time.sleep", waits.append)
    for name in "abc":
        (places[0] / name).write_bytes(b"x" * 2_000_000)

    transfer.copy_files(*places, [(name, 2_000_000) for name in "abc"], TransferOptions(mb_per_s=2, streams=streams))

    assert max(waits) == pytest.approx(3.0)


@pytest.mark.parametrize("streams", [1, 4])
def test_an_error_of_one_segment_is_the_copys(places, streams):
    for name in "ac":
        (places[0] / name).write_bytes(b"x")

    with pytest.raises(FileNotFoundError, match="from/b"):
        transfer.copy_files(*places, [(name, 1) for name in "abc"], TransferOptions(streams=streams))


def test_short_writes_are_carried_on(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda fd, data, at: real(fd, data[:1000], at))
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(os.urandom(2500))

    transfer.copy_files(tmp_path / "from", tmp_path, [("file", 2500)], TransferOptions())

    assert (tmp_path / "file").read_bytes() == (tmp_path / "from" / "file").read_bytes()
