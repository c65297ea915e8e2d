"""Read and write ``record.json``, the record of one cell, which the analysis reads."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from campaign.cells.cell import Cell
from campaign.errors import EnvironmentFaultError, environment_fault
from jobs.benchmarks import registry
from jobs.model import reading
from jobs.model.codes import End
from jobs.model.record import SCHEMA, Data, Record, Submission, Terms
from jobs.model.results import ReasonOfAddedRun, Role, Run
from jobs.system import files, untrusted
from jobs.system.clock import utc_now
from jobs.system.files import keep_trying, write_json

_CURE = "restore the record from a backup, or move it away"


class RecordError(EnvironmentFaultError):
    """Raised for a record that cannot be used."""


class DamagedRecordError(RecordError):
    """Raised for a file that is no record or has wrong content."""


class NewerRecordError(RecordError):
    """Raised for a record with a newer schema than this version of the program can read."""


class UnreadableRecordError(RecordError):
    """Raised if the file system cannot read the record, which may be intact and must not be replaced."""


def read_record(path: Path) -> Record | None:
    """Return the record in a file, or None if there is no such file. Never change the file.

    Raises RecordError if the record cannot be used.
    """
    try:
        record = _read_file(path)
    except untrusted.UntrustedError as error:
        raise DamagedRecordError(f"{path} is damaged: {error}", _CURE) from error
    except reading.NewerFileError as error:
        raise NewerRecordError(
            f"{path} was written by a newer version (schema {error.schema}, this version reads {SCHEMA})",
            "update tfio-campaign, or use another folder: campaign_dir=…",
        ) from error
    if record and (cell := record["cell"]["id"]) != path.parent.name:
        raise DamagedRecordError(f"{path} is damaged: it is the record of another cell, {cell}", _CURE)
    return record


def read_or_fault(path: Path) -> tuple[Record | None, str | None]:
    """Return the record in a file, or None if there is no such file; the second value is None.

    If the record cannot be used, the first value is None and the second value is the error message.
    """
    try:
        return read_record(path), None
    except RecordError as error:
        return None, error.message


def record_stamp(path: Path) -> files.Stamp | None:
    """Return the stamp (size, times, inode) of a record file, or None if the file cannot be opened."""
    try:
        return files.file_stamp(path)
    except OSError:
        return None


def _read_file(path: Path, *, retry: bool = True) -> Record | None:
    """Return the content of a record file, or None if there is no file.

    With `retry`, try again after an NFS client has been made to renew its cache.
    """
    try:
        return reading.read_json(path, Record, SCHEMA)
    except OSError as error:
        if retry and error.errno in (errno.ENOENT, errno.ESTALE):
            for folder in (path.parent.parent, path.parent):
                # Opening a folder makes an NFS client ask the server for files that another node has written there.
                with contextlib.suppress(OSError):
                    os.scandir(folder).close()
            return _read_file(path, retry=False)
        if error.errno == errno.ENOENT:
            return None
        cure = "" if error.errno == errno.EACCES else "repair the file system; the record is not changed"
        fault = environment_fault(error, f"cannot read {path}", cure)
        raise UnreadableRecordError(fault.message, fault.hint) from error


def write_record(path: Path, record: Record, patience_s: float = 0.0, check: Callable[[], None] = lambda: None) -> None:
    """Write a record atomically and durably.

    If the file system is full, read-only or unreachable, try again for at most `patience_s`, because the measured
    values exist only in memory. Before each try, `check` may raise an error to end the waiting. The campaign folder
    must exist.
    """

    def put() -> None:
        check()
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, record)

    keep_trying(put, patience_s)


def make_record(cell: Cell, campaign: Submission, dataset: Data, terms: Terms) -> Record:
    """Return a new record of a cell, without runs."""
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
    """Append a run that starts now to a record, and return the run.

    `token` identifies the submission. `added` is the reason why the campaign adds the run
    (`jobs.judging.stopping.reason_to_add`). `pair` is the number of the pair of runs to which the run belongs
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
    """Mark the runs of a record as failed that were still running when their worker ended."""
    for run in record["runs"]:
        if run["status"] == "running":
            run["status"], run["end"] = "failed", end
