"""What the records of a campaign folder come to, remembered from one command to the next: ``summaries.json``.

It is a cache, and no verdict that anybody stores or believes: to judge 10,000 records takes seconds, and next to none
of them changes between two looks. A summary is taken from it only if all that it was made of is as it was: the record
and every baseline by their stamps, the terms of the cell and of the baselines, and the source of this program. Whatever
is wrong with the file, or keeps it from being written, is no error: the records are read as without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypedDict

import msgspec

from campaign.cells.folder import CampaignFolder
from jobs.judging import judge, peaks
from jobs.model.codes import CellState
from jobs.model.record import Asked
from jobs.model.terms import Terms
from jobs.model.values import Count, Word
from jobs.system import files, untrusted
from jobs.system.files import Stamp

FILE = "summaries.json"
WORTH = 500  # summaries that are not in the file: to make so many takes a quarter of a second
# A file that was written so shortly before it was looked at may be written again with the same stamp.
_SETTLED_NS = 2 * 10**9
_ROOMS = ("campaign", "jobs")


class Summary(NamedTuple):
    """What the record of a cell says, judged; by default there is none."""

    state: CellState = CellState.PLANNED
    reason: str | None = None
    token: str | None = None  # of the submission that wrote it
    valid: Count = 0  # measured runs
    measured: Count = 0
    emulated: tuple[Word, ...] = ()  # its storages that were


class _Entry(NamedTuple):
    """Of one cell: what its summary was made of, and the summary."""

    stamp: Stamp
    terms: Word
    summary: Summary


class _Kept(TypedDict):
    """The content of the file; `of` is a digest of what each summary follows from beside its record and its terms."""

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
        self._of = _hashed([_source(), [(cell, self._stamps[cell], self._digest(cell)) for cell in self._baselines]])
        self._kept = self._read()
        self._new: dict[str, Summary] = {}

    def of(self, cell: str) -> Summary | None:
        """Return the summary of a cell's record if it is remembered and holds."""
        entry = self._kept.get(cell)
        if entry is None or entry.stamp != self._stamps.get(cell) or entry.terms != self._digest(cell):
            return None
        return entry.summary

    def remember(self, cell: str, summary: Summary) -> None:
        """Take a summary that was made of the record since this object was."""
        self._new[cell] = summary

    def save(self) -> None:
        """Write the file if enough summaries are new, the folder is this user's, and it can be written."""
        if len(self._new) < WORTH or not all(map(self._is_settled, self._baselines)):
            return
        kept = {cell: self._kept[cell] for cell in self._stamps if cell in self._kept and self.of(cell)}
        new = {
            cell: _Entry(self._stamps[cell], self._digest(cell), summary)
            for cell, summary in self._new.items()
            if self._is_settled(cell)
        }
        with suppress(OSError, ValueError):  # ValueError: half a pair of surrogates, which is no text in a file
            if not files.distrust(self._folder.root):
                files.write_json(self._folder.root / FILE, {"of": self._of, "cells": kept | new}, indent=None)

    def _read(self) -> Mapping[str, _Entry]:
        try:
            content = files.read(self._folder.root / FILE, untrusted.MOST_BYTES_OF_JSON, os.geteuid())
            kept = msgspec.convert(untrusted.json_value(content), _Kept)
        except (OSError, ValueError):
            return {}
        return kept["cells"] if kept["of"] == self._of else {}

    def _is_settled(self, cell: str) -> bool:
        stamp = self._stamps.get(cell)
        return stamp is not None and self._now_ns - max(stamp.modified_ns, stamp.changed_ns) >= _SETTLED_NS

    def _digest(self, cell: str) -> str:
        """Return a digest of the terms that were asked for; empty for those of the record."""
        terms: Terms | None = self._terms.get(cell)
        if terms is None:
            return ""
        if id(terms) not in self._digests:  # they are one object for all cells of a request
            self._digests[id(terms)] = _hashed(terms)
        return self._digests[id(terms)]


def _hashed(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _source() -> list[tuple[str, int, int]]:
    """Return name, size and time of the modules of this program, which judges otherwise where one has changed."""
    top = Path(__file__).parents[2]
    modules = sorted(path for room in _ROOMS for path in (top / room).rglob("*.py"))
    return [(str(path), status.st_size, status.st_mtime_ns) for path in modules if (status := path.stat())]
