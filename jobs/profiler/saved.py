"""A profile in a file, whoever wrote it: a window that was saved, the spill of a killed process, a Darshan log.

PyDarshan (an extra: ``pip install 'darshan>=3.5'``) parses a log in C, which a damaged one can abort, and believes the
sizes that it names. So it does that in a process of its own, ``python -m jobs.profiler.saved LOG WINDOW``, with limits.
"""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from jobs.profiler import darshan_log, table
from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.window import COUNTERS, DARSHAN_NAMES, MODULES, SPENT, TIMES, Window
from jobs.system import files, programs, untrusted

_MOST_S = 120  # PyDarshan reads 100,000 records in 12 s
_MOST_MEMORY_BYTES = 8 << 30  # of addresses; pandas and PyDarshan take 1.5 GiB of them before they read anything


def read(path: Path) -> Window:
    """Return the window in a file; raises ProfilerError: it is none that is known, damaged or too large."""
    path = files.named(path)
    try:
        with untrusted.opened(path, table.LARGEST_BYTES) as file:
            begin = file.read(len(darshan_log.MAGIC))
    except (OSError, untrusted.UntrustedError) as error:
        raise table.unreadable(path, error) from error
    return _by_darshan(path) if begin[:2] == b"3." and begin[-1:] == b"\0" else table.read(path)


def _by_darshan(log: Path) -> Window:
    if importlib.util.find_spec("darshan") is None:
        raise ProfilerError(f"{log} is a Darshan log, and PyDarshan is not installed", "pip install 'darshan>=3.5'")
    with tempfile.TemporaryDirectory() as folder:
        window = Path(folder).resolve() / "window.npz"
        try:
            done = programs.run(programs.python("-m", __name__, str(log), str(window)), timeout=_MOST_S)
        except subprocess.TimeoutExpired as error:
            raise ProfilerError(f"PyDarshan has not read {log} within {_MOST_S} s", "name a smaller log") from error
        if done.returncode:
            last_words = (done.stderr.strip().splitlines() or [""])[-1]
            why = f"it was killed by signal {-done.returncode}" if done.returncode < 0 else last_words
            raise ProfilerError(f"{log} is no Darshan log that PyDarshan reads: {why}")
        return table.read(window)


def main(log: str, window: str) -> None:
    """Read a log with PyDarshan and write its window; ends by an exception or a signal where it cannot."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_S, _MOST_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that PyDarshan has no summary for
        import darshan  # noqa: PLC0415 - an extra, and slow

        report = darshan.DarshanReport(f"/proc/self/fd/{files.opened(Path(log))}", read_all=False)
        for module in MODULES:
            if module in report.modules:
                report.mod_read_all_records(module)
    table.write(Path(window), _window(report))


def _window(report: Any) -> Window:
    records = [(module, each) for module in MODULES if module in report.records for each in report.records[module]]
    job = report.metadata["job"]
    started_ns = job["start_time_sec"] * 10**9 + job["start_time_nsec"]
    counters = np.zeros(len(records), COUNTERS)
    for (module, record), row in zip(records, counters, strict=True):
        values = dict(zip(report.counters[module]["counters"], record["counters"].tolist(), strict=True))
        times = dict(zip(report.counters[module]["fcounters"], record["fcounters"].tolist(), strict=True))
        for key, index, name in DARSHAN_NAMES[module]:
            value = max(0, values.get(f"{module}_{name}", 0))  # -1: not known of a file that ranks share
            if index is None:
                row[key] = value
            else:
                row[key][index] = value
        for key in SPENT:
            row[key] = round(times.get(f"{module}_F_{key.upper()}", 0.0) * 1e9)
        for key in TIMES:
            action, _, edge = key.upper().partition("_")
            after_s = times.get(f"{module}_F_{action}_{edge}_TIMESTAMP", 0.0)
            row[key] = started_ns + round(after_s * 1e9) if after_s else 0
    paths = [report.name_records.get(record["id"], f"<{record['id']}>") for _, record in records]
    return Window(
        mode="counters",
        started_ns=started_ns,
        ended_ns=job["end_time_sec"] * 10**9 + job["end_time_nsec"],
        process=job["jobid"],
        paths=paths,
        modules=[module for module, _ in records],
        counters=counters,
        events=None,
        dropped=sum(bool(report.modules[module]["partial_flag"]) for module in {module for module, _ in records}),
        read_bytes=int(counters["bytes_read"].sum()),
        kernel_read_bytes=None,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
