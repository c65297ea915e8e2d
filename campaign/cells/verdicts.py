"""Judge the records of a campaign folder when they are read, and cache summaries of the records (``summaries.json``).

Records contain no verdicts. Judging 10,000 records takes seconds, and few records change between two commands, so
summaries are cached. A summary is valid only if none of its inputs has changed: the record and all baselines (by their
stamps), the terms of the cell and of the baselines, and the source code of this program. If ``summaries.json`` is
damaged, the records are read instead.
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
from jobs.model.record import ODD_FIGURES, Record, RecordedCall, Terms
from jobs.system import files, untrusted
from jobs.system.files import Stamp

_CURE = "restore the record from a backup, or measure the cell again with redo=true"


@contextmanager
def require_usable(path: Path) -> Iterator[None]:
    """Raise DamagedRecordError if the code inside finds that the record at `path` lacks values, for example metrics."""
    try:
        yield
    except ODD_FIGURES as error:
        raise record.DamagedRecordError(f"{path} is damaged inside: {error!r}", _CURE) from error


class Verdicts:
    """Judges the records of one campaign folder (`jobs.judging.judge`), and reads the baselines only once.

    `requests` are the requests of the campaign, by default the requests in ``campaign.json``.
    """

    def __init__(
        self,
        folder: CampaignFolder,
        terms: Terms | None = None,
        cells: Collection[str] = (),
        requests: Sequence[RecordedCall] | None = None,
    ) -> None:
        self.folder = folder
        all_requests = _requests_of(folder) if requests is None else requests
        self._judge = CampaignJudge(all_requests, self._baselines(), terms, cells)

    def judge(self, recorded: Record) -> Record:
        """Return a record with the verdicts on its runs and its cell.

        Raises DamagedRecordError if the record cannot be judged or contradicts itself.
        """
        try:
            return self._judge.judge(recorded)
        except UnusableRecordError as error:
            path = self.folder.record(recorded["cell"]["id"])
            raise record.DamagedRecordError(f"{path} is damaged: it {error}", _CURE) from error

    def bound(self, recorded: Record) -> Bound | None:
        """Return what limits the speed of a judged cell, or None for a baseline or if the runs do not show a limit."""
        return self._judge.bound(recorded)

    def read(self, path: Path) -> tuple[Record | None, str | None]:
        """Return the judged record in a file, or None if there is no such file; the second value is None.

        If the record cannot be used, the first value is None and the second value is the error message.
        """
        try:
            recorded = record.read_record(path)
            return recorded and self.judge(recorded), None
        except record.RecordError as error:
            return None, error.message

    @property
    def peaks(self) -> Peaks:
        """Return the largest speeds of the storages, as measured by the finished baselines."""
        return self._judge.peaks

    @cached_property
    def stamps(self) -> dict[Path, files.Stamp | None]:
        """Return the stamps of the baselines' record files, taken before the first of these files is read."""
        folders = self.folder.records.iterdir() if self.folder.records.is_dir() else ()
        paths = sorted(folder / "record.json" for folder in folders if peaks.is_baseline_id(folder.name))
        return {path: record.record_stamp(path) for path in paths}

    def _baselines(self) -> Iterator[Record]:
        for path in self.stamps:
            recorded, _ = record.read_or_fault(path)
            if recorded:
                yield recorded


def _requests_of(folder: CampaignFolder) -> Iterator[RecordedCall]:
    with suppress(CampaignError):  # without a usable campaign.json, each record is judged by its own terms
        yield from open_existing(folder.root)[1]["requests"]


FILE = "summaries.json"
FEWEST_NEW = 500  # new summaries from which on the file is written; making 500 summaries takes a quarter of a second
# Age from which the stamp of a file is reliable: a younger file may change again and still have the same stamp.
_SETTLED_NS = 2 * 10**9
_ROOMS = ("campaign", "jobs")


class Summary(NamedTuple):
    """A summary of a cell's judged record; the default values describe a cell without a record."""

    state: CellState = CellState.PLANNED
    reason: str | None = None
    token: str | None = None  # token of the submission that wrote the record
    valid: Count = 0  # number of valid measured runs
    measured: Count = 0  # number of measured runs
    emulated: tuple[Word, ...] = ()  # names of the cell's emulated storages


