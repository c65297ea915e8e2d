"""The reader of traces, against protobuf, and against files that are no traces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.events import tensorflow_trace, xplane
from jobs.events.table import EventsError
from tests.jobs.events.spaces import messages, space, traced

NUMBERS = st.integers(0, 1 << 61)
STATS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1 << 40) | st.floats(allow_nan=False) | st.text()), max_size=3
)
EVENTS = st.lists(st.tuples(st.integers(0, 4), NUMBERS, NUMBERS, STATS), max_size=3)
SPACES = st.lists(
    st.tuples(
        st.text(max_size=5), st.lists(st.tuples(st.text(max_size=5), st.integers(0, 1 << 60), EVENTS), max_size=3)
    ),
    min_size=1,
    max_size=3,
)


def made(planes):
    found = messages().XSpace(warnings=["one"], hostnames=["node"])
    for name, lines in planes:
        plane = found.planes.add(name=name)
        for key in range(1, 4):
            plane.event_metadata[key].name = f"op {key}"
            plane.event_metadata[key].stats.add(metadata_id=1, str_value="about")
            plane.stat_metadata[key].name = "step_num" if key == 2 else f"stat {key}"
        for line_name, at, events in lines:
            line = plane.lines.add(id=-1, name=line_name, timestamp_ns=at, display_id=5)
            for key, offset, duration, stats in events:
                event = line.events.add(metadata_id=key, offset_ps=offset, duration_ps=duration)
                for stat, value in stats:
                    kind = {int: "int64_value", float: "double_value", str: "str_value"}[type(value)]
                    event.stats.add(metadata_id=stat, **{kind: value})
    return found


def expected(space):
    """What protobuf reads of it."""
    for plane in space.planes:
        names = {key: each.name for key, each in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                steps = [each.int64_value for each in event.stats if each.metadata_id == 2]
                at = line.timestamp_ns
                yield (
                    f"{plane.name} {line.name}".strip(),
                    names.get(event.metadata_id, "?"),
                    at + event.offset_ps // 1000,
                    at + (event.offset_ps + event.duration_ps) // 1000,
                    steps[-1] if steps else -1,
                )


def found(raw):
    for line, op, *rest in zip(*(each.tolist() for each in raw.columns), strict=True):
        yield (raw.lines[line], raw.ops[op], *rest)


@given(SPACES)
def test_what_protobuf_writes_is_read_as_protobuf_reads_it(planes):
    space = made(planes)

    assert list(found(xplane.read_space(space.SerializeToString()))) == list(expected(space))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it has no plane"),
        (b"\x1f\x8b\x08", "no trace"),
        (b'{"traceEvents": []}', "no trace"),
        (b"\x0a\x00", "no event"),
        (b"\x0a\x00" * 3, "more than 2 planes"),
        (b"\x0a\x06" + b"\x1a\x00" * 3, "more than 2 threads"),
        (b"\x0a\x0c" + b"\x22\x02\x08\x01\x22\x02\x08\x02\x22\x02\x08\x03", "more than 2 names"),
    ],
)
def test_what_is_no_trace_or_holds_too_much_is_refused_with_a_cure(tmp_path, monkeypatch, content, told):
    for name in ("MOST_PLANES", "MOST_LINES", "MOST_NAMES"):
        monkeypatch.setattr(xplane, name, 2)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)

    with pytest.raises(EventsError, match=told) as refused:
        tensorflow_trace.read_trace(path)
    assert refused.value.hint


LATEST = 1 << 62


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("of", ["profiler", "line", "offset", "length"])
def test_what_began_or_lasted_beyond_all_time_is_refused(tmp_path, of, late):
    made = space([("python", [("a:Conv2D", 0, 1)])], began_ns=LATEST + late if of == "profiler" else 1)
    (line,) = made.planes[0].lines
    line.timestamp_ns = LATEST + late if of == "line" else 0
    line.events[0].offset_ps = LATEST + late if of == "offset" else 0
    line.events[0].duration_ps = LATEST + late if of == "length" else 0
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(made.SerializeToString())

    if not late:
        assert len(tensorflow_trace.read_trace(path).events) == 1
        return
    with pytest.raises(EventsError, match="time is too large" if of == "profiler" else "event is too large"):
        tensorflow_trace.read_trace(path)


def test_a_number_that_comes_again_on_a_thread_is_another_step():
    epochs = [("train", 100 * at, 100 * at + 90, at % 3) for at in range(6)]
    beside = [("save", 100 * at + 80, 100 * at + 95, at % 3) for at in range(6)]

    found = traced([("python", epochs), ("other", beside)]).steps

    assert found.number.tolist() == [0, 1, 2, 0, 1, 2]
    assert (found.end - found.start).tolist() == [95_000] * 6
