"""The engine fio: its command line, and its figures (fio(1), JSON output)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from jobs import engines, external
from jobs.engines import EngineError, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jobs.engines import Order

_WORDS = {"write": "write", "read": "read", "random_read": "randread"}


def run(order: Order, raw: Path | None = None) -> Outcome:
    """Have fio do what is asked.

    Raises
    ------
    EngineError
        It failed, or its answer cannot be read or believed.
    """
    before = time.perf_counter()
    answer = external.said(command(order), order.file.parent, raw)
    return outcome(answer, order, time.perf_counter() - before)


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
        "numjobs": order.threads,
        "output-format": "json",
    }
    if order.access == "write":  # a new file, none of it allocated before, and the flush is part of the time
        words |= {"end_fsync": 1, "create_on_open": 1, "fallocate": "none"}
    else:
        words["allow_file_create"] = 0
    if order.access == "random_read":  # all readers together ask for as much as the file has
        share = order.file_bytes // order.block_bytes // order.threads or 1
        words |= {"io_size": share * order.block_bytes, "randseed": order.seed, "runtime": f"{order.seconds_max:g}s"}
    flags = ["--thread", "--group_reporting", *([] if order.access == "write" else ["--readonly"])]
    return ["fio", *(f"--{key}={value}" for key, value in words.items()), *flags]


def outcome(answer: str, order: Order, elapsed_s: float) -> Outcome:
    """Read fio's answer: one JSON document with one (grouped) job, whatever stands around it.

    Raises
    ------
    EngineError
        There is none or more than one, figures are missing or no numbers, or they contradict each other.
    """
    found = [document for document in external.documents(answer) if "jobs" in document]
    if len(found) != 1:
        what = f"gave {len(found)} answers" if found else "gave no whole answer"
        raise external.failure("fio", what, answer)
    try:
        return _outcome(found[0], order, elapsed_s)
    except EngineError as error:
        raise external.failure("fio", f"is not to be believed: {error}", answer) from error


def _outcome(document: Mapping[str, Any], order: Order, elapsed_s: float) -> Outcome:
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
    found = Outcome(int(moved), int(requests), milliseconds / 1e3, str(document.get("fio version", engines.UNKNOWN)))
    return engines.believe(found, order, elapsed_s, rate)
