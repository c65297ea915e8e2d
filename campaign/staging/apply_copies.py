"""Copy the files of a plan to the fast storage, remove the copies, and compare the measured with the predicted gain."""

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

_TOLERANCE = 0.1  # a prediction counts as right if the bandwidth differs by at most this share
_LARGEST_DIFFERENCE = 0.01  # two profiles count as the same reads if their bytes differ by at most this share


@dataclass(frozen=True)
class CopyRequest:
    """The files that a staging plan would copy by the chosen rules."""

    folder: Path  # folder of the plan
    plan: StagingPlan
    files: Mapping[str, Sequence[staged_copies.File]]  # the files of each rule

    @property
    def wanted_files(self) -> list[staged_copies.File]:
        """Return the files of all rules, sorted and without duplicates."""
        return sorted(set().union(*self.files.values()))

    @property
    def missing_files(self) -> list[staged_copies.File]:
        """Return the wanted files that have no copy yet."""
        copies = plans.copies_folder(self.plan)
        return [file for file in self.wanted_files if staged_copies.file_identity(copies / file[0]) != file[1:]]

    def __str__(self) -> str:
        """Return a sentence with the number and size of the files, the source folder and the target folder."""
        missing = self.missing_files
        shown, what = (missing, "would be copied") if missing else (self.wanted_files, "are already copied")
        amount = f"{console.count_noun(len(shown), 'file')}, {sum(size for _, size, _ in shown) / 1e6:,.1f} MB"
        return f"{amount}, of {self.plan['source']} {what} to {plans.copies_folder(self.plan)}"


def copy_request(folder: Path, rules: Sequence[str]) -> CopyRequest:
    """Return the files that the plan in `folder` would copy by the rules `rules`; this user must own the folder."""
    plan = _read_own_plan(folder)
    files_by_rule = {rule: [plan["listed"][index] for index in plan["rules"][rule]["files"]] for rule in rules}
    if empty := [rule for rule, rule_files in files_by_rule.items() if not rule_files]:
        reason = plan["why_not"] or "the capacity is too small for every file"
        raise UsageError(
            f"the plan has no file for the rule {empty[0]}: {reason}", "--rule all copies all files anyway"
        )
    copying = CopyRequest(folder, plan, files_by_rule)
    needed = sum(plans.size_on_disk(size) for _, size, _ in copying.wanted_files)
    if len(files_by_rule) > 1 and "all" not in rules and needed > plan["capacity_bytes"]:
        raise UsageError(
            f"the files of the rules {' and '.join(files_by_rule)} need {needed / 1e6:,.1f} MB together, but the plan's"
            f" capacity is {plan['capacity_bytes'] / 1e6:,.1f} MB",
            "apply and measure one rule, remove its copies with `python -m campaign stage undo`, then apply the next",
        )
    return copying


