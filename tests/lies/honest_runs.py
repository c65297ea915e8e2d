"""Honest runs over every storage that can be made here: how many of them the checks call invalid, and which checks."""

from __future__ import annotations

import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.lies import setup, workspace
from tests.lies.lie import MissingError
from tests.lies.workspace import CAMPAIGN, Workspace

_MIB, _IMAGES = 512, 400
_GRID = ("threads=1,4", "benchmark.preprocess=true,false")
_CELLS = 4
_EMULATED = ("hdd", "ssd")
_OTHERS = frozenset({"quiet", "unstolen"})  # they fail where this machine or its host has others: no false alarm
_HEAD = "\n## Honest runs\n"
_ROWS = ("| storage | runs | invalid, by check |", "| --- | --- | --- |")


@dataclass(frozen=True)
class Counted:
    """The runs of one storage; `missing` says why there are none."""

    storage: str
    runs: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)  # runs that do not count, by the rule that failed
    missing: str = ""


Start = tuple[tuple[str, ...], dict[str, str]]
"""Words of a campaign, and its environment."""


def _folder(space: Workspace, folder: Path) -> Start:
    space.images(folder / "set" / "images", _IMAGES)
    return ("dataset=folder", f"dataset.path={folder}/set/images", f"storage.root={folder}/set"), {}


def _on(fs: str, *, direct: bool = True) -> Callable[[Workspace], Start]:
    return lambda space: _folder(space, space.disk(mib=_MIB, fs=fs, direct=direct).point)


def _overlay(space: Workspace) -> Start:
    lower = space.folder / "lower"
    words, _ = _folder(space, lower)
    merged = setup.overlay(space.stack, lower, space.folder / "overlay")
    return tuple(word.replace(str(lower), str(merged)) for word in words), {}


def _testbed(space: Workspace) -> Start:
    bed = space.folder / "bed"
    space.stack.callback(space.program, *CAMPAIGN, "testbed", "down", "--yes", "--folder", str(bed))
    sizes = [f"{name}.size_gb=1" for name in _EMULATED]
    up = space.program(*CAMPAIGN, "testbed", "up", "--folder", str(bed), f"storages=[{','.join(_EMULATED)}]", *sizes)
    if up.returncode:
        raise MissingError(up.stderr.strip())
    return ("site=twin", f"storage={','.join(_EMULATED)}"), {"CAMPAIGN_TESTBED": str(bed)}


STORAGES: Mapping[str, Callable[[Workspace], Start]] = {
    "ext4, a disk": lambda space: _folder(space, space.folder),
    "ext4, a loop device": _on("ext4"),
    "ext4, a loop device whose file is in the page cache": _on("ext4", direct=False),
    "xfs, a loop device": _on("xfs"),
    "btrfs, a loop device": _on("btrfs"),
    "overlay": _overlay,
    "testbed, hdd and ssd": _testbed,
}


def counted(number: int) -> Iterator[Counted]:
    """Measure so many runs or a few more, as many on each storage, by the checks' own limits."""
    cells = len(STORAGES) * _CELLS
    for storage, stage in STORAGES.items():
        try:
            with workspace.opened() as space:
                words, environment = stage(space)
                grid = _GRID[:1] if storage.startswith("testbed") else _GRID  # which has two storages instead
                runs = f"runs={math.ceil(number / cells) + 1}"
                space.run("-m", *words, *grid, runs, "wait_quiet_s=null", limits=(), **environment)
                yield count(storage, space.measured())
        except MissingError as error:
            yield Counted(storage, missing=str(error))


def count(storage: str, runs: Sequence[Mapping[str, Any]]) -> Counted:
    """Count the runs of a storage, and those that do not count by the check that failed.

    Where others were beside a run, what else failed in it may be their doing, and says nothing.
    """
    failed: Counter[str] = Counter()
    for run in runs:
        rules = [check["rule"] for check in run.get("checks", ()) if check["passed"] is False]
        beside = [rule for rule in rules if rule in _OTHERS]
        failed.update(beside or rules or ([run["reason"]] if run["status"] != "valid" else []))  # or nothing was proved
    return Counted(storage, len(runs), failed)


def false_alarms(counts: Sequence[Counted]) -> int:
    """Return how often a check failed for no reason but its own."""
    return sum(number for each in counts for rule, number in each.failed.items() if rule not in _OTHERS)


def page(counts: Sequence[Counted]) -> str:
    """Return the part of docs/proofs.md: when, on what machine, how many."""
    runs = sum(each.runs for each in counts)
    others = ", ".join(f"`{rule}` {sum(each.failed.get(rule, 0) for each in counts)}" for rule in sorted(_OTHERS))
    machine = f"{datetime.now(UTC).date()}, Linux {platform.release()}, {os.cpu_count()} cores"
    judged = f"{runs} runs in which nothing cheats were judged by the checks' own limits ({machine})"
    beside = f"runs that had others beside them, here or on the host: {others}"
    words = f"{judged}: {false_alarms(counts)} false alarms; {beside}.\n"
    return "\n".join([_HEAD, words, *_ROWS, *map(line, counts)])


def line(each: Counted) -> str:
    """Return the row of a storage."""
    failed = ", ".join(f"`{rule}` {number}" for rule, number in sorted(each.failed.items())) or "none"
    cells = (each.storage, f"not staged: {each.missing}", "") if each.missing else (each.storage, each.runs, failed)
    return f"| {' | '.join(map(str, cells))} |"
