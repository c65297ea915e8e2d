"""Windows on POSIX calls, with stamps of the test's own."""

import numpy as np

from jobs.events.posix_window import COUNTERS, EVENT, OPERATIONS, Window


def window(reads, started_ns=0, length_ns=10**9, marks=()):
    """Of reads of one file, each ``(thread, start in ns, end in ns, bytes)`` from the start of the window."""
    events = np.zeros(len(reads), EVENT)
    for event, (thread, start, end, size) in zip(events, reads, strict=True):
        event["thread"], event["start"], event["end"] = thread, started_ns + start, started_ns + end
        event["returned"], event["operation"] = size, OPERATIONS.index("read")
    edges = {"started_ns": started_ns, "ended_ns": started_ns + length_ns, "marks": marks}
    files = {"paths": ["a"], "modules": ["POSIX"], "counters": np.zeros(1, COUNTERS)}
    counts = {"process": 1, "dropped": 0, "read_bytes": 0, "kernel_read_bytes": None}
    return Window("trace", events=events, **edges, **files, **counts)
