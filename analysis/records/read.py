"""Find the records of a campaign and read them; one that cannot be read is named and set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.records.record import Record, parse
from analysis.records.versioned import UnreadableError, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE = "record.json"


@dataclass(frozen=True)
class Skipped:
    """A record that was not read, why, and what to do about it."""

    path: Path
    why: str
    cure: str


@dataclass(frozen=True)
class Found:
    """All that a folder holds, ordered by cell id; `home` is where figures and tables belong."""

    records: tuple[Record, ...]
    skipped: tuple[Skipped, ...]
    home: Path


def read(folder: Path) -> Found:
    """Read every record of a campaign folder, a records folder or the folder of one record.

    Raises
    ------
    AnalysisError
        If there is no such folder, or no record in it.
    """
    paths, home = locate(folder)
    good: list[tuple[Path, Record]] = []
    skipped: list[Skipped] = []
    for path in paths:
        try:
            good.append((path, parse(load(path), path.parent)))
        except UnreadableError as error:  # noqa: PERF203 - one bad record must not stop the others
            skipped.append(Skipped(path, str(error), error.cure))
    records, copies = without_copies(good)
    return Found(records, tuple(skipped) + copies, home)


def locate(folder: Path) -> tuple[list[Path], Path]:
    """Return the paths of all records, sorted, and the folder that figures and tables belong to."""
    if folder.name == FILE and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        message = f"{folder} is not a folder"
        raise AnalysisError(message, "name a campaign folder, for example `python -m analysis results`")
    if (folder / FILE).is_file():
        return [folder / FILE], folder
    if paths := sorted(folder.glob(f"records/*/{FILE}")):
        return paths, folder
    if paths := sorted(folder.glob(f"*/{FILE}")):
        # `results/records` and `results` are the same campaign; its figures have one place.
        return paths, folder.absolute().parent if folder.absolute().name == "records" else folder
    message = f"no record in {folder}: neither records/<cell id>/{FILE} nor <cell id>/{FILE}"
    raise AnalysisError(message, "run a campaign first, or name the folder that holds its `records/`")


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
