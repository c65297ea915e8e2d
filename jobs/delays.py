"""What kept the threads of a run from working: judged by looks at them, and by limits of control groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jobs.model.results import Run

# States of a thread (`jobs.system.threads`) in which nothing that the run measures goes on, in words.
DELAYS = {
    "idle_device": "waited for a device that had nothing to do",
    "asleep": "slept",
    "held": "were held by another program",
}
_BUSY = (*DELAYS, "running", "storage")
_CHANCE = 0.04  # that a run with just such a share shows as much; honest ones have next to none
_STEPS = 40


def certain_share(count: int, of: int) -> float:
    """Return the share of which it is certain that it is not smaller, where `count` of `of` looks met something.

    By Chernoff's bound: where it were smaller, fewer than one run in twenty-five would show as many.
    """
    low, high = 0.0, count / of if of else 0.0
    for _ in range(_STEPS if count else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if of * _divergence(count / of, middle) > -math.log(_CHANCE) else (low, middle)
    return low


def _divergence(seen: float, true: float) -> float:
    """Return the relative entropy of two shares, `seen` above `true`."""
    rest = (1 - seen) * math.log((1 - seen) / (1 - true)) if seen < 1 else 0.0
    return seen * math.log(seen / true) + rest


def delayed_share(run: Run) -> float:
    """Return in which share of the time the run was kept from working for certain.

    Either threads that had work did not get on, or the process stood still, beyond what the hypervisor took.
    """
    waits, elapsed_s = run["waits"], run["elapsed_s"]
    stopped: float = max(waits["late_s"] / elapsed_s, certain_share(waits["late"], waits["alarms"]))
    unexplained = stopped - run.get("steal_s", 0.0) / elapsed_s
    return max(0.0, unexplained, certain_share(_met(waits, DELAYS), _met(waits, _BUSY)))


def most_certain(run: Run) -> float:
    """Return which share would be certain if all looks had met a delay: with few looks a small one."""
    return certain_share(run["waits"]["looks"], run["waits"]["looks"])


def delays(run: Run) -> str:
    """Return in words what was met."""
    waits = run["waits"]
    met = [f"{waits['threads'][kind]} {words}" for kind, words in DELAYS.items() if kind in waits["threads"]]
    functions = f" (in {', '.join(sorted(waits['functions']))})" if waits["functions"] else ""
    busy = f"of {_met(waits, _BUSY)} threads with work {' and '.join(met) or 'none was kept from it'}{functions}"
    stood = f"it stood still at {waits['late']} of {waits['alarms']} alarms, for {waits['late_s']:.2f} s or more"
    return f"at {waits['looks']} looks, {busy}; {stood}"


def _met(waits: Mapping[str, Any], kinds: Mapping[str, str] | tuple[str, ...]) -> int:
    return sum(waits["threads"].get(kind, 0) for kind in kinds)


def nearest_limit(run: Run) -> tuple[float, str] | None:
    """Return which share of a limit on its reads and writes a run reached at most, and in words; None for no limit."""
    near = [(each["reached_per_s"] / each["per_s"], each) for each in run.get("io_limits", ())]
    if not near:
        return None
    share, limit = max(near, key=lambda each: each[0])
    unit = "MB" if limit["kind"].endswith("bps") else "requests"
    scale = 1e6 if unit == "MB" else 1
    verb = "read" if limit["kind"].startswith("read") else "written"
    reached, most = limit["reached_per_s"] / scale, limit["per_s"] / scale
    return share, f"{limit['group']} lets {most:.4g} {unit}/s be {verb} on {limit['device']}, and it did {reached:.4g}"
