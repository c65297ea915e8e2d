"""Figures of tf-Darshan: windows on the line of the trace, bandwidth beside what is published, what a profile costs."""

import os

import numpy as np
import pytest

from analysis.traces import posix
from analysis.traces.system import TraceError
from jobs.profiler import Profile

SIZE = 300_000


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    """A profile of five files in three parts, of one, three and one, and the Unix time of its start."""
    folder = tmp_path_factory.mktemp("data")
    with Profile(only=[folder]) as profile:
        for name in "abcde":
            if name in "be":
                profile.mark()
            (folder / name).write_bytes(bytes(SIZE))
            descriptor = os.open(folder / name, os.O_RDONLY)
            while os.read(descriptor, 1 << 20):
                pass
            os.close(descriptor)
    profile.save(folder / "profile-1.npz")
    return folder / "profile-1.npz", profile.window.started_ns / 1e9, profile.window


def test_the_parts_of_a_profile_hold_every_byte_once(divided):
    path, _, window = divided

    rows = posix.read_parts(posix.read_profile(path))

    moved = rows["read_mb_per_s"] * (rows["elapsed_s"] - rows["begin_s"])
    assert moved.tolist() == pytest.approx([SIZE / 1e6, 3 * SIZE / 1e6, SIZE / 1e6])
    assert rows["begin_s"].tolist() == pytest.approx([0, *((each - window.started_ns) / 1e9 for each in window.marks)])


@pytest.mark.parametrize("marks", [np.array([5], np.int64), np.array([1 << 62], np.int64), np.array([1.5])])
def test_marks_that_are_not_in_the_window_are_not_believed(divided, tmp_path, marks):
    with np.load(divided[0]) as arrays:
        np.savez(tmp_path / "odd.npz", **{**arrays, "marks": marks})

    with pytest.raises(TraceError, match=posix.UNREADABLE):
        posix.read_profile(tmp_path / "odd.npz")
