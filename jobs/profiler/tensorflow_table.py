"""A trace of TensorFlow's profiler as a table of our own: thread, operation, category, start, duration.

It is made on the node, at the end of a run, so that nobody needs TensorFlow's messages later. The rules of the
categories are data, those of `analysis`: ``categories.json`` here is a link to them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.xspace_messages import parsed
from jobs.steps import MARK
from jobs.system import files

_Times = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

SCHEMA = 1
TABLE = json.loads(Path(__file__).with_name("categories.json").read_text(encoding="utf-8"))
_PREFETCHED = re.compile(TABLE["prefetched"])
INPUT, REMEDIES = tuple(TABLE["input"]), TABLE["remedies"]
COMPUTE, CHECKPOINT, OTHER, UNCATEGORISED, FRAME = "compute", "checkpoint", "other", "uncategorised", "frame"
KINDS = (*TABLE["order"], UNCATEGORISED, FRAME)
"""Of a moment in which several go on, the first one is what a step spends it on; frames are left out."""
EVENT = np.dtype([("line", "<i4"), ("op", "<i4"), ("category", "<i4"), ("start", "<i8"), ("duration", "<i8")])
STEPS = np.dtype([("number", "<i8"), ("line", "<i8"), ("start", "<i8"), ("end", "<i8")])
MOST_EVENTS = 4_000_000
_STEP, _BEGIN, _ENVIRONMENT = "step_num", "profile_start_time", "Task Environment"
_ADDED = "/device:CUSTOM:"
_PS_PER_NS = 1000
_LARGEST_BYTES = 1 << 31  # of one message, by protobuf


@dataclass
class Table:
    """Events and steps in Unix time (ns), and the names that they refer to."""

    lines: list[str]
    ops: list[str]
    events: np.ndarray[Any, Any]  # EVENT, without frames
    steps: np.ndarray[Any, Any]  # STEPS
    frames: int  # events that were left out, for they are around others
    dropped: int  # events that were left out for want of room


def converted(folder: Path) -> Table:
    """Return the table of the one trace below a folder. Raises ProfilerError: there is none, or it cannot be read."""
    traces = [folder / name for name in files.tree(folder) if name.endswith(".xplane.pb")]
    if len(traces) != 1:
        raise ProfilerError(f"TensorFlow's profiler left {len(traces)} traces instead of one")
    try:
        space = parsed("XSpace", files.read(traces[0], _LARGEST_BYTES))
    except (OSError, ImportError, ValueError) as error:
        raise ProfilerError(f"TensorFlow's trace cannot be read: {error}") from error
    return table(space)


def table(space: Any) -> Table:
    """Return the events of a space (``XSpace``)."""
    found = Table([], [], np.zeros(0, EVENT), np.zeros(0, STEPS), 0, 0)
    rules = [
        (KINDS.index(rule["category"]), re.compile(rule.get("line", "")), re.compile(rule["name"]))
        for rule in TABLE["rules"]
    ]
    parts, steps, room = [found.events], [found.steps], MOST_EVENTS
    for plane in space.planes:
        if plane.name.startswith(_ADDED):
            continue
        keys = {key: place + len(found.ops) for place, key in enumerate(plane.event_metadata)}
        found.ops += [each.name for each in plane.event_metadata.values()]
        for line in plane.lines:
            events, marks = _line(line, len(found.lines), keys, plane)
            found.lines.append(f"{plane.name} {line.display_name or line.name}".strip())
            events["category"] = _categories(found.lines[-1], found.ops, events["op"], rules)
            work = events[events["category"] != KINDS.index(FRAME)]
            found.frames += len(events) - len(work)
            found.dropped += max(0, len(work) - room)
            parts.append(work[:room])
            room -= len(parts[-1])
            steps.append(marks)
    found.events, found.steps = np.concatenate(parts), np.concatenate(steps)
    began = _began_ns(space)
    found.events["start"] += began
    found.steps["start"] += began
    found.steps["end"] += began
    found.steps.sort(order="start")
    return found


def _line(line: Any, place: int, keys: dict[int, int], plane: Any) -> tuple[Any, Any]:
    """Return the events of a thread, and our marks of steps, which are no events of their own."""
    columns = [(keys.get(each.metadata_id, 0), each.offset_ps, each.duration_ps) for each in line.events]
    op, start, duration = np.array(columns, np.int64).reshape(-1, 3).T
    events = np.zeros(len(op), EVENT)
    events["line"], events["op"], events["start"] = place, op, line.timestamp_ns + start // _PS_PER_NS
    events["duration"] = line.timestamp_ns + (start + duration) // _PS_PER_NS - events["start"]
    own = np.isin(op, [keys[key] for key, each in plane.event_metadata.items() if each.name == MARK])
    steps = np.zeros(own.sum(), STEPS)
    steps["line"], steps["start"] = place, events["start"][own]
    steps["end"] = steps["start"] + events["duration"][own]
    step = {key for key, each in plane.stat_metadata.items() if each.name == _STEP}
    for at, event in enumerate(np.flatnonzero(own).tolist()):
        told = [stat for stat in line.events[event].stats if stat.metadata_id in step]
        steps["number"][at] = max((max(stat.int64_value, stat.uint64_value) for stat in told), default=0)
    return events[~own], steps


def _categories(line: str, ops: Sequence[str], op: Any, rules: Sequence[tuple[int, Any, Any]]) -> Any:
    places, back = np.unique(op, return_inverse=True)
    of_line = [(kind, of_name) for kind, of_line, of_name in rules if of_line.search(line)]
    unknown = KINDS.index(UNCATEGORISED)
    kinds = [next((kind for kind, name in of_line if name.search(ops[place])), unknown) for place in places.tolist()]
    return np.array(kinds, np.int32)[back.ravel()]


def _began_ns(space: Any) -> int:
    """Return the Unix time of the profiler's start, to which all its times are relative."""
    for plane in space.planes:
        for stat in plane.stats if plane.name == _ENVIRONMENT else ():
            if plane.stat_metadata[stat.metadata_id].name == _BEGIN:
                return int(stat.uint64_value or stat.int64_value)
    return 0


