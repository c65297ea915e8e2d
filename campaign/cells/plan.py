"""From composed configurations to what there is to do."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from campaign.cells import record, stopping
from campaign.cells.cell import SETTINGS, Cell, flat, is_baseline, make_cell
from campaign.cells.peaks import Peaks
from campaign.config import limits
from campaign.console import counted
from campaign.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from campaign.cells.folder import CampaignFolder


@dataclass(frozen=True)
class Entry:
    """A cell, its state on disk, and how many measured runs it lacks.

    Attributes
    ----------
    state
        ``planned`` (no record), ``running`` (begun and not finished), ``done``, ``invalid``, ``failed``, ``damaged``;
        as the present thresholds judge it.
    rejudged
        The record, where its verdict is no longer the stored one.
    at_most
        How many it may come to lack, if ``until_spread`` adds all that it may.
    """

    cell: Cell
    state: str
    missing: int
    at_most: int
    rejudged: record.Record | None = None


def runs_in_words(entries: Sequence[Entry], conduct: Mapping[str, Any]) -> str:
    """Say how many runs cells lack, with their warm-ups: `24 runs`, or `24 to 120 runs` where some may be added."""
    few, many = (
        sum(number + conduct["warmup_runs"] for number in numbers)
        for numbers in ([entry.missing for entry in entries], [entry.at_most for entry in entries])
    )
    return counted(few, "run") if few == many else f"{few} to {many} runs"


@dataclass(frozen=True)
class Plan:
    """The cells asked for, in the order of the words, and how they are conducted."""

    entries: tuple[Entry, ...]
    conduct: Mapping[str, Any]

    @property
    def to_do(self) -> list[Entry]:
        """Entries that lack runs, in the seeded shuffled order in which they are run.

        Baselines come first: the other cells are judged by them.
        """
        entries = [entry for entry in self.entries if entry.missing]
        random.Random(self.conduct["order_seed"]).shuffle(entries)  # noqa: S311 - an order, not a secret
        return sorted(entries, key=lambda entry: not is_baseline(entry.cell.settings))

    def save_verdicts(self, folder: CampaignFolder, but: Collection[str] = ()) -> None:
        """Write the records whose verdict changed, so that status, why and the analysis tell the same.

        Cells named in `but` are left out: a worker may be writing their records.
        """
        for entry in self.entries:
            if entry.rejudged is not None and entry.cell.id not in but:
                record.write(folder.record(entry.cell.id), entry.rejudged)


def cells_of(points: Sequence[Mapping[str, Any]]) -> tuple[list[Cell], dict[str, Any]]:
    """Check the points, make cells of them, drop duplicates.

    Returns
    -------
    cells, conduct
        Each cell once, in order; and the keys that say how the campaign is conducted.

    Raises
    ------
    UsageError
        A value out of its range, or a key of the conduct with several values.
    """
    if not points:
        raise UsageError("the grid has no points", "a glob() that matches nothing? name the values one by one")
    cells: dict[str, Cell] = {}
    conduct = _conduct(points[0])
    for point in points:
        limits.check(point)
        if _conduct(point) != conduct:
            raise _swept_conduct(conduct, _conduct(point))
        cell = make_cell(point)
        cells.setdefault(cell.id, cell)
    return list(cells.values()), conduct


def make(cells: Sequence[Cell], conduct: Mapping[str, Any], folder: CampaignFolder) -> Plan:
    """Look up what is recorded of each cell."""
    peaks = Peaks(folder)
    return Plan(tuple(_entry(cell, conduct, folder, peaks) for cell in cells), conduct)


def _entry(cell: Cell, conduct: Mapping[str, Any], folder: CampaignFolder, peaks: Peaks) -> Entry:
    try:
        recorded = record.read(folder.record(cell.id))
    except record.DamagedRecordError:
        return _to_do(cell, "damaged", None, conduct)
    if recorded is None:
        return _to_do(cell, "planned", None, conduct)
    changed = record.rejudge(recorded, conduct, peaks.of(recorded))
    entry = _to_do(cell, recorded["status"], None if conduct["redo"] else recorded, conduct)
    return replace(entry, rejudged=recorded if changed else None)


def _to_do(cell: Cell, state: str, recorded: record.Record | None, conduct: Mapping[str, Any]) -> Entry:
    return Entry(cell, state, stopping.missing_runs(recorded, conduct), stopping.most_missing_runs(recorded, conduct))


def _conduct(point: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in point.items() if key not in SETTINGS}


def _swept_conduct(one: Mapping[str, Any], other: Mapping[str, Any]) -> UsageError:
    before, after = dict(flat(one)), dict(flat(other))
    key = next(key for key in (*before, *after) if before.get(key) != after.get(key))
    return UsageError(
        f"{key} has several values ({before.get(key)}, {after.get(key)}): it says how the campaign is run, not what",
        f"give {key} one value, or start one campaign for each",
    )
