"""Ranks on one machine: what one of them sees others do there is the run's own doing, and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from jobs.model.results import DeviceUse, Run
from jobs.ranks.rank import Rank, boot


def left_out(run: Run, here: Rank) -> Run:
    """Take what the other ranks on this machine did out of what a rank's observers count as everybody else's."""
    keys = ("device", "device_bytes", "device_use", "cpu_s", "readers_cpu_s")
    own = {"boot": boot(), **{key: run.get(key) for key in keys}}
    saved = [(target["source"], target["bytes"]) for target in run.get("targets", ())]
    reports = here.gather({**own, "saved": saved})
    near = [each for rank, each in enumerate(reports) if rank != here.rank and each["boot"] == own["boot"]]
    return {**run, "other_cpu": _cpu(run, near), "device_use": _use(run, near)}


def _cpu(run: Run, near: Sequence[Mapping[str, Any]]) -> float:
    theirs_s: float = sum(each["cpu_s"] + (each["readers_cpu_s"] or 0.0) for each in near)
    return max(0.0, run["other_cpu"] - theirs_s / run["elapsed_s"])


def _use(run: Run, near: Sequence[Mapping[str, Any]]) -> list[DeviceUse] | None:
    """Return the use of the devices, of which what all ranks asked for is our own; None where one does not know its."""
    sharing = [each for each in near if each["device"] == run["device"]]
    if run["device_use"] is None or None in [each["device_use"] for each in sharing]:
        return None
    first, *below = run["device_use"]  # what is below gives what is above it, whoever asks
    disk = f"dsk/{run['device']}"  # as `jobs.observe.trace_sources` names what snapshots went to
    saved: int = sum(size for each in near for source, size in each["saved"] if source == disk)
    written = first["own_written_bytes"]
    ours = {
        **{
            key: first[key] + sum(each["device_use"][0][key] for each in sharing)
            for key in ("own_reads", "own_read_bytes")
        },
        "own_written_bytes": (written or 0) + saved if saved else written,
    }
    return [cast("DeviceUse", {**first, **ours}), *below]