def write(path: Path, table: Table) -> None:
    """Write a table: ``head`` (JSON), ``lines`` and ``ops`` (each ended by a NUL), ``events``, ``steps``."""
    head = {"schema": SCHEMA, "kinds": KINDS, "frames": table.frames, "dropped": table.dropped}
    texts = {"lines": table.lines, "ops": table.ops}
    named = {key: "".join(each.replace("\0", " ") + "\0" for each in names) for key, names in texts.items()}
    arrays: dict[str, Any] = {
        key: np.frombuffer(text.encode(), np.uint8) for key, text in {"head": json.dumps(head), **named}.items()
    }
    with files.whole(path) as file:
        np.savez_compressed(file, events=table.events, steps=table.steps, **arrays)


def figures(table: Table) -> dict[str, Any]:
    """Return what a record holds: numbers of steps and events, and seconds over all steps by category.

    ``union_s``: in which one went on; ``exposed_s``: of that, without those in which the rank computes; ``spent_s``:
    each moment given to one category, the first of `KINDS`, or to ``unaccounted``, so that it adds up to ``steps_s``;
    ``waited_s``: spent on the input; ``remedies_s``: what each of `REMEDIES` saves of it at most.
    """
    steps = table.steps["start"], table.steps["end"]
    steps_ns = _length([steps])

    def inside(*parts: _Times) -> int:
        return _length(parts) + steps_ns - _length([*parts, steps])

    times = {name: _times(table, name) for name in KINDS[:-2]}
    computes = inside(times[COMPUTE])
    exposed = {name: inside(each, times[COMPUTE]) - computes for name, each in times.items()}
    spent, taken, before = {}, [], 0
    for name, each in (times | {CHECKPOINT: _times(table, CHECKPOINT, table.steps["line"])}).items():
        taken.append(each)
        spent[name] = inside(*taken) - before
        before += spent[name]
    waited = sum(spent[name] for name in INPUT)
    busy = sum(spent[name] for name in KINDS[: KINDS.index(INPUT[0])])
    hidden = inside(times["read"], times["decode"]) - spent["read"] - spent["decode"]
    ahead = 0 if any(map(_PREFETCHED.search, table.ops)) else max(0, min(waited, busy - hidden))
    remedies = {"prefetch": ahead} | {name: spent[name] for name in INPUT}
    seconds = {
        "union_s": {name: inside(each) for name, each in times.items()},
        "exposed_s": exposed | {COMPUTE: computes},
        "spent_s": spent | {"unaccounted": steps_ns - before},
        "remedies_s": remedies,
    }
    return {
        "steps": len(table.steps),
        "events": len(table.events),
        "uncategorised": int((table.events["category"] == KINDS.index(UNCATEGORISED)).sum()),
        "dropped": table.dropped,
        "steps_s": steps_ns / 1e9,
        "waited_s": waited / 1e9,
        **{key: {name: value / 1e9 for name, value in each.items()} for key, each in seconds.items()},
    }


def _times(table: Table, category: str, lines: Any = None) -> _Times:
    """Return starts and ends of a category's events, on these threads alone if they are given."""
    kinds = [KINDS.index(category), *([KINDS.index(UNCATEGORISED)] if category == OTHER else [])]
    here = np.isin(table.events["category"], kinds)
    found = table.events[here if lines is None else here & np.isin(table.events["line"], lines)]
    return found["start"], found["start"] + found["duration"]


def _length(parts: Sequence[_Times]) -> int:
    """Return the time that is in any of the intervals, ns."""
    start, end = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(start)
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(np.concatenate([start[:1], end]))[:-1]  # of those before each
    return int(np.maximum(end - np.maximum(start, reach), 0).sum())
