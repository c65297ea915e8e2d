"""Verdicts on the records of a campaign, made when they are read; none is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from campaign.cells import record
from campaign.cells.folder import CampaignFolder, existing
from campaign.errors import CampaignError
from jobs.benchmarks import registry
from jobs.judging import judge, peaks
from jobs.judging.peaks import Peaks
from jobs.model.record import Asked, Record
from jobs.model.terms import Terms


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Raise DamagedRecordError where what the record at `path` says cannot be used: figures are missing, say."""
    try:
        yield
    except judge.ODD_FIGURES as error:
        raise record.DamagedRecordError(f"{path} is damaged inside: {error!r}", "restore it, or redo=true") from error


class Verdicts:
    """The judge of one campaign folder; the baselines there, by which other cells are judged, are read once.

    `terms` are those of a front or a worker, by which it judges whatever it asks for, and the baselines among its
    `cells`. All else is judged by the terms of the last of the `requests` that names it, by default those of
    ``campaign.json``, else by those of its last worker, which its record has. So whoever asks finds the same baselines.
    """

    def __init__(
        self,
        folder: CampaignFolder,
        terms: Terms | None = None,
        cells: Collection[str] = (),
        requests: Sequence[Asked] | None = None,
    ) -> None:
        self.folder = folder
        self._terms, self._cells, self._requests = terms, cells, requests

    def judged(self, recorded: Record) -> Record:
        """Return a record with its verdicts; raises DamagedRecordError for one without figures."""
        with usable(self.folder.record(recorded["cell"]["id"])):
            return judge.judged(recorded, self._terms or self._terms_of(recorded), self.peaks.of(recorded))

    def read(self, path: Path) -> tuple[Record | None, str | None]:
        """Read a record without raising: the judged record, or None and what is wrong with it, if anything."""
        try:
            recorded = record.read(path)
            return recorded and self.judged(recorded), None
        except record.RecordError as error:
            return None, error.message

    def _terms_of(self, recorded: Record) -> Terms:
        cell = recorded["cell"]["id"]
        return self._terms if self._terms and cell in self._cells else self._of_requests.get(cell, recorded["terms"])

    @cached_property
    def _of_requests(self) -> dict[str, Terms]:
        if self._requests is None:
            with suppress(CampaignError):  # there is no campaign.json yet, or it is damaged: the records have terms
                return judge.last_terms(existing(self.folder.root)[1]["requests"])
        return judge.last_terms(self._requests or ())

    @cached_property
    def stamps(self) -> dict[Path, record.Stamp | None]:
        """Stamps of the baselines' records, taken before any of them is read."""
        names = [name for name, each in registry.benchmarks().items() if each.kind == peaks.KIND]
        paths = sorted(path for name in names for path in self.folder.records.glob(f"{name}-*/record.json"))
        return {path: record.stamp(path) for path in paths}

    @cached_property
    def peaks(self) -> Peaks:
        """What the baselines say that are done."""
        found: list[Record] = []
        for path in self.stamps:
            recorded, _ = record.read_or_fault(path)
            with suppress(*judge.ODD_FIGURES):
                found += [judge.judged(recorded, self._terms_of(recorded))] if recorded else []
        return Peaks(found)
