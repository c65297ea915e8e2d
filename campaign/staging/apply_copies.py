"""Copies the files of a plan to the fast storage, and takes the copies away (`jobs.data.staged_copies`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from campaign import console
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import staging_plan as plans
from jobs.data import staged_copies
from jobs.errors import DatasetError
from jobs.system import files


@dataclass(frozen=True)
class Copying:
    """What rules of a plan copy."""

    folder: Path  # of the plan
    plan: plans.Plan
    files: Mapping[str, Sequence[staged_copies.File]]  # by rule

    @property
    def wanted(self) -> list[staged_copies.File]:
        """Return the files of all rules, each once."""
        return sorted(set().union(*self.files.values()))

    def __str__(self) -> str:
        """Say what is copied, from where, and where to."""
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
    """Copy, and write a map for each rule; returns these by rule."""
    plan, folder, wanted = what.plan, what.folder, what.wanted
    plans.made_home(Path(plan["root"]))
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    with _ours(copies, source):
        missing = staged_copies.missing(source, copies, wanted)
        done = len(wanted) - sum(map(len, missing))
        for batch in missing:
            progress("copying", done, len(wanted), "files")
            staged_copies.copy(source, copies, batch)
            done += len(batch)
        progress("copying", done, len(wanted), "files")
        for rule, those in what.files.items():
            found = {"schema": staged_copies.SCHEMA, "source": str(source), "copies": str(copies), "root": plan["root"]}
            files.write_json(folder / f"{rule}.json", {**found, "files": those}, indent=None)
    return {rule: folder / f"{rule}.json" for rule in what.files}


def undo(folder: Path) -> tuple[int, list[Path]]:
    """Remove the maps and the copies of a plan; returns how many, and what was left.

    Left is what is no copy of a file that is still there as it was copied: it may be the last.
    """
    plan = _own(folder)
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    for rule in plans.RULES:
        files.remove(folder / f"{rule}.json", missing_ok=True)
    if not copies.is_dir():
        return 0, []
    with _ours(copies, source):
        return staged_copies.taken_away(source, copies)


def _own(folder: Path) -> plans.Plan:
    """Read a plan that nobody else can have written here."""
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
        with staged_copies.held(copies, source):
            yield
    except DatasetError as error:
        raise EnvironmentFaultError(error.message, error.hint) from error
