"""A window as a plane of a trace, read by TensorFlow's own messages and held against its events."""

import os

import numpy as np
import pytest

from jobs.events.posix_window import OPERATIONS
from jobs.profiler import Profile, tensorboard_files
from tests.jobs.events.spaces import messages


@pytest.fixture
def window(tmp_path):
    """Two files, one read in calls of three sizes, one of 20 bytes written."""
    large, small = tmp_path / "large\x1b[31m", tmp_path / "small"
    large.write_bytes(bytes(200_000))
    with Profile(only=[tmp_path]) as profile:
        descriptor = os.open(large, os.O_RDONLY)
        for length, offset in ((50, 0), (2000, 50), (2000, 100_000), (150_000, 50_000), (10, 200_000)):
            os.pread(descriptor, length, offset)
        os.close(descriptor)
        small.write_bytes(bytes(20))
    return profile.window


def _plane(window, origin_ns=0, fault=""):
    (found,) = messages().XSpace.FromString(tensorboard_files.serialised_planes(window, origin_ns, fault)).planes
    assert found.name == tensorboard_files.LINES
    return found


def _drawn(lines, origin_ns):
    """Every event as (path, operation, start, end, returned), in nanoseconds of Unix time."""
    for line in lines.lines:
        for event in line.events:
            numbers = {lines.stat_metadata[stat.metadata_id].name: stat.int64_value for stat in event.stats}
            begin = origin_ns + line.timestamp_ns + event.offset_ps // 1000
            operation = lines.event_metadata[event.metadata_id].name
            yield line.name, operation, begin, begin + event.duration_ps // 1000, numbers["returned"]


@pytest.mark.parametrize("relative", [False, True])
def test_each_call_is_drawn_once_on_the_line_of_its_file(window, relative):
    origin_ns = window.started_ns if relative else 0

    drawn = list(_drawn(_plane(window, origin_ns), origin_ns))

    seen = [
        (window.paths[row["file"]].replace("\x1b", "\\x1b"), OPERATIONS[row["operation"]],
         *(int(row[key]) for key in ("start", "end", "returned")))
        for row in window.events
    ]  # fmt: skip
    assert sorted(drawn) == sorted(seen)
    assert len({name for name, *_ in drawn}) == 2


def test_what_is_left_out_is_told(window, monkeypatch):
    monkeypatch.setattr(tensorboard_files, "MOST_EVENTS", 3)

    lines = _plane(window)

    *_, last = lines.lines
    took = np.sort(window.events["end"] - window.events["start"])[::-1]
    drawn = [event.duration_ps // 1000 for line in lines.lines[:-1] for event in line.events]
    assert sorted(drawn, reverse=True) == took[:3].tolist()
    assert last.events[0].duration_ps == 1000 * (window.ended_ns - window.started_ns)
    left_out = lines.event_metadata[last.events[0].metadata_id].name
    assert left_out == last.name == f"{len(window.events) - 3} shorter calls are not drawn"


def test_only_the_files_that_took_longest_have_a_line(window, monkeypatch):
    monkeypatch.setattr(tensorboard_files, "MOST_LINES", 1)
    took = np.bincount(window.events["file"], weights=window.events["end"] - window.events["start"])

    first, last = _plane(window).lines

    assert first.name == window.paths[int(took.argmax())].replace("\x1b", "\\x1b")
    assert "not drawn" in last.name


@pytest.mark.parametrize("mode", ["counters", None])
def test_without_single_calls_a_line_says_why(mode, data):
    with Profile("counters", only=[data.parent]) as profile:
        data.read_bytes()

    (line,) = _plane(profile.window if mode else None, 0, "a window is open already").lines

    assert line.name == ("calls were only counted" if mode else "a window is open already")
    assert abs(line.timestamp_ns - profile.window.started_ns) < 60e9
