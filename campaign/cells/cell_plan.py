"""Plan the runs of a campaign: compare the requested cells with their records."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from campaign import console
from campaign.cells import record
from campaign.cells.cell import Cell
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.console import count_noun
from jobs.benchmarks import registry
from jobs.judging import judge, peaks, stopping
from jobs.model.conduct import Conduct
from jobs.model.record import Record, Terms, terms_of_conduct
from jobs.system import files


@dataclass(frozen=True)
class PlannedCell:
    """A requested cell with its state on disk, and its number of missing runs without warm-ups."""

    cell: Cell
    # ``planned`` (no record), ``running`` (started and not finished), ``done``, ``invalid``, ``failed`` or ``damaged``,
    # judged by the present limits of the checks.
    state: str
    missing: int
    at_most: int  # number of missing runs if ``until_spread`` adds as many runs as it may
    disturbed: bool = False  # whether other programs disturbed a run (check `quiet`)
    stamp: files.Stamp | None = None  # stamp of the record file that was read


def format_number_of_runs(entries: Sequence[PlannedCell], conduct: Conduct) -> str:
    """Return the number of missing runs with warm-ups, in words: `24 runs`, `24 to 120 runs` if some may be added."""
    warmups = len(entries) * conduct["warmup_runs"]
    least, most = warmups + sum(entry.missing for entry in entries), warmups + sum(entry.at_most for entry in entries)
    return count_noun(least, "run") if least == most else f"{least} to {most} runs"


@dataclass(frozen=True)
class Plan:
    """The requested cells in their order, and the settings that say how to run the campaign (its conduct).

    A command makes one plan, and calls `refresh` after records may have changed.
    """

    entries: tuple[PlannedCell, ...]
    conduct: Conduct
    folder: CampaignFolder
    verdicts: Verdicts = field(compare=False)

    @property
    def to_do(self) -> list[PlannedCell]:
        """Return the cells that lack runs, shuffled with the seed of the campaign.

        Baselines come first, because the other cells are judged by comparison with baselines.
        """
        entries = [entry for entry in self.entries if entry.missing]
        random.Random(self.conduct["order_seed"]).shuffle(entries)  # noqa: S311 - an order, not a secret
        return sorted(entries, key=lambda entry: registry.benchmark_of(entry.cell.settings).kind != peaks.KIND)

    @property
    def done(self) -> int:
        """Return the number of cells that are done."""
        return sum(entry.state == "done" for entry in self.entries)

    def refresh(self) -> Plan:
        """Read the changed records again and return the new plan. If a baseline has changed, read all records."""
        if Verdicts(self.folder).stamps != self.verdicts.stamps:
            return make_plan([entry.cell for entry in self.entries], self.conduct, self.folder)
        entries = tuple(
            entry
            if entry.stamp == record.record_stamp(self.folder.record(entry.cell.id))
            else _read_entry(entry.cell, self.conduct, self.verdicts)
            for entry in self.entries
        )
        return replace(self, entries=entries)


def make_plan(cells: Sequence[Cell], conduct: Conduct, folder: CampaignFolder) -> Plan:
    """Compare these cells with the records in the campaign folder; return the plan of the missing runs."""
    ids, terms = {cell.id for cell in cells}, terms_of_conduct(conduct)
    verdicts, recorded = Verdicts(folder, terms, ids), _recorded_cells(folder, ids)
    entries = tuple(
        _read_entry(cell, conduct, verdicts) if cell.id in recorded else _make_entry(cell, "planned", None, terms)
        for cell in console.iterate_with_progress(cells, "reading records")
    )
    return Plan(entries, conduct, folder, verdicts)


def _recorded_cells(folder: CampaignFolder, ids: Collection[str]) -> Collection[str]:
    """Return the ids of the cells that have a folder in ``records/``, or all `ids` if ``records/`` cannot be read.

    Opening the folder also makes an NFS client ask the server for changes.
    """
    try:
        with os.scandir(folder.records) as entries:
            return {entry.name for entry in entries}
    except FileNotFoundError:
        return ()
    except OSError:
        return ids


def _read_entry(cell: Cell, conduct: Conduct, verdicts: Verdicts) -> PlannedCell:
    """Read the record of a cell, and return the cell with its state and its missing runs."""
    path, terms = verdicts.folder.record(cell.id), terms_of_conduct(conduct)
    stamp = record.record_stamp(path)  # taken before reading, so that a record written meanwhile is read again
    try:
        recorded = record.read_record(path)
        if recorded is None:
            return _make_entry(cell, "planned", None, terms)
        recorded = verdicts.judge(recorded)
        entry = _make_entry(cell, recorded["status"], None if conduct["redo"] else recorded, terms)
        return replace(entry, disturbed=bool(judge.failed_quiet_checks(recorded["runs"])), stamp=stamp)
    except record.DamagedRecordError:
        return replace(_make_entry(cell, "damaged", None, terms), stamp=stamp)


def _make_entry(cell: Cell, state: str, recorded: Record | None, terms: Terms) -> PlannedCell:
    """Return a cell with its state and the number of runs that its record lacks; without a record all runs."""
    least, most = stopping.missing_runs(recorded, terms), stopping.max_missing_runs(recorded, terms)
    return PlannedCell(cell, state, least, most)
