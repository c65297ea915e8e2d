"""What there is to do: the cells asked for, against what is recorded of them."""

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
from campaign.console import counted
from jobs.benchmarks import registry
from jobs.judging import disturbed, paired, peaks, stopping
from jobs.model.conduct import Conduct
from jobs.model.record import Record
from jobs.model.terms import Terms, terms_of
from jobs.system import files


@dataclass(frozen=True)
class Entry:
    """A cell, its state on disk, and how many runs it lacks, warm-ups apart."""

    cell: Cell
    # ``planned`` (no record), ``running`` (begun and not finished), ``done``, ``invalid``, ``failed``, ``damaged``;
    # as the present thresholds judge it.
    state: str
    missing: int
    at_most: int  # how many it may come to lack, if ``until_spread`` adds all that it may
    disturbed: str = ""  # where others' work made runs of it invalid, the words that would let them count
    stamp: files.Stamp | None = None  # of the record that was read


def runs_in_words(entries: Sequence[Entry], conduct: Conduct) -> str:
    """Return how many runs cells lack, with their warm-ups: `24 runs`, or `24 to 120 runs` where some may be added."""
    warmups = len(entries) * conduct["warmup_runs"]
    few, many = warmups + sum(entry.missing for entry in entries), warmups + sum(entry.at_most for entry in entries)
    return counted(few, "run") if few == many else f"{few} to {many} runs"


@dataclass(frozen=True)
class Plan:
    """The cells asked for, in the order of the words, and how they are conducted.

    It is made once a command, and `refreshed` where records may have changed.
    """

    entries: tuple[Entry, ...]
    conduct: Conduct
    folder: CampaignFolder
    verdicts: Verdicts = field(compare=False)

    @property
    def to_do(self) -> list[Entry]:
        """Entries that lack runs, in the seeded shuffled order in which they are run.

        Baselines come first: the other cells are judged by them.
        """
        entries = [entry for entry in self.entries if entry.missing]
        random.Random(self.conduct["order_seed"]).shuffle(entries)  # noqa: S311 - an order, not a secret
        return sorted(entries, key=lambda entry: registry.of(entry.cell.settings).kind != peaks.KIND)

    @property
    def done(self) -> int:
        """How many cells are done."""
        return sum(entry.state == "done" for entry in self.entries)

    def refreshed(self) -> Plan:
        """Read the records that changed since; all of them where a baseline did, for it judges the others."""
        if Verdicts(self.folder).stamps != self.verdicts.stamps:
            return make([entry.cell for entry in self.entries], self.conduct, self.folder)
        entries = tuple(
            entry
            if entry.stamp == record.stamp(self.folder.record(entry.cell.id))
            else _entry(entry.cell, self.conduct, self.verdicts)
            for entry in self.entries
        )
        return replace(self, entries=entries)


def make(cells: Sequence[Cell], conduct: Conduct, folder: CampaignFolder) -> Plan:
    """Look up what is recorded of each cell."""
    ids, terms = {cell.id for cell in cells}, terms_of(conduct)
    verdicts, recorded = Verdicts(folder, terms, ids), _recorded(folder, ids)
    entries = tuple(
        _entry(cell, conduct, verdicts) if cell.id in recorded else _to_do(cell, "planned", None, terms)
        for cell in console.counting(cells, "reading records")
    )
    return Plan(entries, conduct, folder, verdicts)


def _recorded(folder: CampaignFolder, ids: Collection[str]) -> Collection[str]:
    """Return the cells that have a folder among the records; all of `ids` if the folders cannot be listed.

    An NFS client asks the server for news when it opens the folder of the records.
    """
    try:
        with os.scandir(folder.records) as found:
            return {each.name for each in found}
    except FileNotFoundError:
        return ()
    except OSError:
        return ids


def _entry(cell: Cell, conduct: Conduct, verdicts: Verdicts) -> Entry:
    path, terms = verdicts.folder.record(cell.id), terms_of(conduct)
    stamp = record.stamp(path)  # before it is read: a record that is written meanwhile is read again
    try:
        recorded = record.read(path)
        if recorded is None:
            return _to_do(cell, "planned", None, terms)
        recorded = verdicts.judged(recorded)
        allowed = disturbed.allowing(disturbed.failed_checks(recorded["runs"]), conduct["checks"])
        entry = _to_do(cell, recorded["status"], None if conduct["redo"] else recorded, terms)
        return replace(entry, disturbed=allowed, stamp=stamp)
    except record.DamagedRecordError:
        return replace(_to_do(cell, "damaged", None, terms), stamp=stamp)


def _to_do(cell: Cell, state: str, recorded: Record | None, terms: Terms) -> Entry:
    least, most = stopping.missing_runs(recorded, terms), stopping.most_missing_runs(recorded, terms)
    each = 2 if paired.asked(cell.settings, terms) else 1
    return Entry(cell, state, least * each, most * each)
