"""Report a profile as metrics and as text: bandwidth, calls, sizes, order, metadata, and the slowest files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jobs.events.posix_window import SIZE_LIMITS, Window
from jobs.terminal import visible

_SHOWN_FILES = 10


def window_metrics(window: Window) -> dict[str, Any]:
    """Return the metrics of a window over all files: calls, bytes, seconds in calls (summed over threads), and shares.

    - ``under_way_s``: seconds with at least one running call; None in mode counters;
    - ``threads``: number of threads with calls; None in mode counters;
    - ``device_bytes``: bytes that the kernel fetched for the process; None if unknown;
    - ``read_mb_per_s``, ``write_mb_per_s``: bytes divided by the duration of the window;
    - ``sequential``, ``consecutive``: shares of the POSIX reads, as Darshan defines these terms; None without reads;
    - ``read_sizes``, ``write_sizes``: number of calls in each of Darshan's bins;
    - ``stream_writes``: number of writes by STDIO;
    - ``seen_read_bytes``: bytes that the profile saw, of all files;
    - ``kernel_read_bytes``: bytes of all reads of the process, as the kernel counts.
    """
    rows, (reads, sequential, consecutive) = window.counters, window.read_order
    total = {name: int(rows[name].sum(dtype=np.int64)) for name in rows.dtype.names or () if rows[name].ndim == 1}
    attributes = ("mode", "wall_s", "kernel_read_bytes", "device_bytes", "dropped", "beside")
    return {
        **{name: getattr(window, name) for name in attributes},
        **{name: total[name] for name in ("opens", "reads", "writes", "stats", "seeks", "bytes_read", "bytes_written")},
        **{f"{kind}_s": total[f"{kind}_time"] / 1e9 for kind in ("read", "write", "meta")},
        **{f"{kind}_sizes": rows[f"size_{kind}"].sum(axis=0, dtype=np.int64).tolist() for kind in ("read", "write")},
        "under_way_s": window.under_way_s(),
        "threads": None if window.events is None else len(np.unique(window.events["thread"])),
        "files": len(window.files),
        "stream_writes": int(rows["writes"][~window.of_posix].sum(dtype=np.int64)),
        "syncs": total["fsyncs"] + total["fdsyncs"],
        "read_mb_per_s": total["bytes_read"] / 1e6 / window.rate_s if window.rate_s else None,
        "write_mb_per_s": total["bytes_written"] / 1e6 / window.rate_s if window.rate_s else None,
        "sequential": sequential / reads if reads else None,
        "consecutive": consecutive / reads if reads else None,
        "seen_read_bytes": window.read_bytes,
        "blind_spot": window.blind_spot(),
    }


def report_lines(window: Window) -> Iterator[str]:
    """Yield the lines of the text report of a window."""
    metrics = window_metrics(window)
    exactly = f" (known to {window.clock_s:g} s)" if window.clock_s else ""
    ranks = f", {window.ranks:,} ranks added up" if window.ranks > 1 else ""
    yield f"{metrics['mode']} of {metrics['wall_s']:.3f} s{exactly}, {metrics['files']:,} files{ranks}"
    blind_spot = metrics["blind_spot"]
    yield f"not complete: {blind_spot}" if blind_spot else "complete: nothing was dropped or missed"
    if metrics["beside"]:
        yield f"beside   {visible(metrics['beside'])}: the times include the cost of this profiler"
    yield f"calls    {_running_time_text(metrics)}"
    for label, calls, amount, rate, seconds in (
        ("read", "reads", "bytes_read", "read_mb_per_s", "read_s"),
        ("written", "writes", "bytes_written", "write_mb_per_s", "write_s"),
    ):
        if metrics[calls]:
            amounts = f"{metrics[amount] / 1e6:,.1f} MB in {metrics[calls]:,} calls"
            speed = _speed_text(metrics[rate])
            yield f"{label:<9}{amounts}, {speed}; {metrics[seconds]:.3f} s summed"
    counts = ", ".join(f"{metrics[key]:,} {key}" for key in ("opens", "stats", "seeks", "syncs"))
    yield f"metadata {counts}; {metrics['meta_s']:.3f} s summed"
    if metrics["device_bytes"] is not None:
        yield f"device   {metrics['device_bytes'] / 1e6:,.1f} MB fetched for the process, by the kernel's count"
    if metrics["sequential"] is not None:
        yield f"order    {metrics['sequential']:.1%} of the reads sequential, {metrics['consecutive']:.1%} consecutive"
    for kind in ("read", "write"):
        yield from _size_lines(kind, metrics[f"{kind}_sizes"])
    yield from _slowest_file_lines(window)


def _speed_text(mb_per_s: float | None) -> str:
    if mb_per_s is None:
        return "MB/s unknown: the window is too short for how exactly it is known"
    return f"{mb_per_s:,.1f} MB/s over the window" if mb_per_s >= 1 else f"{mb_per_s:.2g} MB/s over the window"


def _running_time_text(metrics: dict[str, Any]) -> str:
    """Return the sentence about the time in which at least one call was running.

    The sentence also says that all other times are sums over threads.
    """
    if metrics["under_way_s"] is None:
        return "counters do not show when a call was under way (mode trace does); seconds are summed over threads"
    threads = f"{metrics['threads']} thread{'s' * (metrics['threads'] != 1)}"
    return (
        f"a call was under way for {metrics['under_way_s']:.3f} of {metrics['wall_s']:.3f} s;"
        f" seconds below are summed over {threads}"
    )


def _size_lines(kind: str, counts: list[int]) -> Iterator[str]:
    total = sum(counts)
    bounds = [*(f"to {limit}" for limit in SIZE_LIMITS), f"over {SIZE_LIMITS[-1]}"]
    for bound, count in zip(bounds, counts, strict=False):
        if count:
            yield f"{kind + 's':<9}{bound:<12}{count:>12,}{count / total:>8.1%}"


def _slowest_file_lines(window: Window) -> Iterator[str]:
    """Yield lines about the files whose calls took the most time in total."""
    rows = window.counters
    spent = rows["read_time"] + rows["write_time"] + rows["meta_time"]
    order = np.argsort(spent)[::-1][:_SHOWN_FILES]
    if len(order):
        yield "files by time in their calls, summed over threads"
    for index in order.tolist():
        amount = int(rows[index]["bytes_read"] + rows[index]["bytes_written"]) / 1e6
        name = f"{window.modules[index]}  {visible(window.paths[index])}"
        yield f"  {spent[index] / 1e9:>9.4f} s {amount:>10.2f} MB  {name}"
