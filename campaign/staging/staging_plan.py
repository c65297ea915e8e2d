"""Which files each rule moves into a capacity, what that gains, and whether it is worth it; as a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import cost, probe
from campaign.staging.observed import Floats, Observed
from campaign.storage import roots
from jobs.data import staged_copies
from jobs.data.staged_copies import FOLDER as COPIES
from jobs.data.staged_copies import identity
from jobs.model import reading
from jobs.system import files
from jobs.system.device import device_of

SCHEMA = 1
NAME = "plan.json"
RULES = ("advised", "smallest", "largest", "all")
_BLOCK = 4096  # bytes; a file's room on ext4 and XFS
_LEAST_GAIN = 0.01  # what no measurement here would show


Some = Annotated[float, Meta(gt=0)]
"""An amount that shares are made of."""


class Rule(TypedDict):
    """What one rule moves: places in the plan's list."""

    files: list[Annotated[int, Meta(ge=0)]]
    bytes: int
    gain: cost.Gain


class Plan(TypedDict):
    """``plan.json``."""

    schema: int
    source: str
    root: str
    origin: str
    runs: int
    files: Annotated[int, Meta(ge=1)]
    bytes: Annotated[int, Meta(ge=1)]
    capacity_bytes: int
    calls_at_once: float
    called: str  # what the program called `source`
    read_bytes: Some  # in a run, of the files that can be copied
    mb_per_s: Some  # of these, over the whole run
    waiting: float  # share of the run that it waited for its input
    slow: dict[str, float]
    fast: dict[str, float]
    why_not: str | None  # why nothing is advised
    left_out: int  # files that are links, or are not what was read
    from_memory: dict[str, float] | None  # `FromMemory`; None: not known
    listed: list[staged_copies.File]  # that can be copied
    rules: dict[str, Rule]


def make(observed: Observed, root: Path, capacity_bytes: int) -> Plan:
    """Measure the fast storage below `root`, and choose."""
    slow = cost.on_slow(observed)
    found = [identity(observed.source / name) for name in observed.names]
    size = np.array([each[0] if each else 0 for each in found], float)
    movable = size > 0
    if not movable.any():
        raise EnvironmentFaultError(
            f"none of the {len(size)} files that {observed.origin} has read is in {observed.source}",
            "plan where the files lie",
        )
    fast, alone = probe.costs_of_new(made_home(root), size[movable]), _alone(observed, movable)
    saved_s = np.where(movable, slow.seconds - fast[0].of(slow.seeks, slow.sizes), 0.0)
    rules = {}
    for rule in RULES:
        moved = movable if rule == "all" else _filled(rule, size, saved_s, capacity_bytes)
        rules[rule] = _rule(moved, movable, size, cost.gain(observed, slow, fast, alone, moved))
    # With fewer requests at once on the slow storage, files that are dear for their size may not be the best ones.
    rules["advised"] = max((rules[rule] for rule in RULES[:3]), key=lambda rule: rule["gain"]["gain"])
    why_not = _why_not(observed, root, rules["advised"])
    if why_not:
        rules["advised"] = _rule(movable & False, movable, size, cost.Gain(gain=0.0, low=0.0, high=0.0))
    wall_s, read_bytes = float(np.mean([run.wall_s for run in observed.runs])), float(slow.sizes[movable].sum())
    return {
        "schema": SCHEMA,
        "source": str(observed.source.resolve()),
        "root": str(root),
        "origin": observed.origin,
        "runs": len(observed.runs),
        "files": len(size),
        "bytes": int(size.sum()),
        "capacity_bytes": capacity_bytes,
        "calls_at_once": observed.calls_at_once,
        "called": str(observed.called or observed.source),
        "read_bytes": read_bytes,
        "mb_per_s": read_bytes / 1e6 / wall_s,
        "waiting": float(np.mean([run.waited_s for run in observed.runs])) / wall_s,
        "slow": asdict(slow.cost),
        "fast": asdict(fast[0]),
        "why_not": why_not,
        "left_out": int((~movable).sum()),
        "from_memory": asdict(observed.from_memory) if observed.from_memory else None,
        "listed": [(name, *each) for name, each in zip(observed.names, found, strict=True) if each and each[0]],
        "rules": rules,
    }


