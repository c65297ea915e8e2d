"""Copy the files of a plan to the fast storage, remove the copies, and compare their gain with the prediction."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells.verdicts import Verdicts
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import observed
from campaign.staging import staging_plan as plans
from campaign.staging.cost import Gain
from campaign.staging.staging_plan import RULES, Plan
from jobs.data import staged_copies
from jobs.errors import DatasetError
from jobs.events.posix_window import Window
from jobs.judging import stopping
from jobs.model.record import Record
from jobs.system import files

_WITHIN = 0.1  # share of the bandwidth by which a prediction may be wrong
_SAME_READS = 0.01  # largest difference in bytes, as a share, of two profiles of the same reads


@dataclass(frozen=True)
class Copying:
    """The files that chosen rules of a plan copy."""

    folder: Path  # folder of the plan
    plan: Plan
    files: Mapping[str, Sequence[staged_copies.File]]  # by rule

    @property
    def wanted(self) -> list[staged_copies.File]:
        """Return the sorted files of all rules, without repetition."""
        return sorted(set().union(*self.files.values()))

    def __str__(self) -> str:
        """Return the sentence on the number and size of the files, their source and their target."""
        size = sum(size for _, size, _ in self.wanted) / 1e6
        what = f"{console.counted(len(self.wanted), 'file')}, {size:,.1f} MB"
        return f"{what}, of {self.plan['source']} would be copied to {plans.copies_of(self.plan)}"


def copying(folder: Path, rules: Sequence[str]) -> Copying:
    """Return the files that the plan in `folder`, a folder of this user, would copy by these rules."""
    plan = _own(folder)
    listed = {rule: [plan["listed"][place] for place in plan["rules"][rule]["files"]] for rule in rules}
    if empty := [rule for rule, those in listed.items() if not those]:
        why = plan["why_not"] or "the capacity holds none of its files"
        raise UsageError(f"the plan stages nothing by the rule {empty[0]}: {why}", "--rule all copies all the same")
    return Copying(folder, plan, listed)


def apply(what: Copying, progress: Progress) -> dict[str, Path]:
    """Copy the files and write one map per rule; return the paths of the maps by rule."""
    plan, folder, wanted = what.plan, what.folder, what.wanted
    plans.made_home(Path(plan["root"]))
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    with _ours(copies, source):
        missing = staged_copies.missing_copies(source, copies, wanted)
        done = len(wanted) - sum(map(len, missing))
        for batch in missing:
            progress("copying", done, len(wanted), "files")
            staged_copies.copy_batch(source, copies, batch)
            done += len(batch)
        progress("copying", done, len(wanted), "files")
        for rule, those in what.files.items():
            header = {
                "schema": staged_copies.SCHEMA,
                "source": str(source),
                "copies": str(copies),
                "root": plan["root"],
            }
            files.write_json(folder / f"{rule}.json", {**header, "files": those}, indent=None)
    return {rule: folder / f"{rule}.json" for rule in what.files}


def undo(folder: Path) -> tuple[int, list[Path]]:
    """Remove the maps and the copies of a plan; return the number of removed copies, and the files that were left.

    A file is left unless its original still exists unchanged: otherwise the last copy might be lost.
    """
    plan = _own(folder)
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    for rule in plans.RULES:
        files.remove(folder / f"{rule}.json", missing_ok=True)
    if not copies.is_dir():
        return 0, []
    with _ours(copies, source):
        return staged_copies.remove_copies(source, copies)


def _own(folder: Path) -> Plan:
    """Return the plan in a folder; raise EnvironmentFaultError if another user may have written it."""
    plan = plans.load(folder)
    owner = (folder / plans.NAME).lstat().st_uid
    fault = files.distrust(folder) or (owner not in (0, os.geteuid()) and f"the plan is {files.user_name(owner)}'s")
    if fault:
        raise EnvironmentFaultError(
            f"{fault}: what it says is not done", "plan yourself: python -m campaign stage plan"
        )
    return plan


@contextmanager
def _ours(copies: Path, source: Path) -> Iterator[None]:
    try:
        with staged_copies.locked(copies, source):
            yield
    except DatasetError as error:
        raise EnvironmentFaultError(error.message, error.hint) from error


@dataclass(frozen=True)
class Outcome:
    """The predicted and the measured gain of bandwidth, as shares: by the medians, and by the extremes of the runs."""

    predicted: Gain
    measured: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Return whether the bandwidth is within 10 % of the prediction."""
        return abs((1 + self.measured) / (1 + self.predicted["gain"]) - 1) <= _WITHIN


