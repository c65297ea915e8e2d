"""The engine fio: its command line, and its figures (fio(1), JSON output)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.benchmarks.engines import engine, external
from jobs.benchmarks.engines.engine import Order, Outcome
from jobs.errors import EngineError

_WORDS = {"write": "write", "read": "read", "random_read": "randread"}


def command(order: Order) -> list[str]:
    """Return fio's command line; the file is named relative to its folder, for fio gives ``:`` and ``$`` meanings."""
    words = {
        "name": "baseline",
        "filename": order.file.name,
        "rw": _WORDS[order.access],
        "bs": order.block_bytes,
        "size": order.file_bytes,
        "ioengine": "psync",
        "direct": int(order.direct),
        "output-format": "json",
    }
    if order.access == "write":  # a new file, none of it allocated before, and the flush is part of the time
        words |= {"end_fsync": 1, "create_on_open": 1, "fallocate": "none"}
    else:
        words["allow_file_create"] = 0
    if order.access == "random_read":
        words |= _readers(order)
    flags = ["--thread", "--group_reporting", *([] if order.access == "write" else ["--readonly"])]
    return ["fio", *(f"--{key}={value}" for key, value in words.items()), *flags]


def _readers(order: Order) -> dict[str, Any]:
    """Share a file among readers, so that no two of them read one block: fio keeps account for each one alone."""
    blocks = order.file_bytes // order.block_bytes
    readers = max(1, min(order.threads, blocks))
    share = blocks // readers * order.block_bytes
    return {
        "numjobs": readers,
        "size": share,
        "offset_increment": share,
        "randrepeat": 0,  # else fio takes a seed of its own, whatever randseed says
        "randseed": order.seed + 1,  # each reader's seed is a multiple of it: of 0, all readers have the same places
        "runtime": f"{round(order.seconds_max * 1000)}ms",  # fio takes a fraction of a second for no limit
    }


def outcome(answer: str, order: Order) -> Outcome:
    """Read fio's answer: one JSON document with one job, whatever stands around it; else raises EngineError."""
    found = [document for document in external.documents(answer) if "jobs" in document]
    if len(found) != 1:
        raise EngineError(f"it gave {len(found)} answers" if found else "it gave no whole answer")
    return _outcome(found[0], order)


def _outcome(document: Mapping[str, Any], order: Order) -> Outcome:
    jobs = document["jobs"]
    if not isinstance(jobs, list) or len(jobs) != 1 or not isinstance(jobs[0], dict):
        raise EngineError("its answer does not hold one job")
    job = jobs[0]
    if external.number(job, "error"):
        raise EngineError(f"error {job['error']}")
    side = job.get("write" if order.access == "write" else "read")
    if not isinstance(side, dict):
        raise EngineError("its answer does not say what was read or written")
    moved, requests, milliseconds, rate = (
        external.number(side, key) for key in ("io_bytes", "total_ios", "runtime", "bw_bytes")
    )
    version = str(document.get("fio version", engine.UNKNOWN))
    return Outcome(int(moved), int(requests), milliseconds / 1e3, version, rate=rate)
