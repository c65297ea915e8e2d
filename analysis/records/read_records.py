"""Find the records of a campaign and read them; one that cannot be read is named and set aside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.processes import keeping, spread
from analysis.records.judging import CAMPAIGN, FILE, judge_of
from analysis.records.readable import UnreadableError
from analysis.records.record import Record, load
from jobs.judging.campaign_judge import CampaignJudge

# Records that a process reads at once, and from how many such parts on several processes are worth their start.
AT_ONCE, WORTH_PROCESSES = 250, 4


@dataclass(frozen=True)
class Skipped:
    """A record that was not read, why, and what to do about it."""

    path: Path
    why: str
    cure: str


@dataclass(frozen=True)
class Found:
    """All that a folder holds, ordered by cell id, and its judge; `home` is where figures and tables belong."""

    records: tuple[Record, ...]
    skipped: tuple[Skipped, ...]
    home: Path
    judge: CampaignJudge = field(default_factory=CampaignJudge, compare=False)


def read(folder: Path, meanwhile: Callable[[], object] = lambda: None) -> Found:
    """Read every record of a campaign folder, a records folder or the folder of one record.

    Parameters
    ----------
    folder
        Where the records are.
    meanwhile
        This process does it first, while others beside it, if there are any, read already.

    Raises
    ------
    AnalysisError
        If there is no such folder, or no record in it.
    """
    folders, home = locate(folder)
    with keeping():
        judge, fault = judge_of(*_campaign(home, folders))
        jobs = [folders[start : start + AT_ONCE] for start in range(0, len(folders), AT_ONCE)]
        good: list[tuple[Path, Record]] = []
        skipped = [*_unread(fault, home)]
        with spread(partial(_read, home=home, judge=judge), jobs, WORTH_PROCESSES) as results:
            meanwhile()
            for some, others in results:
                good += some
                skipped += others
        records, copies = without_copies(good)
    return Found(records, tuple(skipped) + copies, home, judge)


def _campaign(home: Path, folders: Sequence[Path]) -> tuple[Path, list[Path]]:
    """Return the folder of the campaign, and those of all its records: of one record, too, where it lies in them."""
    around = home.absolute().parent
    if folders == [home] and around.name == "records" and not home.is_symlink():
        return around.parent, _with_records(around)
    return home, [*folders]


def _unread(fault: UnreadableError | None, home: Path) -> Iterator[Skipped]:
    """Say that nobody can tell by which limits the cells were asked for, where that is so."""
    if fault:
        why = f"{fault}: each cell is judged by the limits of its last worker"
        yield Skipped(home / CAMPAIGN, why, "copy it anew from where the campaign ran, or move it away")


def _read(folders: Sequence[Path], home: Path, judge: CampaignJudge) -> tuple[list[tuple[Path, Record]], list[Skipped]]:
    """Read the records in some folders, each with its path, and say what of the others is wrong."""
    good, skipped = [], []
    for each in folders:
        path = each / FILE
        try:
            if each != home and each.is_symlink():
                raise UnreadableError("lies in a folder that is a link", "copy here what it leads to")  # noqa: TRY301
            good.append((path, load(path, judge)))
        except UnreadableError as error:  # one bad record must not stop the others
            skipped.append(Skipped(path, str(error), error.cure))
    return good, skipped


def locate(folder: Path) -> tuple[list[Path], Path]:
    """Return the folders of all records, sorted, and the folder that figures and tables belong to."""
    if folder.name == FILE:
        folder = folder.parent
    if not folder.is_dir():
        message = f"{folder} is not a folder"
        raise AnalysisError(message, "name a campaign folder, for example `python -m analysis results`")
    if os.path.lexists(folder / FILE):
        return [folder], folder
    if found := _with_records(folder / "records"):
        return found, folder
    if found := _with_records(folder):
        # `results/records` and `results` are the same campaign; its figures have one place.
        return found, folder.absolute().parent if folder.absolute().name == "records" else folder
    message = f"no record in {folder}: neither records/<cell id>/{FILE} nor <cell id>/{FILE}"
    raise AnalysisError(message, "run a campaign first, or name the folder that holds its `records/`")


def _with_records(folder: Path) -> list[Path]:
    """Return the folders in a folder that hold a record, sorted; nothing where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return [folder / name for name in sorted(entry.name for entry in entries if _has_record(entry))]
    except OSError:
        return []


def _has_record(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and os.path.lexists(f"{entry.path}/{FILE}")
    except OSError:  # a link to itself, or into a closed folder: `read` names it
        return True


def without_copies(good: Sequence[tuple[Path, Record]]) -> tuple[tuple[Record, ...], tuple[Skipped, ...]]:
    """Keep one record of each cell, the one in the folder of its name, so that no run counts twice."""
    kept: dict[str, tuple[Path, Record]] = {}
    copies: list[Skipped] = []
    for path, record in sorted(good, key=lambda each: (each[0].parent.name != each[1].cell, each[0])):
        if record.cell in kept:
            why = f"the same cell as {kept[record.cell][0]}"
            copies.append(Skipped(path, why, "move the copy out of the records folder"))
        else:
            kept[record.cell] = (path, record)
    return tuple(kept[cell][1] for cell in sorted(kept)), tuple(copies)
