"""A window as planes of a trace, held against its own events; and traces that are none."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.profiler import Profile, xspace_messages
from jobs.profiler.tensorboard import plane
from jobs.profiler.window import OPERATIONS


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


def _planes(window, origin_ns=0):
    space = xspace_messages.messages().XSpace.FromString(plane.planes(window, origin_ns))
    return {each.name: each for each in space.planes}


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

    drawn = list(_drawn(_planes(window, origin_ns)[plane.LINES], origin_ns))

    seen = [
        (window.paths[row["file"]].replace("\x1b", "\\x1b"), OPERATIONS[row["operation"]],
         *(int(row[key]) for key in ("start", "end", "returned")))
        for row in window.events
    ]  # fmt: skip
    assert sorted(drawn) == sorted(seen)
    assert len({name for name, *_ in drawn}) == 2


def test_what_is_left_out_is_told(window, monkeypatch):
    monkeypatch.setattr(plane, "MOST_EVENTS", 3)

    lines = _planes(window)[plane.LINES]

    *_, last = lines.lines
    took = np.sort(window.events["end"] - window.events["start"])[::-1]
    drawn = [event.duration_ps // 1000 for line in lines.lines[:-1] for event in line.events]
    assert sorted(drawn, reverse=True) == took[:3].tolist()
    assert last.name == "not drawn"
    assert last.events[0].duration_ps == 1000 * (window.ended_ns - window.started_ns)
    left_out = lines.event_metadata[last.events[0].metadata_id].name
    assert left_out == f"{len(window.events) - 3} shorter calls are not drawn"


def test_only_the_files_that_took_longest_have_a_line(window, monkeypatch):
    monkeypatch.setattr(plane, "MOST_LINES", 1)
    took = np.bincount(window.events["file"], weights=window.events["end"] - window.events["start"])

    first, last = _planes(window)[plane.LINES].lines

    assert first.name == window.paths[int(took.argmax())].replace("\x1b", "\\x1b")
    assert last.name == "not drawn"


def test_the_summary_says_what_was_read(window):
    told = json.loads(_planes(window)[plane.SUMMARY].stats[0].str_value)

    files = {each["path"].rpartition("/")[2]: each for each in told["files"]}
    assert set(files) == {"large\\x1b[31m", "small"}
    assert (files["small"]["size"], files["small"]["bytes_written"]) == (20, 20)
    assert (files["large\\x1b[31m"]["size"], files["large\\x1b[31m"]["reads"]) == (200_000, 5)
    assert dict(zip(told["sizes"], told["figures"]["read_sizes"], strict=True)) | {} == {
        **dict.fromkeys(told["sizes"], 0), "0_100": 2, "1K_10K": 2, "100K_1M": 1
    }  # fmt: skip
    assert [sum(told["file_sizes"]), told["file_sizes"][0], told["file_sizes"][4]] == [2, 1, 1]
    moved = sum(told["read_mb_per_s"]) / 100 * window.wall_s
    assert moved == pytest.approx((50 + 2000 + 2000 + 150_000) / 1e6)


@pytest.mark.parametrize(("module", "order"), [("POSIX", [2, 1, 2]), ("STDIO", [0, 0, 0])])
def test_the_order_is_that_of_reads_that_are_no_streams(window, module, order):
    told = json.loads(_planes(replace(window, modules=[module] * 2))[plane.SUMMARY].stats[0].str_value)

    assert (told["figures"]["reads"], told["order"]) == (5, order)


def test_a_window_of_counters_has_a_summary_and_no_lines(data):
    with Profile("counters", only=[data.parent]) as profile:
        data.read_bytes()

    planes = _planes(profile.window)

    assert list(planes) == [plane.SUMMARY]
    assert json.loads(planes[plane.SUMMARY].stats[0].str_value)["files"][0]["bytes_read"] == 10_000


def test_the_summary_is_found_among_other_planes(window, tmp_path):
    trace = tmp_path / "host.xplane.pb"
    other = xspace_messages.messages().XSpace(hostnames=["vm"])
    other.planes.add(name="/host:CPU", id=1 << 60).lines.add(name=plane.SUMMARY)
    trace.write_bytes(other.SerializeToString() + plane.planes(window, 0))

    found = xspace_messages.plane(trace, plane.SUMMARY, 1 << 20)

    assert json.loads(found.stats[0].str_value)["process"] == os.getpid()
    assert xspace_messages.plane(trace, "tf_other", 1 << 20) is None
    with pytest.raises(ValueError, match="bytes"):
        xspace_messages.plane(trace, plane.SUMMARY, 10)


@given(st.binary(max_size=60))
def test_what_is_no_trace_is_refused_or_has_no_plane(tmp_path, garbage):
    trace = tmp_path / "x.xplane.pb"
    trace.write_bytes(garbage)

    try:
        found = xspace_messages.plane(trace, plane.SUMMARY, 1 << 20)
    except ValueError:
        found = None

    assert found is None
