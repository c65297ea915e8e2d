"""Judge a record where it is read: by the terms of the last request that names its cell, else by its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from analysis.records import readable
from analysis.records.readable import UnreadableError
from jobs.judging import judge
from jobs.judging.peaks import Peaks
from jobs.model.record import Manifest, Record
from jobs.model.terms import Terms

FILE, CAMPAIGN = "record.json", "campaign.json"
OF_BASELINES = "baseline-"
"""How the names of cells begin that measure a storage by itself: they are read first, for others are judged by them."""


@dataclass(frozen=True)
class Judging:
    """What the records of a campaign are judged by.

    Attributes
    ----------
    terms
        Of each cell that a request in `campaign.json` names.
    peaks
        What its storages give by themselves.
    """

    terms: Mapping[str, Terms] = field(default_factory=dict)
    peaks: Peaks = field(default_factory=lambda: Peaks(()))

    @classmethod
    def of(cls, home: Path, folders: Sequence[Path]) -> Judging:
        """Return what the records in these folders are judged by, those of the campaign in `home`."""
        own = cls()
        with suppress(UnreadableError):
            own = cls(judge.last_terms(readable.load(home / CAMPAIGN, Manifest)["requests"]))
        baselines = []
        for folder in folders:
            if folder.name.startswith(OF_BASELINES):
                with suppress(UnreadableError):  # it is named when it is read with the others
                    baselines.append(own.judged(readable.load(folder / FILE, Record)))
        return cls(own.terms, Peaks(baselines))

    def judged(self, record: Record) -> Record:
        """Return a record with its verdicts; raises UnreadableError where it lacks what it is judged by."""
        try:
            terms = self.terms.get(record["cell"]["id"], record["terms"])
            return judge.judged(record, terms, self.peaks.of(record))
        except judge.ODD_FIGURES as error:
            raise UnreadableError(f"cannot be judged: {type(error).__name__} {error}") from error
