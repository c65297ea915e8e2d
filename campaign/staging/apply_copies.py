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
from campaign.staging import observed_runs
from campaign.staging import staging_plan as plans
from campaign.staging.cost import PredictedGain
from campaign.staging.staging_plan import RULES, StagingPlan
from jobs.data import staged_copies
from jobs.errors import DatasetError
from jobs.events.posix_window import Window
from jobs.judging import stopping
from jobs.model.record import Record
from jobs.system import files

_TOLERANCE = 0.1  # share of the bandwidth by which a prediction may be wrong
_LARGEST_DIFFERENCE = 0.01  # in read bytes, as a share, between two profiles of the same reads


@dataclass(frozen=True)
class CopyRequest:
    """The files that a plan copies by the chosen rules."""

    folder: Path  # folder of the plan
    plan: StagingPlan
    files: Mapping[str, Sequence[staged_copies.File]]  # by rule

    @property
    def wanted_files(self) -> list[staged_copies.File]:
        """Return the sorted files of all rules, without repetition."""
        return sorted(set().union(*self.files.values()))

    def __str__(self) -> str:
        """Return a sentence on the files: their number and size, their source and their target."""
        size_mb = sum(size for _, size, _ in self.wanted_files) / 1e6
        amount = f"{console.count_noun(len(self.wanted_files), 'file')}, {size_mb:,.1f} MB"
        return f"{amount}, of {self.plan['source']} would be copied to {plans.copies_folder(self.plan)}"


def copy_request(folder: Path, rules: Sequence[str]) -> CopyRequest:
    """Return the files that the plan in `folder`, a folder of this user, would copy by these rules."""
    plan = _read_own_plan(folder)
    files_by_rule = {rule: [plan["listed"][index] for index in plan["rules"][rule]["files"]] for rule in rules}
    if empty := [rule for rule, rule_files in files_by_rule.items() if not rule_files]:
        reason = plan["why_not"] or "the capacity holds none of its files"
        raise UsageError(
            f"the plan stages nothing by the rule {empty[0]}: {reason}", "--rule all copies all files anyway"
        )
    return CopyRequest(folder, plan, files_by_rule)


def apply_plan(copying: CopyRequest, progress: Progress) -> dict[str, Path]:
    """Copy the files and write one map per rule; return the paths of the maps by rule."""
    plan, folder, wanted = copying.plan, copying.folder, copying.wanted_files
    plans.copies_root(Path(plan["root"]))
    source, copies = Path(plan["source"]), plans.copies_folder(plan)
    with _locked_copies(copies, source):
        missing = staged_copies.missing_copies(source, copies, wanted)
        done = len(wanted) - sum(map(len, missing))
        for batch in missing:
            progress("copying", done, len(wanted), "files")
            staged_copies.copy_batch(source, copies, batch)
            done += len(batch)
        progress("copying", done, len(wanted), "files")
        for rule, rule_files in copying.files.items():
            header = {
                "schema": staged_copies.SCHEMA,
                "source": str(source),
                "copies": str(copies),
                "root": plan["root"],
            }
            files.write_json(folder / f"{rule}.json", {**header, "files": rule_files}, indent=None)
    return {rule: folder / f"{rule}.json" for rule in copying.files}


def undo_plan(folder: Path) -> tuple[int, list[Path]]:
    """Remove the maps and the copies of a plan; return the number of removed copies, and the files that were kept.

    A copy is kept unless its original still exists unchanged: otherwise the only copy might be lost.
    """
    plan = _read_own_plan(folder)
    source, copies = Path(plan["source"]), plans.copies_folder(plan)
    for rule in plans.RULES:
        files.remove(folder / f"{rule}.json", missing_ok=True)
    if not copies.is_dir():
        return 0, []
    with _locked_copies(copies, source):
        return staged_copies.remove_copies(source, copies)


def _read_own_plan(folder: Path) -> StagingPlan:
    """Return the plan in a folder; raise EnvironmentFaultError if another user may have written it."""
    plan = plans.load_plan(folder)
    owner = (folder / plans.NAME).lstat().st_uid
    fault = files.reason_to_distrust(folder) or (
        owner not in (0, os.geteuid()) and f"the plan is {files.user_name(owner)}'s"
    )
    if fault:
        raise EnvironmentFaultError(
            f"{fault}: it is not carried out", "make a plan of your own: python -m campaign stage plan"
        )
    return plan


@contextmanager
def _locked_copies(copies: Path, source: Path) -> Iterator[None]:
    try:
        with staged_copies.lock_copies(copies, source):
            yield
    except DatasetError as error:
        raise EnvironmentFaultError(error.message, error.hint) from error


@dataclass(frozen=True)
class GainOutcome:
    """The predicted and the measured gain of bandwidth, as shares."""

    predicted: PredictedGain
    measured: float  # by the medians of the runs
    low: float  # the slowest run with copies over the fastest run without
    high: float  # the fastest run with copies over the slowest run without

    @property
    def holds(self) -> bool:
        """Return whether the bandwidth is within 10 % of the prediction."""
        return abs((1 + self.measured) / (1 + self.predicted["gain"]) - 1) <= _TOLERANCE