class _Entry(NamedTuple):
    """The summary of one cell, and the inputs from which the summary was made."""

    stamp: Stamp
    terms: Word
    summary: Summary


class _SummaryFile(TypedDict):
    """The content of ``summaries.json``; `of` is a digest of the inputs that all summaries share."""

    of: Word
    cells: dict[Word, _Entry]


class Summaries:
    """The cached summaries of one campaign folder.

    The stamps of all records are taken when the object is made, so that a record written later has no valid summary.
    """

    def __init__(self, folder: CampaignFolder, requests: Sequence[RecordedCall]) -> None:
        self._folder, self._now_ns = folder, time.time_ns()
        self._stamps: Mapping[str, Stamp] = {}
        with suppress(OSError):
            self._stamps = files.file_stamps(folder.records, "record.json")
        self._terms = judge.last_terms(requests)
        self._digests: dict[int, str] = {}
        self._baselines = sorted(filter(peaks.is_baseline_id, self._stamps))
        self._basis = _hash_json(
            [_program_state(), [(cell, self._stamps[cell], self._terms_digest(cell)) for cell in self._baselines]]
        )
        self._entries = self._read()
        self._new: dict[str, Summary] = {}

    def cached_summary(self, cell: str) -> Summary | None:
        """Return the cached summary of a cell's record, or None if the cache has no valid summary."""
        entry = self._entries.get(cell)
        if entry is None or entry.stamp != self._stamps.get(cell) or entry.terms != self._terms_digest(cell):
            return None
        return entry.summary

    def remember(self, cell: str, summary: Summary) -> None:
        """Add a new summary of a record that was read after this object was created."""
        self._new[cell] = summary

    def save(self) -> None:
        """Write ``summaries.json`` if enough summaries are new and the folder belongs to this user.

        Write errors are ignored, because the file is only a cache.
        """
        if len(self._new) < FEWEST_NEW or not all(map(self._is_settled, self._baselines)):
            return
        valid_entries = {
            cell: self._entries[cell] for cell in self._stamps if cell in self._entries and self.cached_summary(cell)
        }
        new = {
            cell: _Entry(self._stamps[cell], self._terms_digest(cell), summary)
            for cell, summary in self._new.items()
            if self._is_settled(cell)
        }
        with suppress(OSError, ValueError):  # ValueError: a lone surrogate cannot be written as UTF-8
            if not files.reason_to_distrust(self._folder.root):
                files.write_json(
                    self._folder.root / FILE, {"of": self._basis, "cells": valid_entries | new}, indent=None
                )

    def _read(self) -> Mapping[str, _Entry]:
        try:
            content = files.read_file(self._folder.root / FILE, untrusted.MOST_BYTES_OF_JSON, os.geteuid())
            content_of_file = msgspec.convert(untrusted.json_value(content), _SummaryFile)
        except (OSError, ValueError):
            return {}
        return content_of_file["cells"] if content_of_file["of"] == self._basis else {}

    def _is_settled(self, cell: str) -> bool:
        """Return whether a record is old enough that its stamp identifies the content of the file."""
        stamp = self._stamps.get(cell)
        return stamp is not None and self._now_ns - max(stamp.modified_ns, stamp.changed_ns) >= _SETTLED_NS

    def _terms_digest(self, cell: str) -> str:
        """Return a digest of the terms that a request sets for a cell; empty if the record's own terms apply."""
        terms: Terms | None = self._terms.get(cell)
        if terms is None:
            return ""
        if id(terms) not in self._digests:  # all cells of a request share one object
            self._digests[id(terms)] = _hash_json(terms)
        return self._digests[id(terms)]


def _hash_json(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@cache
def _program_state() -> list[tuple[str, int, int]]:
    """Return path, size and time of each module of this program, because another version may judge differently.

    The result is cached, because this process keeps its loaded modules even if files change on disk later.
    """
    top = Path(__file__).parents[2]
    modules = sorted(path for room in _ROOMS for path in (top / room).rglob("*.py"))
    return [(str(path), status.st_size, status.st_mtime_ns) for path in modules if (status := path.stat())]
