"""Read and write ``record.json``, the record of one cell, which the analysis reads."""

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
from jobs.model.record import SCHEMA, Data, Record, Submission, Terms
from jobs.model.results import ReasonOfAddedRun, Role, Run
from jobs.system import files, untrusted
from jobs.system.clock import utc_now
from jobs.system.files import keep_trying, write_json

_CURE = "restore it, or move it away"


class RecordError(EnvironmentFaultError):
    """Raised for a record that cannot be used."""


class DamagedRecordError(RecordError):
    """Raised for a file that is no record or has wrong content."""


class NewerRecordError(RecordError):
    """Raised for a record of a newer schema."""


class UnreadableRecordError(RecordError):
    """Raised if the file system cannot read the record: it may be intact, and must not be replaced."""


def read_record(path: Path) -> Record | None:
    """Return a record, None if there is none; raise RecordError if it cannot be used. The file is not changed."""
    try:
        record = _read_file(path)
    except untrusted.UntrustedError as error:
        raise DamagedRecordError(f"{path} is damaged: {error}", _CURE) from error
    except reading.NewerFileError as error:
        raise NewerRecordError(
            f"{path} was written by a newer version (schema {error.schema}, this one knows {SCHEMA})",
            "update tfio-campaign, or use another folder: campaign_dir=…",
        ) from error
    if record and (cell := record["cell"]["id"]) != path.parent.name:
        raise DamagedRecordError(f"{path} is damaged: it is the record of the cell {cell}", _CURE)
    return record


def read_or_fault(path: Path) -> tuple[Record | None, str | None]:
    """Return the record and None; if it cannot be used, None and the error message; if there is none, None twice."""
    try:
        return read_record(path), None
    except RecordError as error:
        return None, error.message


def record_stamp(path: Path) -> files.Stamp | None:
    """Return the stamp of a record; None if it cannot be opened."""
    try:
        return files.file_stamp(path)
    except OSError:
        return None


def _read_file(path: Path, *, retry: bool = True) -> Record | None:
    """Return the content of a record, None if there is none; `retry` if an NFS client's cache may be old."""
    try:
        return reading.read_json(path, Record, SCHEMA)
    except OSError as error:
        if retry and error.errno in (errno.ENOENT, errno.ESTALE):
            for folder in (path.parent.parent, path.parent):
                # Makes an NFS client ask whether another node has made or replaced it.
                with contextlib.suppress(OSError):
                    os.scandir(folder).close()
            return _read_file(path, retry=False)
        if error.errno == errno.ENOENT:
            return None
        hint = "repair the file system or the file's mode; the record is not changed"
        raise UnreadableRecordError(f"cannot read {path}: {error.strerror}", hint) from error


def write_record(path: Path, record: Record, patience_s: float = 0.0, check: Callable[[], None] = lambda: None) -> None:
    """Write a record, whole and durably.

    Waits at most `patience_s` for a file system that is full, read-only or away: the measured values are only in
    memory. The campaign folder is not created. Before each try `check` may raise an error to end the waiting.
    """

    def put() -> None:
        check()
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, record)

    keep_trying(put, patience_s)


def make_record(cell: Cell, campaign: Submission, dataset: Data, terms: Terms) -> Record:
    """Return the record of a cell that has no run yet."""
    benchmark = registry.benchmark_of(cell.settings)
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


def begin_run(
    record: Record, role: Role, token: str, added: ReasonOfAddedRun | None = None, pair: int | None = None
) -> Run:
    """Append a run that starts now to a record and return it; `token` identifies the submission.

    `added`: why the campaign adds the run (`jobs.judging.stopping.reason_to_add`); `pair`: the number of its pair
    (`jobs.judging.stopping`).
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
    """Mark runs as failed that are still open after the end of their worker."""
    for run in record["runs"]:
        if run["status"] == "running":
            run["status"], run["end"] = "failed", end