def apply_plan(copying: CopyRequest, progress: Progress) -> dict[str, Path]:
    """Copy the files, and write one map file per rule, which lists the copies; return the path of each rule's map."""
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
    """Remove the maps and the copies of a plan; return the number of removed copies, and the paths of all other copies.

    A copy is removed only if the original file still exists unchanged, because otherwise data might be lost.
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
    """Return the plan in a folder; raise EnvironmentFaultError if another user may have written the plan."""
    plan = plans.load_plan(folder)
    owner = (folder / plans.NAME).lstat().st_uid
    fault = files.reason_to_distrust(folder) or (
        owner not in (0, os.geteuid()) and f"the plan belongs to user {files.user_name(owner)}"
    )
    if fault:
        raise EnvironmentFaultError(
            f"{fault}: the plan is not executed", "make a plan of your own: python -m campaign stage plan"
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
    """The predicted and the measured gain of bandwidth, as shares: 0.25 means 25 % more MB/s with the copies."""

    predicted: PredictedGain
    measured: float  # gain by the medians of the runs
    low: float  # gain of the slowest run with copies relative to the fastest run without copies
    high: float  # gain of the fastest run with copies relative to the slowest run without copies

    @property
    def holds(self) -> bool:
        """Return whether the measured bandwidth is within 10 % of the predicted bandwidth."""
        return abs((1 + self.measured) / (1 + self.predicted["gain"]) - 1) <= _TOLERANCE


def outcomes_of_cells(verdicts: Verdicts, plan: StagingPlan) -> dict[str, GainOutcome]:
    """Compare the done cells that read staged copies with the cell of the plan's profile; return the outcome per rule.

    Raise UsageError if no cell with copies is done, or if the plan was not made from a cell of this campaign.
    """
    folder = verdicts.folder
    records = [verdicts.read(path)[0] for path in sorted(folder.records.glob("*/record.json"))]
    cells = {recorded["cell"]["id"]: recorded for recorded in records if recorded}
    origin = cells.get(plan["origin"])
    if origin is None:
        raise UsageError(
            f"{folder.root} has no cell {plan['origin']}, from which the plan was made",
            "make a plan from a cell of this campaign: python -m campaign stage plan",
        )
    done_cells = [recorded for recorded in cells.values() if recorded["status"] == "done" and _rates(recorded)]
    staged = {
        recorded["cell"]["settings"].get("staging"): recorded
        for recorded in done_cells
        if _is_staged_version(recorded, origin)
    }
    rules = [rule for rule in RULES if rule in staged and plan["rules"][rule]["files"]]
    if not rules or not _rates(origin):
        raise UsageError(
            "no cell is done with the copies of this plan", "run the cell of the plan again with staging=RULE"
        )
    return {rule: _outcome(plan, rule, _rates(origin), _rates(staged[rule])) for rule in rules}


def outcomes_of_profiles(folder: Path, plan: StagingPlan, paths: Sequence[Path]) -> dict[str, GainOutcome]:
    """Compare profiles of a program that read the copies with the plan's profile; return the outcome per rule.

    `folder` contains the plan and its maps. Raise UsageError if a profile has other reads than the plan's profile, or
    if the read copies are not exactly the copies of one rule.
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
            reason = f"{path} has read {len(rows_of_copies)} copies, but no applied rule has exactly these files"
            cure = f"in the program, read the files jobs.data.staged_paths(paths, MAP), where MAP is {folder}/RULE.json"
            raise UsageError(reason, cure)
        rates.setdefault(rule, []).append(_bytes_of_plan(window, plan, rows_of_copies, path) / 1e6 / window.wall_s)
    return {
        rule: _outcome(plan, rule, [plan["mb_per_s"]], rates_with_copies) for rule, rates_with_copies in rates.items()
    }


def _bytes_of_plan(window: Window, plan: StagingPlan, rows_of_copies: Mapping[str, Sequence[int]], path: Path) -> float:
    """Return the number of bytes read from the plan's files, both originals and copies.

    Raise UsageError if the number differs by more than 1 % from the plan's profile, or if reads came from memory.
    """
    originals = observed_runs.files_only_read(window, [Path(plan["source"]), Path(plan["called"])])
    rows = [
        row
        for name, *_ in plan["listed"]
        for rows_by_name in (originals, rows_of_copies)
        for row in rows_by_name.get(name, ())
    ]
    read_bytes = float(window.counters["bytes_read"][rows].sum())
    if abs(read_bytes - plan["read_bytes"]) > _LARGEST_DIFFERENCE * plan["read_bytes"]:
        expected = f"{plan['origin']} has read {plan['read_bytes'] / 1e6:,.1f} MB"
        reason = f"{path} has read {read_bytes / 1e6:,.1f} MB of the plan's files, but {expected}"
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
    """Return whether a cell reads staged copies and otherwise has the same settings as the cell `origin`."""
    settings = dict(recorded["cell"]["settings"])
    return settings.pop("staging", None) is not None and settings == origin["cell"]["settings"]


def _rates(recorded: Record) -> list[float]:
    """Return the read bandwidth in MB/s of each valid run that read data.

    If a run has a profile, the bandwidth is that of the profiled window.
    """
    runs: list[Any] = stopping.measured_runs(recorded, "valid")
    return [rate for run in runs if (rate := run.get("profile", run).get("read_mb_per_s"))]
