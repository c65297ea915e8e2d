"""What there is to do: the cells asked for, against what is recorded of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from campaign import console
from campaign.cells import record, stopping
from campaign.cells.cell import is_baseline
from campaign.cells.peaks import Peaks
from campaign.console import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from campaign.cells.cell import Cell
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


def make(cells: Sequence[Cell], conduct: Mapping[str, Any], folder: CampaignFolder) -> Plan:
    """Look up what is recorded of each cell."""
    peaks = Peaks(folder)
    shown = console.counting(cells, "reading records")
    return Plan(tuple(_entry(cell, conduct, folder, peaks) for cell in shown), conduct)


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
