"""Judge the records of a campaign folder when they are read, and remember summaries of them (``summaries.json``).

No verdict is stored. The summaries are a cache: to judge 10,000 records takes seconds, and few of them change between
two commands. A summary counts only if nothing that it was made of has changed: the record and every baseline by their
stamps, the terms of the cell and of the baselines, and the source of this program. A fault of the file is no error: the
records are read without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypedDict

import msgspec

from campaign.cells import record
from campaign.cells.folder import CampaignFolder, open_existing
from campaign.errors import CampaignError
from jobs.judging import judge, peaks
from jobs.judging.bound import Bound
from jobs.judging.judge import CampaignJudge, UnusableRecordError
from jobs.judging.peaks import Peaks
from jobs.model.codes import CellState
from jobs.model.reading import Count, Word
from jobs.model.record import ODD_FIGURES, Asked, Record, Terms
from jobs.system import files, untrusted
from jobs.system.files import Stamp

_CURE = "restore it, or redo=true"


@contextmanager
def require_usable(path: Path) -> Iterator[None]:
    """Raise DamagedRecordError if the code inside finds that the record at `path` lacks values, metrics say."""
    try:
        yield
    except ODD_FIGURES as error:
        raise record.DamagedRecordError(f"{path} is damaged inside: {error!r}", _CURE) from error


class Verdicts:
    """The judge of one campaign folder, which reads its baselines once (`jobs.judging.judge`).

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
        given_requests = _requests_of(folder) if requests is None else requests
        self._judge = CampaignJudge(given_requests, self._baselines(), terms, cells)

    def judged(self, recorded: Record) -> Record:
        """Return a record with its verdicts; raises DamagedRecordError for one that cannot be judged, or be true."""
        try:
            return self._judge.judged(recorded)
        except UnusableRecordError as error:
            path = self.folder.record(recorded["cell"]["id"])
            raise record.DamagedRecordError(f"{path} is damaged: it {error}", _CURE) from error

    def bound(self, recorded: Record) -> Bound | None:
        """Return what bounds the cell of a judged record; None for a baseline, or if its runs do not show it."""
        return self._judge.bound(recorded)

    def read(self, path: Path) -> tuple[Record | None, str | None]:
        """Return the judged record, or None and the message of its fault, if it has one; raises nothing."""
        try:
            recorded = record.read_record(path)
            return recorded and self.judged(recorded), None
        except record.RecordError as error:
            return None, error.message

    @property
    def peaks(self) -> Peaks:
        """Return the peaks of the storages by the baselines that are done."""
        return self._judge.peaks

    @cached_property
    def stamps(self) -> dict[Path, files.Stamp | None]:
        """Return the stamps of the baselines' records, taken before any of them is read."""
        folders = self.folder.records.iterdir() if self.folder.records.is_dir() else ()
        paths = sorted(folder / "record.json" for folder in folders if peaks.is_of_baseline(folder.name))
        return {path: record.stamp_of(path) for path in paths}

    def _baselines(self) -> Iterator[Record]:
        for path in self.stamps:
            recorded, _ = record.read_or_fault(path)
            if recorded:
                yield recorded


def _requests_of(folder: CampaignFolder) -> Iterator[Asked]:
    with suppress(CampaignError):  # there is no campaign.json yet, or it is damaged: the records have terms
        yield from open_existing(folder.root)[1]["requests"]


FILE = "summaries.json"
FEWEST_NEW = 500  # summaries that are not in the file: to make so many takes a quarter of a second
# A file that was written so shortly before it was looked at may be written again with the same stamp.
_SETTLED_NS = 2 * 10**9
_ROOMS = ("campaign", "jobs")


class Summary(NamedTuple):
    """The judged content of a cell's record in short; the default stands for a cell without a record."""

    state: CellState = CellState.PLANNED
    reason: str | None = None
    token: str | None = None  # of the submission that wrote it
    valid: Count = 0  # measured runs
    measured: Count = 0
    emulated: tuple[Word, ...] = ()  # its storages that were


