"""Check a run of a user's program (`jobs.benchmarks.command`), and build the dictionary of a check.

A user's program does not report what it reads. So each check compares two observed numbers. After a cold run, the pages
of the data in memory are the pages that the program read, unless the program bypassed the page cache. The bytes that
the program and its child processes fetched from devices include the libraries of the program. All functions are pure.
"""

from __future__ import annotations

from typing import Any

from jobs.model.conduct import Limits
from jobs.model.results import Check, Run


def at_most(rule: str, observed: float | None, limit: float, message: str) -> Check:
    """Return the check of a value that must not exceed `limit`; the check is unverifiable if `observed` is None.

    Both numbers are shares; the sentence of a failed check ends with them in percent.
    """
    passed = None if observed is None else observed <= limit
    message = message if passed is not False else f"{message} ({_percent(observed)}, at most {_percent(limit)})"
    return check_outcome(rule, passed, observed, limit, message)


def at_least(rule: str, observed: float | None, limit: float, message: str) -> Check:
    """Return the check of a value that must reach `limit`; the check is unverifiable if `observed` is None.

    Both numbers are shares; the sentence of a failed check ends with them in percent.
    """
    passed = None if observed is None else observed >= limit
    message = message if passed is not False else f"{message} ({_percent(observed)}, at least {_percent(limit)})"
    return check_outcome(rule, passed, observed, limit, message)


def check_outcome(rule: str, passed: bool | None, observed: Any, limit: Any, message: str) -> Check:  # noqa: FBT001 - a field
    """Return a check as a dictionary."""
    return {"rule": rule, "passed": passed, "observed": observed, "limit": limit, "message": message}


NOT_COUNTED = "the kernel counts no bytes of this file system (FUSE, GPFS, BeeGFS and others)"
"""Why bytes are unknown: no byte was counted, and the files are on no device of this machine."""
READ_MIN = 0.01
"""The smallest share of the data that a run must read."""


def from_device(run: Run, limits: Limits) -> Check:
    """Return the check that the program itself fetched the data that are in memory after a cold run.

    The fetches of the program's child processes count as well.
    """
    fetched_bytes, cached_bytes = _fetched(run), run["data_in_memory_bytes"]
    rule = "device_bytes"
    if fetched_bytes is None or cached_bytes is None:
        reason = (
            "/proc/self/io is not readable" if fetched_bytes is None else "the pages of the data in memory are unknown"
        )
        return at_least(rule, None, limits.device_bytes_min, reason)
    if cached_bytes and not fetched_bytes and not run.get("device"):
        return at_least(rule, None, limits.device_bytes_min, NOT_COUNTED)
    device_bytes = _device_bytes_of(run, cached_bytes)
    if device_bytes is None:
        reason = (
            "the size of the files on the device is unknown: compressed files, or a file system without extent lists"
        )
        return at_least(rule, None, limits.device_bytes_min, reason)
    message = f"the program fetched {_mb(fetched_bytes)} for {_mb(device_bytes)} of its data that came into memory"
    return at_least(rule, fetched_bytes / device_bytes if device_bytes else 1.0, limits.device_bytes_min, message)


def _device_bytes_of(run: Run, cached_bytes: int) -> float | None:
    """Return the bytes that the device stores for the pages in memory, or None if this number is unknown.

    The number is smaller than the size of the pages if files have holes or packed tails, which occupy no blocks.
    """
    if "to_fetch_bytes" not in run:
        return cached_bytes
    all_device_bytes, page_bytes = run["to_fetch_bytes"], run["data_pages_bytes"]
    return (
        None
        if all_device_bytes is None
        else min(1.0, all_device_bytes / page_bytes if page_bytes else 1.0) * cached_bytes
    )


def from_memory(run: Run, limits: Limits) -> Check:
    """Return the check that nearly no data of a warm run was fetched from the device of the data.

    The number of fetched bytes has two upper bounds: the bytes that the program and its child processes fetched from
    all devices, and the bytes that all programs read from the device of the data.
    """
    counts = [count for count in (_fetched(run), run.get("device_read_bytes")) if count is not None]
    if _fetched(run) is None or not run["data_bytes"]:
        reason = "/proc/self/io is not readable" if run["data_bytes"] else "the files of the data are empty"
        return at_most("from_memory", None, limits.resident_max, reason)
    fetched_bytes = min(counts)
    message = f"{_mb(fetched_bytes)} of {_mb(run['data_bytes'])} of data came from the device"
    return at_most("from_memory", fetched_bytes / run["data_bytes"], limits.resident_max, message)


def reads_data(run: Run, _limits: Limits) -> Check:
    """Return the check that a cold run read a noticeable part of its data."""
    fetched_bytes, cached_bytes, data_bytes = _fetched(run), run["data_in_memory_bytes"], run["data_bytes"]
    if cached_bytes is None or not data_bytes:
        reason = "the pages of the data in memory are unknown" if data_bytes else "the files of the data are empty"
        return at_least("reads_data", None, READ_MIN, reason)
    share = cached_bytes / data_bytes
    message = f"{_mb(cached_bytes)} of the {_mb(data_bytes)} of data came into memory"
    if share >= READ_MIN:
        return at_least("reads_data", min(1.0, share), READ_MIN, message)
    if (
        fetched_bytes is None
        or min(fetched_bytes, run.get("device_read_bytes") or fetched_bytes) >= READ_MIN * data_bytes
    ):
        message += f", and the program fetched {_mb(fetched_bytes or 0)}: the program may bypass the page cache"
        return at_least("reads_data", None, READ_MIN, message)
    return at_least("reads_data", share, READ_MIN, f"{message}: the program reads next to nothing of them")


def unchanged_files(run: Run, _limits: Limits) -> Check:
    """Return the check that the files of the data did not change since they were listed."""
    change_count, names = run["changed_files"], ", ".join(run["changed"])
    more = f" and {change_count - len(run['changed'])} more" if change_count > len(run["changed"]) else ""
    message = (
        f"files of the data that changed or are new ({change_count}): {names}{more}"
        if change_count
        else "no file of the data changed"
    )
    return check_outcome("same_data", not change_count, change_count, 0, message)


def _fetched(run: Run) -> int | None:
    return run["device_bytes"]


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.4g}%"


def _mb(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
