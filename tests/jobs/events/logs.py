"""Time logs with stamps of the test's own, as `jobs.events.TimeLog` would have written them."""

import base64
import json
import struct

from jobs.events.time_log import ACTIONS, PHASES

STARTED, REALTIME = 1_000_000, 1_700_000_000_000_000_000


def event(action, start, end, *, thread=1, size=-1, place=0, file=0):  # noqa: PLR0913
    """Times in ns after the log was begun."""
    packed = struct.Struct("<QqqqiiB").pack
    return packed(thread, STARTED + start, end - start, size, place, file, ACTIONS.index(action))


def head(**other):
    return {
        "timelog": 1, "id": "a", "run": "", "rank": 0, "ranks": 1, "host": "n1", "pid": 10, "clock": "c",
        "started_ns": STARTED, "realtime_ns": REALTIME, "actions": ACTIONS, "phases": PHASES, **other,
    }  # fmt: skip


def block(events=(), **other):
    packed = base64.b64encode(b"".join(events)).decode()
    return {"written_ns": STARTED + 1000, "first": 0, "places": [], "files": [], "events": packed, **other}


def end(count, at=1000, **other):
    return {"ended_ns": STARTED + at, "realtime_ns": REALTIME + at, "count": count, **other}


def write(path, *lines):
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def stream(path, events, *, at=1000, early=0, places=((0, -1, -1),), files=(), **other):  # noqa: PLR0913
    """Write a whole log, which was begun so many ns before the moment that its events are counted from."""
    began = {"started_ns": STARTED - early, "realtime_ns": REALTIME - early} if early else {}
    last = STARTED + at
    middle = block(events, places=list(places), files=list(files), written_ns=last)
    return write(
        path, json.dumps(head(id=path.name, **began, **other), separators=(",", ":")), middle, end(len(events), at)
    )
