"""Find, read and judge the records of a campaign. A record that cannot be read is reported and skipped.

The files may come from another person, so they are read with the checks of `jobs.model.reading`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from analysis.errors import AnalysisError
from analysis.processes import garbage_collection_off, spread_jobs
from analysis.records.record import Record, record_of
from jobs.judging import peaks
from jobs.judging.judge import CampaignJudge, UnusableRecordError
from jobs.model import reading
from jobs.model.record import SCHEMA, Manifest, RecordedCall
from jobs.model.record import Record as Stored
from jobs.system import untrusted

RUN_AGAIN = "copy the file again from the machine of the campaign, or delete its folder and run the campaign again"

_Kind = TypeVar("_Kind")


class UnreadableError(Exception):
    """An error for a file that cannot be read or has invalid content; `cure` tells the user what to do."""

    def __init__(self, why: str, cure: str = RUN_AGAIN) -> None:
        super().__init__(why)
        self.cure = cure


class AbsentError(UnreadableError):
    """An error for a file that does not exist."""


def read_content(path: Path, most: int) -> bytes:
    """Return the content of a regular file.

    Raises UnreadableError if the path is no regular file, or if the file has more than `most` bytes.
    """
    return _with_cure(lambda place: untrusted.read_bounded(place, most), path)


def load_json(path: Path, kind: type[_Kind]) -> _Kind:
    """Return the content of a JSON file as an object of type `kind`.

    Raises UnreadableError if the file is invalid, or if a newer version of this program wrote the file.
    """
    return _with_cure(lambda place: reading.read_json(place, kind, SCHEMA), path)


def _without_links(read: Callable[[Path], _Kind], path: Path) -> _Kind:
    """Return the result of `read` for the path.

    The folders of the path may be symbolic links, which are resolved. The file itself must be no symbolic link.
    """
    try:
        return read(path)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return read(Path(os.path.realpath(path.parent), path.name))


def _with_cure(read: Callable[[Path], _Kind], path: Path) -> _Kind:
    """Return the result of `read` for the path; raise UnreadableError with a cure for each error that `read` raises."""
    try:
        return _without_links(read, path)
    except FileNotFoundError as error:
        raise AbsentError("does not exist") from error
    except OSError as error:
        raise UnreadableError(error.strerror or type(error).__name__, "make the file readable for you") from error
    except reading.NewerFileError as error:
        why = f"is of {error}; this program knows schema {SCHEMA}"
        raise UnreadableError(why, "analyse the file with the newer version of tfio-campaign") from error
    except untrusted.UntrustedError as error:
        raise UnreadableError(f"is damaged: {error}") from error


FILE, CAMPAIGN = "record.json", "campaign.json"


def _requests_of(home: Path) -> tuple[Sequence[RecordedCall], UnreadableError | None]:
    """Return the requests in ``campaign.json`` of a campaign folder, and the error if the file cannot be read.

    Without requests, each record is judged by the check thresholds that it has. A missing ``campaign.json`` is no
    error, because a user may have copied only the records.
    """
    try:
        return load_json(home / CAMPAIGN, Manifest)["requests"], None
    except AbsentError:
        return (), None
    except UnreadableError as error:
        return (), error


def read_judged(path: Path, judge: CampaignJudge) -> Stored:
    """Return the judged content of a record file.

    Raises UnreadableError if the file cannot be read, contradicts itself, or lacks the check thresholds.
    """
    try:
        return judge.judge(load_json(path, Stored))
    except UnusableRecordError as error:
        raise UnreadableError(str(error)) from error


def _baselines(folders: Sequence[Path]) -> Iterator[Stored]:
    for folder in folders:
        if peaks.is_baseline_id(folder.name) and not folder.is_symlink():
            with suppress(UnreadableError):  # `_read` reads all records later and reports the error
                yield load_json(folder / FILE, Stored)


# A process reads `AT_ONCE` records per job. Helper processes make reading faster if there are at least
# `WORTH_PROCESSES` jobs.
AT_ONCE, WORTH_PROCESSES = 250, 4


@dataclass(frozen=True)
class SkippedRecord:
    """The path of a record that was skipped, with the reason (`why`) and the cure for the user."""

    path: Path
    why: str
    cure: str


@dataclass(frozen=True)
class FoundRecords:
    """The records of a folder sorted by cell id, the skipped records, and the judge that judged the records.

    `home` is the default folder for the output files. `requested` has the ids of all cells that the requests
    in ``campaign.json`` name. `missing` has those without a record, which were not measured yet or whose record was
    removed.
    """

    records: tuple[Record, ...]
    skipped: tuple[SkippedRecord, ...]
    home: Path
    judge: CampaignJudge = field(default_factory=CampaignJudge, compare=False)
    requested: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def read_records(folder: Path, meanwhile: Callable[[], object] = lambda: None) -> FoundRecords:
    """Read every record of a campaign folder, a records folder or the folder of one record.

    Parameters
    ----------
    folder
        The folder of the records.
    meanwhile
        A function that this process calls before it reads records. Helper processes already read records meanwhile.

    Raises
    ------
    AnalysisError
        If the folder does not exist or has no record.
    """
    folders, home = locate_records(folder)
    with garbage_collection_off():
        campaign, all_folders = _campaign(home, folders)
        requests, fault = _requests_of(campaign)
        judge = CampaignJudge(requests, _baselines(all_folders))
        _ = judge.peaks  # computes the cached peaks here once, before the judge is sent to other processes
        jobs = [folders[start : start + AT_ONCE] for start in range(0, len(folders), AT_ONCE)]
        good: list[tuple[Path, Record]] = []
        skipped = [*_unread(fault, home)]
        with spread_jobs(partial(_read, home=home, judge=judge), jobs, WORTH_PROCESSES) as results:
            meanwhile()
            for some, others in results:
                good += some
                skipped += others
        records, copies = drop_copies(good)
    requested = {cell for request in requests for cell in request.get("cells", ())} if campaign == home else set()
    missing = requested - {each.name for each in folders}
    return FoundRecords(records, (*skipped, *copies), home, judge, tuple(sorted(requested)), tuple(sorted(missing)))


def _campaign(home: Path, folders: Sequence[Path]) -> tuple[Path, list[Path]]:
    """Return the folder of the campaign and the folders of all records of the campaign.

    If the user named the folder of one record, all records of its campaign are returned too.
    """
    around = home.absolute().parent
    if folders == [home] and around.name == "records" and not home.is_symlink():
        return around.parent, _with_records(around)
    return home, [*folders]


def _unread(fault: UnreadableError | None, home: Path) -> Iterator[SkippedRecord]:
    """Yield a `SkippedRecord` for ``campaign.json`` if it could not be read."""
    if fault:
        why = f"{fault}: each cell is judged by the limits of its last worker"
        cure = "copy the file again from the machine of the campaign, or move it away"
        yield SkippedRecord(home / CAMPAIGN, why, cure)


def _read(
    folders: Sequence[Path], home: Path, judge: CampaignJudge
) -> tuple[list[tuple[Path, Record]], list[SkippedRecord]]:
    """Return the records in these folders with their paths, and a `SkippedRecord` for each unreadable record."""
    good, skipped = [], []
    for folder in folders:
        path = folder / FILE
        try:
            if folder != home and folder.is_symlink():
                raise UnreadableError("lies in a folder that is a link", "copy the linked folder here")  # noqa: TRY301
            good.append((path, load_record(path, judge)))
        except UnreadableError as error:  # an unreadable record must not stop the analysis of the other records
            skipped.append(SkippedRecord(path, str(error), error.cure))
    return good, skipped


def load_record(path: Path, judge: CampaignJudge) -> Record:
    """Return the judged record in a file; raise UnreadableError if the record cannot be read or contradicts itself."""
    value = read_judged(path, judge)
    return record_of(value, path.parent, judge.bound(value))


def locate_records(folder: Path) -> tuple[list[Path], Path]:
    """Return the sorted folders of all records, and the folder for figures and tables."""
    if folder.name == FILE:
        folder = folder.parent
    if not folder.is_dir():
        message = f"{folder} is not a folder"
        raise AnalysisError(message, "name a campaign folder, for example `python -m analysis results`")
    if os.path.lexists(folder / FILE):
        return [folder], folder
    if folders := _with_records(folder / "records"):
        return folders, folder
    if folders := _with_records(folder):
        # `results/records` and `results` name the same campaign, so the figures go to the same folder in both cases.
        return folders, folder.absolute().parent if folder.absolute().name == "records" else folder
    for each in (folder, folder / "records"):
        if os.path.lexists(each) and not os.access(each, os.R_OK | os.X_OK):
            raise AnalysisError(
                f"{each} cannot be read: permission denied",
                "ask its owner for access, or for a copy of it",
            )
    message = f"no record in {folder}: found neither records/<cell id>/{FILE} nor <cell id>/{FILE}"
    raise AnalysisError(message, "run a campaign first, or name the folder that holds its `records/`")


def _with_records(folder: Path) -> list[Path]:
    """Return the sorted subfolders that have a record, or an empty list if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [folder / name for name in sorted(entry.name for entry in entries if _has_record(entry))]
    except OSError:
        return []


def _has_record(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and os.path.lexists(f"{entry.path}/{FILE}")
    except OSError:  # a link to itself or into a folder without access rights, which `_read` reports as skipped
        return True


def drop_copies(good: Sequence[tuple[Path, Record]]) -> tuple[tuple[Record, ...], tuple[SkippedRecord, ...]]:
    """Return one record per cell, and the other copies of a cell's record as skipped records.

    Copies are skipped, because the runs of a copy would count twice.
    """
    record_of_cell: dict[str, tuple[Path, Record]] = {}
    copies: list[SkippedRecord] = []
    for path, record in sorted(good, key=lambda each: (each[0].parent.name != each[1].cell, each[0])):
        if record.cell in record_of_cell:
            why = f"is a record of the same cell as {record_of_cell[record.cell][0]}"
            copies.append(SkippedRecord(path, why, "move the copy out of the records folder"))
        else:
            record_of_cell[record.cell] = (path, record)
    return tuple(record_of_cell[cell][1] for cell in sorted(record_of_cell)), tuple(copies)