class _Entry(NamedTuple):
    """The summary of one cell, and the inputs that it was made of."""

    stamp: Stamp
    terms: Word
    summary: Summary


class _SummaryFile(TypedDict):
    """The content of the file; `of` is a digest of the inputs that all summaries share."""

    of: Word
    cells: dict[Word, _Entry]


class Summaries:
    """The remembered summaries of one campaign folder.

    It takes the stamps of all records when it is made: a record that is written later is not taken for its summary.
    """

    def __init__(self, folder: CampaignFolder, requests: Sequence[Asked]) -> None:
        self._folder, self._now_ns = folder, time.time_ns()
        self._stamps: Mapping[str, Stamp] = {}
        with suppress(OSError):
            self._stamps = files.stamps(folder.records, "record.json")
        self._terms = judge.last_terms(requests)
        self._digests: dict[int, str] = {}
        self._baselines = sorted(filter(peaks.is_of_baseline, self._stamps))
        self._basis = _hash_json(
            [_program_state(), [(cell, self._stamps[cell], self._terms_digest(cell)) for cell in self._baselines]]
        )
        self._entries = self._read()
        self._new: dict[str, Summary] = {}

    def of(self, cell: str) -> Summary | None:
        """Return the summary of a cell's record if it is remembered and still valid; else None."""
        entry = self._entries.get(cell)
        if entry is None or entry.stamp != self._stamps.get(cell) or entry.terms != self._terms_digest(cell):
            return None
        return entry.summary

    def remember(self, cell: str, summary: Summary) -> None:
        """Remember a summary that was made of the record after this object was made."""
        self._new[cell] = summary

    def save(self) -> None:
        """Write the file if enough summaries are new, the folder is this user's, and it can be written."""
        if len(self._new) < FEWEST_NEW or not all(map(self._is_settled, self._baselines)):
            return
        valid_entries = {cell: self._entries[cell] for cell in self._stamps if cell in self._entries and self.of(cell)}
        new = {
            cell: _Entry(self._stamps[cell], self._terms_digest(cell), summary)
            for cell, summary in self._new.items()
            if self._is_settled(cell)
        }
        with suppress(OSError, ValueError):  # ValueError: half a pair of surrogates, which is no text in a file
            if not files.distrust(self._folder.root):
                files.write_json(
                    self._folder.root / FILE, {"of": self._basis, "cells": valid_entries | new}, indent=None
                )

    def _read(self) -> Mapping[str, _Entry]:
        try:
            content = files.read(self._folder.root / FILE, untrusted.MOST_BYTES_OF_JSON, os.geteuid())
            content_of_file = msgspec.convert(untrusted.json_value(content), _SummaryFile)
        except (OSError, ValueError):
            return {}
        return content_of_file["cells"] if content_of_file["of"] == self._basis else {}

    def _is_settled(self, cell: str) -> bool:
        """Return whether a record was written long enough ago that its stamp identifies it."""
        stamp = self._stamps.get(cell)
        return stamp is not None and self._now_ns - max(stamp.modified_ns, stamp.changed_ns) >= _SETTLED_NS

    def _terms_digest(self, cell: str) -> str:
        """Return a digest of the terms that were asked for; empty for those of the record."""
        terms: Terms | None = self._terms.get(cell)
        if terms is None:
            return ""
        if id(terms) not in self._digests:  # they are one object for all cells of a request
            self._digests[id(terms)] = _hash_json(terms)
        return self._digests[id(terms)]


def _hash_json(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@cache
def _program_state() -> list[tuple[str, int, int]]:
    """Return name, size and time of each module of this program: another version may judge otherwise.

    They are those at the first call: what is changed on disk later is not what this process runs.
    """
    top = Path(__file__).parents[2]
    modules = sorted(path for room in _ROOMS for path in (top / room).rglob("*.py"))
    return [(str(path), status.st_size, status.st_mtime_ns) for path in modules if (status := path.stat())]
