"""Verdicts on the records of a campaign folder, made when they are read; none is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from campaign.cells import record
from campaign.cells.folder import CampaignFolder, existing
from campaign.errors import CampaignError
from jobs.judging import judge, peaks
from jobs.judging.bound import Bound
from jobs.judging.campaign_judge import CampaignJudge, UnusableRecordError
from jobs.judging.peaks import Peaks
from jobs.model.record import Asked, Record
from jobs.model.terms import Terms
from jobs.system import files

_CURE = "restore it, or redo=true"


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Raise DamagedRecordError where what the record at `path` says cannot be used: metrics are missing, say."""
    try:
        yield
    except judge.ODD_FIGURES as error:
        raise record.DamagedRecordError(f"{path} is damaged inside: {error!r}", _CURE) from error


class Verdicts:
    """The judge of one campaign folder, which reads its baselines once (`jobs.judging.campaign_judge`).

    `requests` are by default those of ``campaign.json``.
    """

    def __init__(
        self,
        folder: CampaignFolder,
        terms: Terms | None = None,
        cells: Collection[str] = (),
        requests: Sequence[Asked] | None = None,
    ) -> None:
        self.folder = folder
        asked = _requests(folder) if requests is None else requests
        self._judge = CampaignJudge(asked, self._baselines(), terms, cells)

    def judged(self, recorded: Record) -> Record:
        """Return a record with its verdicts; raises DamagedRecordError for one that cannot be judged, or be true."""
        try:
            return self._judge.judged(recorded)
        except UnusableRecordError as error:
            path = self.folder.record(recorded["cell"]["id"])
            raise record.DamagedRecordError(f"{path} is damaged: it {error}", _CURE) from error

    def bound(self, recorded: Record) -> Bound | None:
        """Return what bounds the cell of a judged record; None for a baseline, and where its runs do not tell."""
        return self._judge.bound(recorded)

    def read(self, path: Path) -> tuple[Record | None, str | None]:
        """Read a record without raising: the judged record, or None and what is wrong with it, if anything."""
        try:
            recorded = record.read(path)
            return recorded and self.judged(recorded), None
        except record.RecordError as error:
            return None, error.message

    @property
    def peaks(self) -> Peaks:
        """What the baselines say that are done."""
        return self._judge.peaks

    @cached_property
    def stamps(self) -> dict[Path, files.Stamp | None]:
        """Stamps of the baselines' records, taken before any of them is read."""
        folders = self.folder.records.iterdir() if self.folder.records.is_dir() else ()
        paths = sorted(folder / "record.json" for folder in folders if peaks.is_of_baseline(folder.name))
        return {path: record.stamp(path) for path in paths}

    def _baselines(self) -> Iterator[Record]:
        for path in self.stamps:
            recorded, _ = record.read_or_fault(path)
            if recorded:
                yield recorded


def _requests(folder: CampaignFolder) -> Iterator[Asked]:
    with suppress(CampaignError):  # there is no campaign.json yet, or it is damaged: the records have terms
        yield from existing(folder.root)[1]["requests"]
