"""Figures of what profiled runs called, from profiles as `jobs.profiler` writes them."""

import io
import os

import numpy as np
import pytest

from analysis.traces import posix
from analysis.traces.system import TraceError
from jobs.profiler import Profile
from tests.analysis.record_factory import id_of, left, record, run, unstable
from tests.analysis.training_factory import figures_of, words
from tests.jobs.events.windows import window

SMALL, LARGE = 3000, 200_000


def read_whole(path):
    """Read a file as TensorFlow does: to a read of nothing."""
    descriptor = os.open(path, os.O_RDONLY)
    while os.read(descriptor, 1 << 20):
        pass
    os.close(descriptor)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """By mode a profile of two files, of which the large one was read first."""
    folder = tmp_path_factory.mktemp("data")
    for name, size in (("small", SMALL), ("large.jpg", LARGE)):
        (folder / name).write_bytes(bytes(size))
    for mode in ("trace", "counters"):
        with Profile(mode, only=[folder]) as profile:
            read_whole(folder / "large.jpg")
            read_whole(folder / "small")
        profile.save(folder / f"{mode}.npz")
    return {mode: (folder / f"{mode}.npz").read_bytes() for mode in ("trace", "counters")}


@pytest.fixture
def traced(profiles):
    return profiles["trace"]


def cell(folder, content, *, mode="trace", **settings):
    """Return the record of a profiled cell of which each run left this profile."""
    runs = [run(n, 100.0 + n, profile={"file": f"profile-{n}.npz", "mode": mode}) for n in (1, 2, 3)]
    made = record(runs, profile={"posix": mode}, **settings)
    home = folder / "records" / id_of(made)
    home.mkdir(parents=True)
    for n in (1, 2, 3) if content else ():
        (home / f"profile-{n}.npz").write_bytes(content)
    return made


def test_a_call_counts_where_it_ended():
    profile = window([(1, 200_000_000, 1_910_000_000, 5_000_000)], 0, 2 * 10**9, (500_000_000,))

    rates = posix.rates_over_time(profile).set_index("elapsed_s")[["read_mb_per_s", "calls_per_s"]]
    assert rates[rates["calls_per_s"] > 0].to_records().tolist() == [pytest.approx((1.92, 250.0, 50.0))]
    assert posix.read_parts(profile).to_numpy().tolist() == [pytest.approx([0.5, 2.0, 5 / 1.5])]


def test_a_cell_without_a_profile_that_can_be_read_says_so_in_its_place(traced, tmp_path):
    broken = cell(tmp_path, traced[: len(traced) // 2], threads=1)
    gone = cell(tmp_path, None, threads=2)
    failed = left(cell(tmp_path, traced, threads=4), "failed")
    good = unstable(cell(tmp_path, traced, threads=8))

    specs = figures_of(broken, gone, failed, good, folder=tmp_path)

    for stem in ("posix-sizes", "posix-order"):
        status = [posix.UNREADABLE, posix.MISSING, "failed", "done"]
        assert specs[stem].frame.drop_duplicates("cell")["status"].tolist() == status
        assert {posix.UNREADABLE, posix.MISSING, "failed"} <= set(words(specs[stem].drawn()))
    assert not [stem for stem in figures_of(gone, folder=tmp_path) if stem.startswith("posix")]


def rewritten(content, **members):
    """Return a profile of which members were replaced by others."""
    file = io.BytesIO()
    np.savez(file, **{**np.load(io.BytesIO(content)), **members})
    return file.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        {"paths": np.frombuffer(b"one\0", np.uint8)},
        {"counters": np.zeros(2)},
        {"head": np.frombuffer(b"{}", np.uint8)},
        {"stdio": np.zeros((2, 2), bool)},
        {"events": np.zeros(1, np.uint8)},
        {"marks": np.zeros(1, np.int64)},
        {"paths": np.zeros(1 << 20, np.uint8)},
    ],
)
def test_a_profile_that_contradicts_itself_is_not_drawn(traced, members, tmp_path):
    (tmp_path / "profile-1.npz").write_bytes(rewritten(traced, **members))

    with pytest.raises(TraceError, match=posix.UNREADABLE):
        posix.read_profile(tmp_path / "profile-1.npz")


@pytest.mark.parametrize(("name", "value"), [("file", 7), ("end", 0), ("operation", 999)])
def test_calls_of_no_file_or_of_another_time_are_not_drawn(traced, name, value, tmp_path):
    events = np.load(io.BytesIO(traced))["events"].copy()
    events[name][0] = value
    (tmp_path / "profile-1.npz").write_bytes(rewritten(traced, events=events))

    with pytest.raises(TraceError, match=posix.UNREADABLE):
        posix.read_profile(tmp_path / "profile-1.npz")
