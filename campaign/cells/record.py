"""What one cell leaves on disk; the only bridge to the analysis (schema 1, held by a contract test)."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from campaign.cells.cell import Cell
from campaign.errors import EnvironmentFaultError
from jobs.benchmarks import registry
from jobs.model import reading
from jobs.model.codes import End
from jobs.model.record import SCHEMA, Data, Record, Submission
from jobs.model.results import Addition, Role, Run
from jobs.model.terms import Terms
from jobs.system import files, untrusted
from jobs.system.clock import utc_now
from jobs.system.durable import keep_trying
from jobs.system.files import write_json

_CURE = "restore it, or move it away"


class RecordError(EnvironmentFaultError):
    """There is a record that cannot be used."""


class DamagedRecordError(RecordError):
    """The file is there and is no record, or what it says cannot be used."""


class NewerRecordError(RecordError):
    """The record is of a newer schema."""


class UnreadableRecordError(RecordError):
    """The file system does not give it: it may be good, and is not to be replaced."""


def read(path: Path) -> Record | None:
    """Read a record; None where there is none. One that cannot be used raises a `RecordError`, and is left as it is."""
    try:
        record = _read(path)
    except untrusted.UntrustedError as error:
        raise DamagedRecordError(f"{path} is damaged: {error}", _CURE) from error
    except reading.NewerFileError as error:
        raise NewerRecordError(
            f"{path} was written by a newer version (schema {error.schema}, this one knows {SCHEMA})",
            "update tfio-campaign, or use another folder: campaign_dir=…",
        ) from error
    if record and (cell := record["cell"]["id"]) != path.parent.name:
        raise DamagedRecordError(f"{path} is damaged: it is of the cell {cell}", _CURE)
    return record


def read_or_fault(path: Path) -> tuple[Record | None, str | None]:
    """Read a record without raising: the record, or None and what is wrong with it, if anything."""
    try:
        return read(path), None
    except RecordError as error:
        return None, error.message


def stamp(path: Path) -> files.Stamp | None:
    """Return the stamp of a record; None where it cannot be opened."""
    try:
        return files.stamp(path)
    except OSError:
        return None


def _read(path: Path, *, again: bool = True) -> Record | None:
    """Read the file, None where there is none; an NFS client's cache of it is not trusted."""
    try:
        return reading.read(path, Record, SCHEMA)
    except OSError as error:
        if again and error.errno in (errno.ENOENT, errno.ESTALE):
            for folder in (path.parent.parent, path.parent):
                # Only then an NFS client asks whether another node has made or replaced it.
                with contextlib.suppress(OSError):
                    os.scandir(folder).close()
            return _read(path, again=False)
        if error.errno == errno.ENOENT:
            return None
        hint = "repair the file system or the file's mode; the record is left as it is"
        raise UnreadableRecordError(f"cannot read {path}: {error.strerror}", hint) from error


def write(path: Path, record: Record, patience_s: float = 0.0, check: Callable[[], None] = lambda: None) -> None:
    """Write a record, whole and durably.

    A file system that is full, read-only or away for a while is waited for, at most `patience_s`: what was measured is
    in memory only. The campaign folder is not made anew; before each try `check` may raise what ends the waiting.
    """

    def put() -> None:
        check()
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, record)

    keep_trying(put, patience_s)


def new(cell: Cell, campaign: Submission, dataset: Data, terms: Terms) -> Record:
    """Make the record of a cell that has no run yet."""
    benchmark = registry.of(cell.settings)
    figure = benchmark.figure_of(cell.settings["benchmark"])
    return {
        "schema": SCHEMA,
        "cell": {
            "id": cell.id,
            "benchmark": cell.benchmark,
            "benchmark_version": cell.version,
            "kind": benchmark.kind,
            "page_cache": benchmark.page_cache(cell.settings),
            "data": benchmark.data,
            "figure": figure.key,
            "unit": figure.unit,
            "better": figure.better,
            "settings": cell.settings,
        },
        "campaign": {**campaign},
        "dataset": {**dataset},
        "provenance": {},
        "terms": terms,
        "sittings": [],
        "runs": [],
        "status": "running",
    }


def begin_run(record: Record, role: Role, token: str, added: Addition | None = None, pair: int | None = None) -> Run:
    """Append a run: its number, role and submission (`token`) are written when it starts, never inferred.

    `added` is why there are more than were asked for (`jobs.judging.stopping.reason_to_add`), `pair` the number of
    its pair (`jobs.judging.paired`).
    """
    number = 1 + max((run["run"] for run in record["runs"]), default=-1)
    run: Run = {"run": number, "role": role, "status": "running", "started_utc": utc_now()}
    run["token"] = token
    if added:
        run["added"] = added
    if pair is not None:
        run["pair"] = pair
    record["runs"].append(run)
    record["status"], record["waits_for"] = "running", None
    return run


def fail_open_runs(record: Record, end: End) -> None:
    """Mark runs that a worker left open when it ended: they are lost, and say so."""
    for run in record["runs"]:
        if run["status"] == "running":
            run["status"], run["end"] = "failed", end
