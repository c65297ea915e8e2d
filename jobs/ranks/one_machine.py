"""Ranks on one machine: what one of them sees others do there is the run's own doing, and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.figures import Run
from jobs.ranks.rank import Rank, boot


def left_out(run: Run, here: Rank) -> Run:
    """Take what the other ranks on this machine did out of what a rank's observers count as everybody else's."""
    own = {"boot": boot(), **{key: run.get(key) for key in ("device", "device_bytes", "cpu_s", "readers_cpu_s")}}
    saved = [(target["source"], target["bytes"]) for target in run.get("targets", ())]
    reports = here.gather({**own, "saved": saved})
    near = [each for rank, each in enumerate(reports) if rank != here.rank and each["boot"] == own["boot"]]
    return {**run, "other_cpu": _cpu(run, near), "other_bytes": _bytes(run, near)}


def _cpu(run: Run, near: Sequence[Mapping[str, Any]]) -> float:
    theirs_s: float = sum(each["cpu_s"] + (each["readers_cpu_s"] or 0.0) for each in near)
    return max(0.0, run["other_cpu"] - theirs_s / run["elapsed_s"])


def _bytes(run: Run, near: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the bytes of the device that none of them moved; None where one of them does not know its own."""
    moved_bytes: list[int] = [each["device_bytes"] for each in near if each["device"] == run["device"]]
    if run["other_bytes"] is None or None in moved_bytes:
        return None
    disk = f"dsk/{run['device']}"  # as `jobs.observe.trace_sources` names what snapshots went to
    saved: int = sum(size for each in near for source, size in each["saved"] if source == disk)
    return max(0, run["other_bytes"] - sum(moved_bytes) - saved)