def outcomes_of_cells(verdicts: Verdicts, plan: StagingPlan) -> dict[str, GainOutcome]:
    """Return the outcome per rule: done cells with staged copies, compared with the cell of the plan's profile.

    Raises UsageError: no such cell is done, or the plan was not made from a cell.
    """
    folder = verdicts.folder
    records = [verdicts.read(path)[0] for path in sorted(folder.records.glob("*/record.json"))]
    cells = {recorded["cell"]["id"]: recorded for recorded in records if recorded}
    origin = cells.get(plan["origin"])
    if origin is None:
        raise UsageError(f"{folder.root} has no cell {plan['origin']}, the origin of the plan", "plan from a cell")
    done_cells = [recorded for recorded in cells.values() if recorded["status"] == "done" and _rates(recorded)]
    staged = {
        recorded["cell"]["settings"].get("staging"): recorded
        for recorded in done_cells
        if _is_staged_version(recorded, origin)
    }
    rules = [rule for rule in RULES if rule in staged and plan["rules"][rule]["files"]]
    if not rules or not _rates(origin):
        raise UsageError("no cell is done with the copies of this plan", "run its cell again with staging=RULE")
    return {rule: _outcome(plan, rule, _rates(origin), _rates(staged[rule])) for rule in rules}


def outcomes_of_profiles(folder: Path, plan: StagingPlan, paths: Sequence[Path]) -> dict[str, GainOutcome]:
    """Return the outcome per rule: profiles of a program that read the copies, compared with the plan's profile.

    `folder`: the folder of the plan and its maps. Raises UsageError: a profile has other reads, or no rule's copies.
    """
    maps = {rule: staged_copies.load_map(path) for rule in RULES if (path := folder / f"{rule}.json").exists()}
    rates: dict[str, list[float]] = {}
    for path in paths:
        window = observed_runs.read_complete_window(path)
        rows_of_copies = observed_runs.files_only_read(window, [map_of_rule.copies for map_of_rule in maps.values()])
        rule = next(
            (rule for rule, map_of_rule in maps.items() if map_of_rule.files.keys() == rows_of_copies.keys()), None
        )
        if rule is None:
            reason = f"{path} has read {len(rows_of_copies)} copies, and no applied rule has exactly these"
            raise UsageError(reason, f"read jobs.data.staged_paths(paths, MAP), where MAP is {folder}/RULE.json")
        rates.setdefault(rule, []).append(_bytes_of_plan(window, plan, rows_of_copies, path) / 1e6 / window.wall_s)
    return {
        rule: _outcome(plan, rule, [plan["mb_per_s"]], rates_with_copies) for rule, rates_with_copies in rates.items()
    }


def _bytes_of_plan(window: Window, plan: StagingPlan, rows_of_copies: Mapping[str, Sequence[int]], path: Path) -> float:
    """Return the bytes read from the plan's files, originals and copies; raise UsageError for other reads."""
    originals = observed_runs.files_only_read(window, [Path(plan["source"]), Path(plan["called"])])
    rows = [
        row
        for name, *_ in plan["listed"]
        for rows_by_name in (originals, rows_of_copies)
        for row in rows_by_name.get(name, ())
    ]
    read_bytes = float(window.counters["bytes_read"][rows].sum())
    if abs(read_bytes - plan["read_bytes"]) > _LARGEST_DIFFERENCE * plan["read_bytes"]:
        expected = f"{plan['origin']} {plan['read_bytes'] / 1e6:,.1f}"
        reason = f"{path} has read {read_bytes / 1e6:,.1f} MB of the plan's files, {expected}"
        raise UsageError(reason, "profile the same reads with the copies")
    from_device = [row for row in rows if observed_runs.has_device(Path(window.paths[row]))]
    counted = int(window.counters["bytes_read"][from_device].sum())
    if window.device_bytes is not None and window.device_bytes < observed_runs.COLD_FROM * counted:
        raise observed_runs.from_memory_error(path, window.device_bytes, counted)
    return read_bytes


def _outcome(plan: StagingPlan, rule: str, rates_without: Sequence[float], rates_with: Sequence[float]) -> GainOutcome:
    median_gain = statistics.median(rates_with) / statistics.median(rates_without) - 1
    return GainOutcome(
        plan["rules"][rule]["gain"],
        median_gain,
        min(rates_with) / max(rates_without) - 1,
        max(rates_with) / min(rates_without) - 1,
    )


def _is_staged_version(recorded: Record, origin: Record) -> bool:
    """Return whether a cell reads staged copies, and has the settings of the other cell but for that."""
    settings = dict(recorded["cell"]["settings"])
    return settings.pop("staging", None) is not None and settings == origin["cell"]["settings"]


def _rates(recorded: Record) -> list[float]:
    """Return the MB/s of each valid run that read, over the profiled window if there is one."""
    runs: list[Any] = stopping.measured_runs(recorded, "valid")
    return [rate for run in runs if (rate := run.get("profile", run).get("read_mb_per_s"))]
