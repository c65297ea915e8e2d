"""Make, save and load a staging plan: the files that each rule copies, the predicted gain, and the advised files."""

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
from campaign.staging import cost
from campaign.staging.observed_runs import Floats, ObservedRuns
from campaign.storage import roots
from jobs.data import staged_copies
from jobs.data.staged_copies import FOLDER as COPIES
from jobs.data.staged_copies import file_identity
from jobs.model import reading
from jobs.system import files
from jobs.system.device import device_of

SCHEMA = 1
NAME = "plan.json"
RULES = ("advised", "smallest", "largest", "all")
_BLOCK = 4096  # bytes; a file occupies a multiple of this size on ext4 and XFS
_LEAST_GAIN = 0.01  # a smaller gain is too small to measure


PositiveNumber = Annotated[float, Meta(gt=0)]
"""A number above 0, by which other numbers can be divided."""


class RuleResult(TypedDict):
    """The files that one rule copies (as indices into `listed`), the size of these files, and the predicted gain."""

    files: list[Annotated[int, Meta(ge=0)]]
    bytes: int
    gain: cost.PredictedGain


class StagingPlan(TypedDict):
    """The content of ``plan.json``."""

    schema: int
    source: str
    root: str
    origin: str
    runs: int
    files: Annotated[int, Meta(ge=1)]
    bytes: Annotated[int, Meta(ge=1)]
    capacity_bytes: int
    calls_at_once: float
    called: str  # the name that the program used for `source`
    read_bytes: PositiveNumber  # bytes that a run reads from the files that can be copied
    mb_per_s: PositiveNumber  # `read_bytes` divided by the duration of the whole run
    waiting: float  # share of the run's duration in which the run waited for its input
    slow: dict[str, float]
    fast: dict[str, float]
    why_not: str | None  # the reason why no copies are advised
    left_out: int  # number of files that cannot be copied, because they are links, empty or missing
    from_memory: dict[str, float] | None  # the values of `FilesFromMemory`; None: unknown
    listed: list[staged_copies.File]  # the files that can be copied
    rules: dict[str, RuleResult]


def make_plan(observed: ObservedRuns, root: Path, capacity_bytes: int) -> StagingPlan:
    """Measure the costs on the fast storage below `root`, and return a staging plan for the profiled runs."""
    slow = cost.slow_storage_cost(observed)
    identities = [file_identity(observed.source / name) for name in observed.names]
    size = np.array([file_identity[0] if file_identity else 0 for file_identity in identities], float)
    movable = size > 0
    if not movable.any():
        raise EnvironmentFaultError(
            f"none of the {len(size)} files that {observed.origin} has read is in {observed.source}",
            "make the plan on a machine that has the files",
        )
    fast = cost.measure_costs_of_probe_files(copies_root(root), size[movable])
    single_reader = _single_reader_costs(observed, movable)
    saved_s = np.where(movable, slow.seconds - fast[0].seconds(slow.seeks, slow.sizes), 0.0)
    rules = {}
    for rule in RULES:
        moved = movable if rule == "all" else _select_files(rule, size, saved_s, capacity_bytes)
        rules[rule] = _rule(moved, movable, size, cost.predict_gain(observed, slow, fast, single_reader, moved))
    # Moving files also leaves fewer parallel requests on the slow storage. So the files with the highest cost per byte
    # may not give the largest gain, and the best of the first three rules is advised.
    rules["advised"] = max((rules[rule] for rule in RULES[:3]), key=lambda rule: rule["gain"]["gain"])
    why_not = _why_not(observed, root, rules["advised"])
    if why_not:
        rules["advised"] = _rule(movable & False, movable, size, cost.PredictedGain(gain=0.0, low=0.0, high=0.0))
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
        "listed": [
            (name, *file_identity)
            for name, file_identity in zip(observed.names, identities, strict=True)
            if file_identity and file_identity[0]
        ],
        "rules": rules,
    }


def _single_reader_costs(observed: ObservedRuns, movable: Any) -> Sequence[cost.ReadCost | None]:
    """Measure the costs of files on the slow storage for a single reader; ``[None]`` if the profile has one reader."""
    if observed.calls_at_once <= cost.ONE_AT_A_TIME:
        return [None]
    names = [observed.names[index] for index in np.flatnonzero(movable).tolist()]
    return cost.measure_costs([observed.source / names[index] for index in cost.sample_to_probe(len(names))])


