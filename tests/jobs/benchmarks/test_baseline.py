"""What a storage gives by itself: real runs of the built-in engine, and what proves them."""

import errno
import os
import threading
import zlib

import pytest

from jobs.benchmarks.engines import builtin, datafile
from jobs.benchmarks.engines import engine as engines
from jobs.benchmarks.engines.engine import EngineOutcome
from jobs.errors import EngineError
from tests.jobs.benchmarks.baseline_factory import MIB, execute, order, read_file


@pytest.fixture
def file(disk):
    return read_file(disk)


@pytest.fixture
def asked(monkeypatch):
    """Every request of the built-in engine: offset, bytes, and whether several were under way."""
    seen, real = [], os.preadv

    def preadv(fd, buffers, offset):
        seen.append((offset, len(buffers[0]), threading.get_ident()))
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    return seen


def test_what_lies_in_the_place_of_the_file_is_written_anew_and_never_through_a_link(disk):
    file = datafile.make_marked_folder(disk / "baseline") / "written.bin"
    precious = disk / "precious"
    precious.write_text("x")
    for make in (lambda: file.write_bytes(b"of a dead run"), lambda: file.symlink_to(precious)):
        make()
        assert execute(file, "write")["status"] == "valid"

    assert precious.read_text() == "x"


def test_no_page_of_a_written_file_is_another_one_again_and_none_can_be_made_smaller(disk):
    file = disk / "written.bin"
    builtin.run_builtin(order(file, "write"))

    written = file.read_bytes()

    pages = {written[at : at + 4096] for at in range(0, len(written), 4096)}
    assert len(written) == 8 * MIB
    assert len(pages) == 8 * MIB // 4096
    assert len(zlib.compress(written[:MIB], 1)) > 0.99 * MIB


def test_random_reads_take_each_block_once_at_places_that_follow_from_the_seed(file, asked):
    blocks = 8 * MIB // 12_288
    places = {}
    for seed in (1, 1, 2):
        asked.clear()
        outcome = builtin.run_builtin(order(file, "random_read", block=12_288, seed=seed))
        places.setdefault(seed, []).append([offset // 12_288 for offset, *_ in asked])
        assert {size for _, size, _ in asked} == {12_288}
        assert outcome.moved_bytes == blocks * 12_288

    assert sorted(places[1][0]) == list(range(blocks))
    assert places[1][0] == places[1][1] != places[2][0]
    assert places[1][0] != sorted(places[1][0])


def test_as_many_readers_as_threads_read_at_once(file, monkeypatch):
    met, seen, real = threading.Barrier(3), set(), os.preadv

    def preadv(fd, buffers, offset):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            met.wait(timeout=10)  # broken, unless three come here before any of them has read
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    outcome = builtin.run_builtin(order(file, "random_read", threads=3))

    assert (outcome.requests, len(seen)) == (8, 3)


def test_random_reads_end_when_their_time_is_up(file, monkeypatch):
    real = os.preadv

    def preadv(fd, buffers, offset):
        threading.Event().wait(0.05)
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    figures = execute(file, "random_read", block=4096, seconds_max=0.2, threads=2)

    assert 2 <= figures["requests"] <= 12
    assert figures["read_bytes_each"] == 4096
    assert figures["reads_per_s"] * figures["wall_s"] == pytest.approx(figures["requests"])
    assert figures["bytes_asked"] == figures["bytes_read"] == figures["requests"] * 4096


@pytest.mark.parametrize("access", ["read", "write", "random_read"])
def test_where_the_file_system_knows_no_direct_access_the_page_cache_is_used_and_said(disk, access, monkeypatch):
    file = read_file(disk) if access != "write" else datafile.make_marked_folder(disk / "baseline") / "written.bin"
    real = os.open

    def refused(path, flags, mode=0o777, **more):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refused)
    figures = execute(file, access, threads=1)

    assert (figures["status"], figures["direct"]) == ("valid", False)


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_no_file(disk, monkeypatch, failure):
    written, real = datafile.make_marked_folder(disk / "baseline") / "written.bin", os.pwritev

    def broken(fd, buffers, offset):
        if offset:
            assert written.stat().st_size == MIB
            raise failure
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", broken)
    with pytest.raises(type(failure)):
        execute(written, "write")

    assert not written.exists()


def test_a_file_that_is_shorter_than_asked_for_is_no_baseline(file):
    with pytest.raises(EngineError, match="8388608 bytes, but 16777216 bytes were to be read"):
        execute(file, size=16 * MIB)


GOOD = EngineOutcome(8 * MIB, 8, 2.0, "1")


@pytest.mark.parametrize(
    ("changed", "elapsed_s", "rate", "word"),
    [
        ({}, 2.0, 4 * MIB, None),
        ({}, 1.981, None, None),
        ({}, 1.979, None, "only 1.979 s have passed"),
        ({}, 2.0, 4.03 * MIB, None),
        ({}, 2.0, 4.05 * MIB, "bytes/s, but also"),
        ({}, 2.0, 3.97 * MIB, None),
        ({}, 2.0, 3.95 * MIB, "bytes/s, but also"),
        ({"moved_bytes": MIB}, 2.0, None, "1048576 bytes, but 8388608 bytes were to be read"),
        ({"wall_s": 0.0}, 2.0, None, "impossible numbers"),
        ({"wall_s": float("nan")}, 2.0, None, "impossible numbers"),
        ({}, 2.0, float("inf"), "impossible numbers"),
    ],
)
def test_an_engine_that_contradicts_itself_is_not_believed(tmp_path, changed, elapsed_s, rate, word):
    outcome = EngineOutcome(**{**vars(GOOD), **changed, "rate": rate})

    if word is None:
        assert engines.require_credible(outcome, order(tmp_path), elapsed_s) == outcome
    else:
        with pytest.raises(EngineError, match=word):
            engines.require_credible(outcome, order(tmp_path), elapsed_s)


@pytest.mark.parametrize(
    ("programs", "access", "engine"),
    [
        (["ior", "fio"], "read", "ior"),
        (["fio"], "write", "fio"),
        ([], "read", "builtin"),
        (["ior", "fio"], "random_read", "fio"),
        (["ior"], "random_read", "builtin"),
    ],
)
def test_the_engine_is_ior_or_else_fio_or_else_our_own(programs, access, engine, tmp_path, monkeypatch):
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert engines.choose_engine("auto", access) == engine
    if not programs:
        with pytest.raises(EngineError, match=r"engine=fio: there is no program fio"):
            engines.choose_engine("fio", access)
