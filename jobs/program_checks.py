"""The rules for a run of a user's program (`jobs.benchmarks.command`); pure functions, as those of `jobs.checks`.

What such a program reads of its data nobody tells. After a cold run the pages of the data that are in memory are what
was read of them, unless the program read past the page cache; the tree's own account of bytes from devices has its
libraries, too. So each rule holds the two against each other.
"""

from __future__ import annotations

from jobs.check_outcome import at_least, at_most, outcome
from jobs.model.limits import Limits
from jobs.model.results import Check, Run

_READ_MIN = 0.01  # of the data: less is no reading of them


def from_device(run: Run, limits: Limits) -> Check:
    """Hold when what is in memory of the data after a cold run was fetched by the program, or by what it started."""
    fetched, came = _fetched(run), run["data_in_memory_bytes"]
    rule = "device_bytes"
    if fetched is None or came is None:
        what = "/proc/self/io is not readable" if fetched is None else "what is in memory of the data cannot be seen"
        return at_least(rule, None, limits.device_bytes_min, what)
    wanted = _on_device(run, came)
    if wanted is None:
        why = "what the files have on the device is unknown: they are compressed, or their file system lists no extents"
        return at_least(rule, None, limits.device_bytes_min, why)
    message = f"the program fetched {_mb(fetched)} for {_mb(wanted)} of its data that came into memory"
    return at_least(rule, fetched / wanted if wanted else 1.0, limits.device_bytes_min, message)


def _on_device(run: Run, came: int) -> float | None:
    """Return what the device has to give for pages that came into memory: holes and packed tails give nothing."""
    if "to_fetch_bytes" not in run:
        return came
    whole, pages = run["to_fetch_bytes"], run["data_pages_bytes"]
    return None if whole is None else min(1.0, whole / pages if pages else 1.0) * came


def from_memory(run: Run, limits: Limits) -> Check:
    """Hold when next to nothing of a warm run's data was fetched from their device.

    What the program and what it started fetched from all devices is one bound, what everybody read from the device of
    the data the other.
    """
    counts = [each for each in (_fetched(run), run.get("device_read_bytes")) if each is not None]
    if _fetched(run) is None or not run["data_bytes"]:
        return at_most("from_memory", None, limits.resident_max, "/proc/self/io is not readable")
    fetched = min(counts)
    message = f"{_mb(fetched)} came from the device of the data, which have {_mb(run['data_bytes'])}"
    return at_most("from_memory", fetched / run["data_bytes"], limits.resident_max, message)


def reads_data(run: Run, _limits: Limits) -> Check:
    """Hold when a cold run read something of its data, and not next to nothing."""
    fetched, came, data = _fetched(run), run["data_in_memory_bytes"], run["data_bytes"]
    if came is None or not data:
        return at_least("reads_data", None, _READ_MIN, "what is in memory of the data cannot be seen")
    share = came / data
    message = f"{_mb(came)} of the {_mb(data)} of data came into memory"
    if share >= _READ_MIN:
        return at_least("reads_data", min(1.0, share), _READ_MIN, message)
    if fetched is None or min(fetched, run.get("device_read_bytes") or fetched) >= _READ_MIN * data:
        message += f", and the program fetched {_mb(fetched or 0)}: it may read past the page cache"
        return at_least("reads_data", None, _READ_MIN, message)
    return at_least("reads_data", share, _READ_MIN, f"{message}: the program reads next to nothing of them")


def unchanged(run: Run, _limits: Limits) -> Check:
    """Hold when the files of the data are those that were listed, before the run and after it."""
    changed, names = run["changed_files"], ", ".join(run["changed"])
    more = f" and {changed - len(run['changed'])} more" if changed > len(run["changed"]) else ""
    message = f"{changed} files of the data changed: {names}{more}" if changed else "no file of the data changed"
    return outcome("same_data", not changed, changed, 0, message)


def _fetched(run: Run) -> int | None:
    return run["device_bytes"]


def _mb(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