def size_on_disk(size: Any) -> Any:
    """Return sizes in bytes, rounded up to whole blocks of a file system."""
    return -(-size // _BLOCK) * _BLOCK


def _select_files(rule: str, size: Floats, saved_s: Floats, capacity_bytes: int) -> Any:
    """Return the mask of the files that a rule copies.

    The files are tried in the order of the rule, and a file is chosen if it still fits into the capacity.
    """
    on_disk, free_bytes = size_on_disk(size), float(capacity_bytes)
    sort_key = {"advised": -saved_s / np.maximum(size, 1), "smallest": size, "largest": -size}[rule]
    is_candidate = (size > 0) & ((saved_s > 0) | (rule != "advised"))
    moved = np.zeros(len(size), bool)
    for index in np.argsort(sort_key, kind="stable"):
        if is_candidate[index] and on_disk[index] <= free_bytes:
            moved[index] = True
            free_bytes -= on_disk[index]
    return moved


def _rule(moved: Any, movable: Any, size: Floats, gain: cost.PredictedGain) -> RuleResult:
    return {
        "files": np.flatnonzero(moved[movable]).tolist(),
        "bytes": int(size[moved].sum()),
        "gain": gain,
    }


def _why_not(observed: ObservedRuns, root: Path, advised: RuleResult) -> str | None:
    """Return the reason why no copies are advised, or None if the rule `advised` has a measurable gain."""
    device = device_of(root)
    if root.stat().st_dev == observed.source.stat().st_dev or (device and device == device_of(observed.source)):
        return f"{root} is on the same storage as the files"
    if not advised["files"]:
        return f"no file is read faster from {root} than from its own storage, or the capacity is too small"
    gain = advised["gain"]
    if gain["low"] <= 0 or gain["gain"] < _LEAST_GAIN:
        return f"a gain of {gain['gain']:.1%} ({gain['low']:.1%} to {gain['high']:.1%}) is too small to be certain"
    return None


def copies_folder(plan: StagingPlan) -> Path:
    """Return the folder for the copies of a plan; each folder of original files has its own folder of copies.

    The folder may not exist yet.
    """
    return roots.own_path(Path(plan["root"]), COPIES) / hashlib.sha256(os.fsencode(plan["source"])).hexdigest()[:10]


def copies_root(root: Path) -> Path:
    """Return this user's folder for copies below the root of the fast storage; create the folder if it is missing."""
    try:
        return roots.own_folder(root, COPIES)
    except EnvironmentFaultError as error:
        raise EnvironmentFaultError(error.message, "choose another folder with --fast") from error


def save_plan(folder: Path, plan: StagingPlan) -> None:
    """Write a staging plan to ``plan.json`` in a folder."""
    files.make_folder(folder, exist_ok=True, parents=True)
    files.write_json(folder / NAME, plan, indent=None)


def load_plan(folder: Path) -> StagingPlan:
    """Return the plan in ``plan.json``; raise an error if a file name leads out of the folder of original files."""
    try:
        plan = reading.read_json(folder / NAME, StagingPlan, SCHEMA)
        if fault := _fault(plan):
            raise ValueError(fault)  # noqa: TRY301 - reported like any other damage of the file
    except FileNotFoundError as error:
        raise UsageError(f"there is no plan in {folder}", "python -m campaign stage plan … makes a plan") from error
    except (ValueError, reading.NewerFileError) as error:
        raise EnvironmentFaultError(
            f"{folder / NAME} is damaged: {error}", "make the plan again: python -m campaign stage plan …"
        ) from error
    return {**plan, "listed": [(*row,) for row in plan["listed"]]}


def _fault(plan: StagingPlan) -> str:
    """Return what is wrong with a damaged plan, or an empty text.

    A plan is damaged if a rule or a file is missing, or if a file name leads out of the folder of original files.
    """
    listed, rules = plan["listed"], plan["rules"]
    if missing := [rule for rule in RULES if rule not in rules]:
        return f"the rule {missing[0]} is missing"
    if any(index >= len(listed) for rule in RULES for index in rules[rule]["files"]):
        return "a rule has a file that is not listed"
    return staged_copies.path_fault((plan["source"], plan["root"]), (name for name, *_ in listed))