def _alone(observed: Observed, movable: Any) -> Sequence[cost.Cost | None]:
    """Return what files cost a single reader where they are; None where the profile is of one."""
    if observed.calls_at_once <= cost.ONE_AT_A_TIME:
        return [None]
    names = [observed.names[place] for place in np.flatnonzero(movable).tolist()]
    return probe.costs([observed.source / names[place] for place in probe.sample(len(names))])


def _filled(rule: str, size: Floats, saved_s: Floats, capacity_bytes: int) -> Any:
    """Return the mask of the files that a rule moves: the first ones in its order that find room."""
    room, left = -(-size // _BLOCK) * _BLOCK, float(capacity_bytes)
    worth = {"advised": -saved_s / np.maximum(size, 1), "smallest": size, "largest": -size}[rule]
    may = (size > 0) & ((saved_s > 0) | (rule != "advised"))
    chosen = np.zeros(len(room), bool)
    for place in np.argsort(worth, kind="stable"):
        if may[place] and room[place] <= left:
            chosen[place] = True
            left -= room[place]
    return chosen


def _rule(moved: Any, movable: Any, size: Floats, gain: cost.Gain) -> Rule:
    return {
        "files": np.flatnonzero(moved[movable]).tolist(),
        "bytes": int(size[moved].sum()),
        "gain": gain,
    }


def _why_not(observed: Observed, root: Path, advised: Rule) -> str | None:
    device = device_of(root)
    if root.stat().st_dev == observed.source.stat().st_dev or (device and device == device_of(observed.source)):
        return f"{root} lies on the storage of the files themselves"
    if not advised["files"]:
        return f"{root} reads no file faster than the storage where it lies, or the capacity holds none"
    gain = advised["gain"]
    if gain["low"] <= 0 or gain["gain"] < _LEAST_GAIN:
        return f"a gain of {gain['gain']:.1%} ({gain['low']:.1%} to {gain['high']:.1%}) cannot be told from none"
    return None


def copies_of(plan: Plan) -> Path:
    """Return the folder of the copies of a plan, there or not: one for each folder of originals."""
    return roots.place(Path(plan["root"]), COPIES) / hashlib.sha256(os.fsencode(plan["source"])).hexdigest()[:10]


def made_home(root: Path) -> Path:
    """Return the folder of ours below the fast storage's root, made if it is missing."""
    try:
        return roots.own_folder(root, COPIES)
    except EnvironmentFaultError as error:
        raise EnvironmentFaultError(error.message, "--fast gives another place") from error


def save(folder: Path, plan: Plan) -> None:
    """Write ``plan.json``."""
    files.make_folder(folder, exist_ok=True, parents=True)
    files.write_json(folder / NAME, plan, indent=None)


def load(folder: Path) -> Plan:
    """Read ``plan.json``, whose names are all of files below its folder of originals."""
    try:
        plan = reading.read(folder / NAME, Plan, SCHEMA)
        if fault := _fault(plan):
            raise ValueError(fault)  # noqa: TRY301 - told as the rest
    except FileNotFoundError as error:
        raise UsageError(f"no plan in {folder}", "python -m campaign stage plan … makes one") from error
    except (ValueError, reading.NewerFileError) as error:
        raise EnvironmentFaultError(f"{folder / NAME} is damaged: {error}", "plan again") from error
    return {**plan, "listed": [(*row,) for row in plan["listed"]]}


def _fault(plan: Plan) -> str:
    """Say what of a plan could not be followed, or would lead elsewhere; empty where nothing does."""
    listed, rules = plan["listed"], plan["rules"]
    if missing := [rule for rule in RULES if rule not in rules]:
        return f"the rule {missing[0]} is missing"
    if any(place >= len(listed) for rule in RULES for place in rules[rule]["files"]):
        return "a rule has a file that is not listed"
    return staged_copies.strays((plan["source"], plan["root"]), (name for name, *_ in listed))
