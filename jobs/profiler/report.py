"""A window in words: bandwidth, calls, sizes, order, metadata, and the files that took longest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jobs.profiler.window import Window
from jobs.terminal import visible

_LIMITS = ("100 B", "1 KiB", "10 KiB", "100 KiB", "1 MiB", "4 MiB", "10 MiB", "100 MiB", "1 GiB", "")
_SHOWN_FILES = 10


def figures(window: Window) -> dict[str, Any]:
    """Return the sums over all files: calls, bytes, seconds in calls (added over the threads), shares.

    ``under_way_s``: in which at least one call was under way, and ``threads`` that made them; None where calls were
    only counted. ``device_bytes``: what the kernel fetched for the process, None where it does not say.

    ``read_mb_per_s`` and ``write_mb_per_s`` are bytes over the window's own seconds; ``sequential`` and ``consecutive``
    shares of the POSIX reads, by Darshan's definition, None where there was none; ``read_sizes`` calls in Darshan's
    bins; ``stream_writes`` the writes that are STDIO's; ``seen_read_bytes`` of all files, ``kernel_read_bytes`` of all
    reads of the process.
    """
    rows, posix = window.counters, np.array([module == "POSIX" for module in window.modules], bool)
    total = {name: int(rows[name].sum(dtype=np.int64)) for name in rows.dtype.names or () if rows[name].ndim == 1}
    positioned, sequential, consecutive = (
        int(rows[name][posix].sum(dtype=np.int64)) for name in ("reads", "seq_reads", "consec_reads")
    )
    return {
        "mode": window.mode,
        "wall_s": window.wall_s,
        "under_way_s": window.under_way_s(),
        "threads": None if window.events is None else len(np.unique(window.events["thread"])),
        "files": len(window.files),
        "opens": total["opens"],
        "reads": total["reads"],
        "writes": total["writes"],
        "stream_writes": int(rows["writes"][~posix].sum(dtype=np.int64)),
        "stats": total["stats"],
        "seeks": total["seeks"],
        "syncs": total["fsyncs"] + total["fdsyncs"],
        "bytes_read": total["bytes_read"],
        "bytes_written": total["bytes_written"],
        "read_mb_per_s": total["bytes_read"] / 1e6 / window.wall_s if window.wall_s else None,
        "write_mb_per_s": total["bytes_written"] / 1e6 / window.wall_s if window.wall_s else None,
        "read_s": total["read_time"] / 1e9,
        "write_s": total["write_time"] / 1e9,
        "meta_s": total["meta_time"] / 1e9,
        "sequential": sequential / positioned if positioned else None,
        "consecutive": consecutive / positioned if positioned else None,
        "read_sizes": rows["size_read"].sum(axis=0, dtype=np.int64).tolist(),
        "write_sizes": rows["size_write"].sum(axis=0, dtype=np.int64).tolist(),
        "seen_read_bytes": window.read_bytes,
        "kernel_read_bytes": window.kernel_read_bytes,
        "device_bytes": window.device_bytes,
        "dropped": window.dropped,
        "blind_spot": window.blind_spot(),
        "beside": window.beside,
    }


def lines(window: Window) -> Iterator[str]:
    """Yield the report, line by line."""
    found = figures(window)
    yield f"{found['mode']} of {found['wall_s']:.3f} s, {found['files']:,} files"
    yield f"not complete: {found['blind_spot']}" if found["blind_spot"] else "complete: nothing was dropped or missed"
    if found["beside"]:
        yield f"beside   {visible(found['beside'])}: what it costs is in these times"
    yield f"calls    {_under_way(found)}"
    for what, calls, amount, rate, spent in (
        ("read", "reads", "bytes_read", "read_mb_per_s", "read_s"),
        ("written", "writes", "bytes_written", "write_mb_per_s", "write_s"),
    ):
        if found[calls]:
            moved = f"{found[amount] / 1e6:,.1f} MB in {found[calls]:,} calls"
            yield f"{what:<9}{moved}, {found[rate] or 0:,.1f} MB/s over the window; {found[spent]:.3f} s summed"
    counts = ", ".join(f"{found[key]:,} {key}" for key in ("opens", "stats", "seeks", "syncs"))
    yield f"metadata {counts}; {found['meta_s']:.3f} s summed"
    if found["device_bytes"] is not None:
        yield f"device   {found['device_bytes'] / 1e6:,.1f} MB fetched for the process, by the kernel's count"
    if found["sequential"] is not None:
        yield f"order    {found['sequential']:.1%} of the reads sequential, {found['consecutive']:.1%} consecutive"
    for what in ("read", "write"):
        yield from _sizes(what, found[f"{what}_sizes"])
    yield from _longest(window)


def _under_way(found: dict[str, Any]) -> str:
    """Return how long any call was under way; the seconds of the other lines are sums, which several threads exceed."""
    if found["under_way_s"] is None:
        return (
            "when one was under way is not known of counters (the mode trace knows it); seconds are summed over threads"
        )
    threads = f"{found['threads']} thread{'s' * (found['threads'] != 1)}"
    return (
        f"a call was under way for {found['under_way_s']:.3f} of {found['wall_s']:.3f} s;"
        f" seconds below are summed over {threads}"
    )


def _sizes(what: str, counts: list[int]) -> Iterator[str]:
    total = sum(counts)
    for limit, before, count in zip(_LIMITS, ("", *_LIMITS), counts, strict=False):
        if count:
            bound = f"to {limit}" if limit else f"over {before}"
            yield f"{what + 's':<9}{bound:<12}{count:>12,}{count / total:>8.1%}"


def _longest(window: Window) -> Iterator[str]:
    """Yield the files that took longest, all their calls together."""
    rows = window.counters
    spent = rows["read_time"] + rows["write_time"] + rows["meta_time"]
    order = np.argsort(spent)[::-1][:_SHOWN_FILES]
    if len(order):
        yield "files by time in their calls, summed over threads"
    for place in order.tolist():
        amount = int(rows[place]["bytes_read"] + rows[place]["bytes_written"]) / 1e6
        name = f"{window.modules[place]}  {visible(window.paths[place])}"
        yield f"  {spent[place] / 1e9:>9.4f} s {amount:>10.2f} MB  {name}"
