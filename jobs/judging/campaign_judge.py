"""The judge of the records of one campaign; the campaign and the analysis judge by it alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import cached_property

from jobs.judging import judge
from jobs.judging.bound import Bound, bound_of
from jobs.judging.peaks import Peaks
from jobs.model import consistent
from jobs.model.record import Asked, Record
from jobs.model.results import Peak
from jobs.model.terms import Terms


class UnusableRecordError(ValueError):
    """A record contradicts itself, or lacks metrics by which it is judged; the message says which."""


class CampaignJudge:
    """Judges a record by the terms that were asked for, and by the speeds of the campaign's storages alone.

    Parameters
    ----------
    requests
        The requests of ``campaign.json``. The terms of the last one that names a cell hold for it; a cell that none of
        them names is judged by the terms of its last worker, which its record has.
    baselines
        The stored records of storages alone.
    terms, cells
        The terms of a front process or a worker hold for every record that it asks for, but for a baseline only if it
        is one of its `cells`: so whoever asks finds the same speeds of the storages.

    Both iterables are read at the first judgement that needs them.
    """

    def __init__(
        self,
        requests: Iterable[Asked] = (),
        baselines: Iterable[Record] = (),
        terms: Terms | None = None,
        cells: Collection[str] = (),
    ) -> None:
        self._requests, self._baselines, self._terms, self._cells = requests, baselines, terms, cells

    def judged(self, record: Record) -> Record:
        """Return a record with its verdicts; raises UnusableRecordError."""
        terms = self._terms or self._terms_of(record)
        try:
            return _judged(record, terms, self.peaks.of(record))
        except UnusableRecordError:
            raise
        except judge.ODD_FIGURES as error:
            raise UnusableRecordError(f"cannot be judged: {type(error).__name__} {error}") from error

    def bound(self, record: Record) -> Bound | None:
        """Return what bounds the cell of a judged record; None for a baseline, and where its runs do not tell."""
        with suppress(*judge.ODD_FIGURES):
            return bound_of(record, self.peaks)
        return None

    @cached_property
    def peaks(self) -> Peaks:
        """The speeds of the campaign's storages, of the baselines that are done."""
        judged = []
        for record in self._baselines:
            with suppress(*judge.ODD_FIGURES):  # it is named when it is read with the others
                judged.append(_judged(record, self._terms_of(record)))
        self._baselines = ()
        return Peaks(judged)

    def _terms_of(self, record: Record) -> Terms:
        cell = record["cell"]["id"]
        return self._terms if self._terms and cell in self._cells else self._asked.get(cell, record["terms"])

    @cached_property
    def _asked(self) -> dict[str, Terms]:
        asked = judge.last_terms(self._requests)
        self._requests = ()
        return asked


def _judged(record: Record, terms: Terms, peak: Peak | None = None) -> Record:
    """Return a record with its verdicts; raises one of `ODD_FIGURES`, or UnusableRecordError, which is one of them."""
    judged = judge.judged(record, terms, peak)
    for contradiction in consistent.contradictions(judged):
        raise UnusableRecordError(f"contradicts itself: {contradiction}")
    return judged
