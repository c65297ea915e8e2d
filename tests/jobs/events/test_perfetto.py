"""Traces for Perfetto, which is not asked here: by the Trace Event Format each event is legal."""

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np

from jobs.profiler import Profile
from jobs.profiler.profile import write_chrome

NAMES = {"process_name": ("name", str), "thread_name": ("name", str), "thread_sort_index": ("sort_index", int)}
X = {"ph": "X", "name": "read", "pid": 1, "tid": 1, "ts": 0, "dur": 5}


def faults(text):
    """Yield what is wrong: phases beside names (M) and complete events (X), odd values, events of a thread that cross.

    A viewer takes events of one thread for nested, and drops one that begins in another and ends behind it.
    """
    threads = defaultdict(list)
    for event in json.loads(text)["traceEvents"]:
        if event["ph"] == "M":
            key, kind = NAMES.get(event["name"], ("", None))
            legal = type(event.get("pid")) is int and type(event["args"].get(key)) is kind
        else:
            legal = event["ph"] == "X" and all(type(event[key]) is int for key in ("pid", "tid"))
            legal &= type(event["name"]) is str and all(0 <= event[key] < 1e15 for key in ("ts", "dur"))
            times = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            threads[event["pid"], event["tid"]].append(times)
        if not legal:
            yield f"illegal: {event}"
    for thread, events in threads.items():
        ends = []
        for start, end in sorted(events, key=lambda each: (each[0], -each[1])):
            while ends and ends[-1] <= start:
                ends.pop()
            if ends and end > ends[-1]:
                yield f"{start} to {end} crosses another event of {thread}"
            ends.append(end)


def test_calls_of_several_threads_on_one_file_cross_on_no_line(tmp_path):
    with Profile("trace", only=[tmp_path]) as profile:
        (tmp_path / "data").write_bytes(b"0")
    # Each thread's calls begin in one of the other's, and end behind it.
    events = np.resize(profile.window.events[:1], 6)
    events["thread"] = [1, 2] * 3
    events["start"] = profile.window.started_ns + 10 * np.arange(6)
    events["end"] = events["start"] + 15
    write_chrome(tmp_path / "calls.json", replace(profile.window, events=events))
    text = (tmp_path / "calls.json").read_text()

    assert list(faults(text)) == []
    calls = [each for each in json.loads(text)["traceEvents"] if each["ph"] == "X"]
    assert len(calls) == len(events)
    assert len(list(faults(json.dumps({"traceEvents": [{**each, "tid": 0} for each in calls]})))) == 5