def outcomes_of_cells(verdicts: Verdicts, plan: Plan) -> dict[str, Outcome]:
    """Return the outcome per rule: done cells with staged copies, compared with the cell that the plan was made from.

    Raises UsageError: no such cell is done, or the plan was not made from a cell.
    """
    folder = verdicts.folder
    records = [verdicts.read(path)[0] for path in sorted(folder.records.glob("*/record.json"))]
    cells = {each["cell"]["id"]: each for each in records if each}
    origin = cells.get(plan["origin"])
    if origin is None:
        raise UsageError(f"{folder.root} has no cell {plan['origin']}, of which the plan is", "plan from a cell")
    done = [each for each in cells.values() if each["status"] == "done" and _rates(each)]
    staged = {each["cell"]["settings"].get("staging"): each for each in done if _beside(each, origin)}
    rules = [rule for rule in RULES if rule in staged and plan["rules"][rule]["files"]]
    if not rules or not _rates(origin):
        raise UsageError("no cell is done with the copies of this plan", "the words of its cell with staging=RULE")
    return {rule: _outcome(plan, rule, _rates(origin), _rates(staged[rule])) for rule in rules}


def outcomes_of_profiles(folder: Path, plan: Plan, paths: Sequence[Path]) -> dict[str, Outcome]:
    """Return the outcome per rule: profiles of a program that read the copies, compared with the plan's profile.

    `folder`: of the plan and its maps. Raises UsageError: a profile has other reads, or copies of no rule.
    """
    maps = {rule: staged_copies.load_map(path) for rule in RULES if (path := folder / f"{rule}.json").exists()}
    rates: dict[str, list[float]] = {}
    for path in paths:
        window = observed.window_of(path)
        copied = observed.read_below(window, [each.copies for each in maps.values()])
        rule = next((rule for rule, each in maps.items() if each.files.keys() == copied.keys()), None)
        if rule is None:
            why = f"{path} has read {len(copied)} copies, which are those of no rule that was applied"
            raise UsageError(why, f"read jobs.data.staged(paths, MAP), where MAP is {folder}/RULE.json")
        rates.setdefault(rule, []).append(_bytes_of_plan(window, plan, copied, path) / 1e6 / window.wall_s)
    return {rule: _outcome(plan, rule, [plan["mb_per_s"]], after) for rule, after in rates.items()}


def _bytes_of_plan(window: Window, plan: Plan, copied: Mapping[str, Sequence[int]], path: Path) -> float:
    """Return the bytes read from the plan's files, originals and copies; raise UsageError if these are other reads."""
    originals = observed.read_below(window, [Path(plan["source"]), Path(plan["called"])])
    rows = [row for name, *_ in plan["listed"] for places in (originals, copied) for row in places.get(name, ())]
    read_bytes = float(window.counters["bytes_read"][rows].sum())
    if abs(read_bytes - plan["read_bytes"]) > _SAME_READS * plan["read_bytes"]:
        before = f"{plan['origin']} {plan['read_bytes'] / 1e6:,.1f}"
        why = f"{path} has read {read_bytes / 1e6:,.1f} MB of the plan's files, {before}"
        raise UsageError(why, "profile the same reads with the copies")
    from_device = [row for row in rows if observed.has_device(Path(window.paths[row]))]
    counted = int(window.counters["bytes_read"][from_device].sum())
    if window.device_bytes is not None and window.device_bytes < observed.COLD_FROM * counted:
        raise observed.from_memory_error(path, window.device_bytes, counted)
    return read_bytes


def _outcome(plan: Plan, rule: str, before: Sequence[float], after: Sequence[float]) -> Outcome:
    middle = statistics.median(after) / statistics.median(before) - 1
    return Outcome(plan["rules"][rule]["gain"], middle, min(after) / max(before) - 1, max(after) / min(before) - 1)


def _beside(one: Record, other: Record) -> bool:
    """Return whether two cells differ only in the setting `staging`, and the first is staged."""
    settings = [
        {key: value for key, value in each["cell"]["settings"].items() if key != "staging"} for each in (one, other)
    ]
    return settings[0] == settings[1] and "staging" in one["cell"]["settings"]


def _rates(recorded: Record) -> list[float]:
    """Return the MB/s of each valid run that read, over the profiled window if there is one."""
    runs: list[Any] = stopping.measured(recorded, "valid")
    return [rate for run in runs if (rate := run.get("profile", run).get("read_mb_per_s"))]
