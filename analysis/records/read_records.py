"""Find, read and judge the records of a campaign; a record that cannot be read is reported and skipped.

The files may come from another person (`jobs.model.reading`): each error message says how to cure the error.
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

RUN_AGAIN = "copy the file anew from where the campaign ran, or delete its folder and run the campaign again"

_Kind = TypeVar("_Kind")


class UnreadableError(Exception):
    """A file that cannot be read or is not in the required form; `cure` says what the user should do."""

    def __init__(self, why: str, cure: str = RUN_AGAIN) -> None:
        super().__init__(why)
        self.cure = cure


class AbsentError(UnreadableError):
    """A file that does not exist."""


def read_content(path: Path, most: int) -> bytes:
    """Return the content of a regular file; raise UnreadableError if it has over `most` bytes or is no file."""
    return _with_cure(lambda place: untrusted.read_bounded(place, most), path)


def load_json(path: Path, kind: type[_Kind]) -> _Kind:
    """Return the content of a JSON file of type `kind`; raise UnreadableError if it is invalid or too new."""
    return _with_cure(lambda place: reading.read_json(place, kind, SCHEMA), path)


def _without_links(read: Callable[[Path], _Kind], path: Path) -> _Kind:
    """Return the result of `read` on the path, with links in its folders resolved; the file itself must be no link."""
    try:
        return read(path)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return read(Path(os.path.realpath(path.parent), path.name))


def _with_cure(read: Callable[[Path], _Kind], path: Path) -> _Kind:
    """Return the result of `read` on the path; raise UnreadableError, with a cure, for each of its errors."""
    try:
        return _without_links(read, path)
    except FileNotFoundError as error:
        raise AbsentError("is not there") from error
    except OSError as error:
        raise UnreadableError(error.strerror or type(error).__name__, "make the file readable for you") from error
    except reading.NewerFileError as error:
        why = f"is of {error}; this program knows schema {SCHEMA}"
        raise UnreadableError(why, "analyse it with the newer tfio-campaign that wrote it") from error
    except untrusted.UntrustedError as error:
        raise UnreadableError(f"is damaged: {error}") from error


FILE, CAMPAIGN = "record.json", "campaign.json"


def judge_of(home: Path, folders: Sequence[Path]) -> tuple[CampaignJudge, UnreadableError | None]:
    """Return the judge of the records in these folders, and the error if ``campaign.json`` in `home` cannot be read.

    A missing ``campaign.json`` is no error: each cell is then judged by the limits in its own record.
    """
    requests: Sequence[RecordedCall] = ()
    fault = None
    try:
        requests = load_json(home / CAMPAIGN, Manifest)["requests"]
    except AbsentError:  # records alone
        pass
    except UnreadableError as error:
        fault = error
    judge = CampaignJudge(requests, _baselines(folders))
    _ = judge.peaks  # read once, here: the judge is sent to other processes
    return judge, fault


def read_judged(path: Path, judge: CampaignJudge) -> Stored:
    """Return the content of a record file, judged.

    Raises UnreadableError if the file cannot be read, contradicts itself, or lacks the limits to judge it by.
    """
    try:
        return judge.judged(load_json(path, Stored))
    except UnusableRecordError as error:
        raise UnreadableError(str(error)) from error


def _baselines(folders: Sequence[Path]) -> Iterator[Stored]:
    for folder in folders:
        if peaks.is_baseline_id(folder.name) and not folder.is_symlink():
            with suppress(UnreadableError):  # it is reported when it is read with the others
                yield load_json(folder / FILE, Stored)


# Number of records that a process reads at once, and the number of such parts from which more processes pay off.
AT_ONCE, WORTH_PROCESSES = 250, 4


@dataclass(frozen=True)
class SkippedRecord:
    """A record that was not read, with the reason and the cure."""

    path: Path
    why: str
    cure: str


@dataclass(frozen=True)
class FoundRecords:
    """The records of a folder by cell id, the skipped ones, and the judge; `home` is the folder for the output."""

    records: tuple[Record, ...]
    skipped: tuple[SkippedRecord, ...]
    home: Path
    judge: CampaignJudge = field(default_factory=CampaignJudge, compare=False)


def read_records(folder: Path, meanwhile: Callable[[], object] = lambda: None) -> FoundRecords:
    """Read every record of a campaign folder, a records folder or the folder of one record.

    Parameters
    ----------
    folder
        The folder of the records.
    meanwhile
        A function that this process calls first, while the other processes, if any, already read.

    Raises
    ------
    AnalysisError
        If there is no such folder, or no record in it.
    """
    folders, home = locate_records(folder)
    with garbage_collection_off():
        judge, fault = judge_of(*_campaign(home, folders))
        jobs = [folders[start : start + AT_ONCE] for start in range(0, len(folders), AT_ONCE)]
        good: list[tuple[Path, Record]] = []
        skipped = [*_unread(fault, home)]
        with spread_jobs(partial(_read, home=home, judge=judge), jobs, WORTH_PROCESSES) as results:
            meanwhile()
            for some, others in results:
                good += some
                skipped += others
        records, copies = drop_copies(good)
    return FoundRecords(records, tuple(skipped) + copies, home, judge)


def _campaign(home: Path, folders: Sequence[Path]) -> tuple[Path, list[Path]]:
    """Return the folder of the campaign and the folders of all its records, also if the user named only one record."""
    around = home.absolute().parent
    if folders == [home] and around.name == "records" and not home.is_symlink():
        return around.parent, _with_records(around)
    return home, [*folders]


def _unread(fault: UnreadableError | None, home: Path) -> Iterator[SkippedRecord]:
    """Yield a `SkippedRecord` for ``campaign.json`` if it could not be read."""
    if fault:
        why = f"{fault}: each cell is judged by the limits of its last worker"
        yield SkippedRecord(home / CAMPAIGN, why, "copy it anew from where the campaign ran, or move it away")


def _read(
    folders: Sequence[Path], home: Path, judge: CampaignJudge
) -> tuple[list[tuple[Path, Record]], list[SkippedRecord]]:
    """Return the records in these folders, each with its path, and a `SkippedRecord` for each that cannot be read."""
    good, skipped = [], []
    for each in folders:
        path = each / FILE
        try:
            if each != home and each.is_symlink():
                raise UnreadableError("lies in a folder that is a link", "copy here what it leads to")  # noqa: TRY301
            good.append((path, load_record(path, judge)))
        except UnreadableError as error:  # one bad record must not stop the others
            skipped.append(SkippedRecord(path, str(error), error.cure))
    return good, skipped


def load_record(path: Path, judge: CampaignJudge) -> Record:
    """Return the judged record in a file; raise UnreadableError if it cannot be read, judged or believed."""
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
        # `results/records` and `results` are the same campaign; its figures have one place.
        return folders, folder.absolute().parent if folder.absolute().name == "records" else folder
    message = f"no record in {folder}: neither records/<cell id>/{FILE} nor <cell id>/{FILE}"
    raise AnalysisError(message, "run a campaign first, or name the folder that holds its `records/`")


def _with_records(folder: Path) -> list[Path]:
    """Return the sorted subfolders that hold a record; empty if the folder does not exist."""
    try:
        with os.scandir(folder) as entries:
            return [folder / name for name in sorted(entry.name for entry in entries if _has_record(entry))]
    except OSError:
        return []


def _has_record(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and os.path.lexists(f"{entry.path}/{FILE}")
    except OSError:  # a link to itself, or into a closed folder: `read_records` names it
        return True


def drop_copies(good: Sequence[tuple[Path, Record]]) -> tuple[tuple[Record, ...], tuple[SkippedRecord, ...]]:
    """Return one record per cell, so that no run counts twice, and the skipped copies."""
    record_of_cell: dict[str, tuple[Path, Record]] = {}
    copies: list[SkippedRecord] = []
    for path, record in sorted(good, key=lambda each: (each[0].parent.name != each[1].cell, each[0])):
        if record.cell in record_of_cell:
            why = f"the same cell as {record_of_cell[record.cell][0]}"
            copies.append(SkippedRecord(path, why, "move the copy out of the records folder"))
        else:
            record_of_cell[record.cell] = (path, record)
    return tuple(record_of_cell[cell][1] for cell in sorted(record_of_cell)), tuple(copies)
