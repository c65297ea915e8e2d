"""Traces as TensorFlow writes them, made by protobuf: TensorFlow's own messages, loaded without TensorFlow."""

import importlib.util
from functools import cache
from pathlib import Path

from jobs.events import tensorflow_trace

US = 1_000_000  # picoseconds


@cache
def messages():
    home = Path(importlib.util.find_spec("tensorflow").submodule_search_locations[0])
    path = home / "tsl" / "profiler" / "protobuf" / "xplane_pb2.py"
    spec = importlib.util.spec_from_file_location("xplane_pb2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def space(lines, began_ns=10**18):
    """Of lines, each ``(name, [(op, start in µs, end in µs[, step])])``, a space with TensorFlow's planes."""
    made = messages().XSpace()
    host, about = made.planes.add(name="/host:CPU"), made.planes.add(name="Task Environment")
    about.stat_metadata[1].name = "profile_start_time"
    about.stats.add(metadata_id=1, uint64_value=began_ns)
    host.stat_metadata[7].name = "step_num"
    places = {}
    for number, (name, events) in enumerate(lines):
        line = host.lines.add(id=number, name=name)
        for op, start, end, *step in events:
            place = places.setdefault(op, len(places) + 1)
            host.event_metadata[place].name = op
            event = line.events.add(metadata_id=place, offset_ps=start * US, duration_ps=(end - start) * US)
            for number_of_step in step:
                event.stats.add(metadata_id=7, int64_value=number_of_step)
    return made


def written(path, lines, **more):
    path.write_bytes(space(lines, **more).SerializeToString())
    return path


def traced(lines, **more):
    """The events of such a space."""
    return tensorflow_trace.from_xplane("a", space(lines, **more).SerializeToString())


def table(path, lines, **more):
    """Write such a space as a run leaves it."""
    tensorflow_trace.write_table(path, traced(lines, **more))
    return path
