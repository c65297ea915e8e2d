"""Copies have the bytes of their source, under a cap."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.store import transfer
from jobs.store.transfer import TransferOptions


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


def test_the_cap_bounds_a_copy(places, monkeypatch):
    waits, pause = [], time.sleep
    monkeypatch.setattr("time.monotonic", lambda: pause(0.005) or 0.0)  # here streams come between one another
    monkeypatch.setattr("time.sleep", waits.append)
    for name in "abc":
        (places[0] / name).write_bytes(b"x" * 2_000_000)

    transfer.copy_files(*places, [(name, 2_000_000) for name in "abc"], TransferOptions(mb_per_s=2))

    assert max(waits) == pytest.approx(3.0)


def test_an_error_of_one_file_is_the_copys(places):
    for name in "ac":
        (places[0] / name).write_bytes(b"x")

    with pytest.raises(FileNotFoundError, match="from/b"):
        transfer.copy_files(*places, [(name, 1) for name in "abc"], TransferOptions())


def test_short_writes_are_carried_on(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda fd, data, at: real(fd, data[:1000], at))
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(os.urandom(2500))

    transfer.copy_files(tmp_path / "from", tmp_path, [("file", 2500)], TransferOptions())

    assert (tmp_path / "file").read_bytes() == (tmp_path / "from" / "file").read_bytes()
