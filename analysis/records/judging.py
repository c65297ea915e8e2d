"""Judge a record where it is read: by the terms of the last request that names its cell, else by its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from analysis.records import readable
from analysis.records.readable import AbsentError, UnreadableError
from jobs.judging import judge
from jobs.judging.peaks import Peaks
from jobs.model import consistent
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
    fault
        Why `campaign.json` cannot be read, which is then as if there were none.
    """

    terms: Mapping[str, Terms] = field(default_factory=dict)
    peaks: Peaks = field(default_factory=lambda: Peaks(()))
    fault: UnreadableError | None = None

    @classmethod
    def of(cls, home: Path, folders: Sequence[Path]) -> Judging:
        """Return what the records in these folders are judged by, those of the campaign in `home`."""
        own = cls()
        try:
            own = cls(judge.last_terms(readable.load(home / CAMPAIGN, Manifest)["requests"]))
        except AbsentError:  # records alone
            pass
        except UnreadableError as error:
            own = cls(fault=error)
        baselines = []
        for folder in folders:
            if folder.name.startswith(OF_BASELINES) and not folder.is_symlink():
                with suppress(UnreadableError):  # it is named when it is read with the others
                    baselines.append(own.judged(readable.load(folder / FILE, Record)))
        return cls(own.terms, Peaks(baselines), own.fault)

    def judged(self, record: Record) -> Record:
        """Return a record with its verdicts.

        Raises UnreadableError where it contradicts itself, or lacks what it is judged by.
        """
        try:
            terms = self.terms.get(record["cell"]["id"], record["terms"])
            return consistent.check(judge.judged(record, terms, self.peaks.of(record)))
        except consistent.ContradictionError as error:
            raise UnreadableError(f"contradicts itself: {error}") from error
        except judge.ODD_FIGURES as error:
            raise UnreadableError(f"cannot be judged: {type(error).__name__} {error}") from error
