"""Copies the files of a plan to the fast storage, and takes the copies away (`jobs.data.staging`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import plan as plans
from jobs.data import staging
from jobs.errors import DatasetError
from jobs.system import files


def apply(folder: Path, rules: Sequence[str], progress: Progress) -> dict[str, Path]:
    """Copy what the rules of the plan in `folder` name, and write a map for each; returns these by rule."""
    plan = plans.load(folder)
    listed = {rule: [_file(*plan["listed"][place]) for place in plan["rules"][rule]["files"]] for rule in rules}
    if empty := [rule for rule, those in listed.items() if not those]:
        why = plan["why_not"] or "the capacity holds none of its files"
        raise UsageError(f"the plan stages nothing by the rule {empty[0]}: {why}", "--rule all copies all the same")
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    wanted = sorted(set().union(*listed.values()))
    with _ours(copies, source):
        missing = staging.missing(source, copies, wanted)
        done = len(wanted) - sum(map(len, missing))
        for batch in missing:
            progress("copying", done, len(wanted), "files")
            staging.copy(source, copies, batch)
            done += len(batch)
        progress("copying", done, len(wanted), "files")
        for rule, those in listed.items():
            found = {"schema": staging.SCHEMA, "source": str(source), "copies": str(copies), "root": plan["root"]}
            files.write_json(folder / f"{rule}.json", {**found, "files": those}, indent=None)
    return {rule: folder / f"{rule}.json" for rule in rules}


def undo(folder: Path) -> tuple[int, list[Path]]:
    """Remove the maps and the copies of a plan; returns how many, and what was left.

    Left is what is no copy of a file that is still there as it was copied: it may be the last.
    """
    plan = plans.load(folder)
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    for rule in plans.RULES:
        files.remove(folder / f"{rule}.json", missing_ok=True)
    if not copies.is_dir():
        return 0, []
    with _ours(copies, source):
        return staging.taken_away(source, copies)


@contextmanager
def _ours(copies: Path, source: Path) -> Iterator[None]:
    try:
        with staging.held(copies, source):
            yield
    except DatasetError as error:
        raise EnvironmentFaultError(error.message, error.hint) from error


def _file(name: str | int, size: str | int, changed_ns: str | int) -> staging.File:
    return str(name), int(size), int(changed_ns)
