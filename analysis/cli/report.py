"""From a folder of records to tables, figures and a summary: the order of the steps."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.figures.all import plates
from analysis.figures.kit import save
from analysis.figures.kit.draw import drawings
from analysis.output import tables, terminal
from analysis.output.junit import document
from analysis.output.page.page import page
from analysis.output.page.results import MOST_FIGURES, Results
from analysis.records import read
from analysis.records.frame import cells_frame, runs_frame
from analysis.statistics.baselines import with_baselines
from analysis.statistics.checkpoints import with_saving
from analysis.statistics.medians import medians
from analysis.statistics.training import with_training
from analysis.verdicts.checklist import verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from analysis.figures.kit.figure import Plate
    from analysis.text.html import Markup

EXIT_SKIPPED = 1
NEEDED = (
    "Table I needs a done baseline that reads or writes, Figs 4 and 5 need a done cell of micro, Figs 6 to 8 done cells"
    " of alexnet with prefetch and without, Figs 9 and 10 one that saves snapshots"
)
LIST_NAME = ".written-by-analysis"


@dataclass(frozen=True)
class Measured:
    """What a folder holds: the records, their medians, every run, and the verdicts on the paper's claims."""

    found: read.Found
    table: pd.DataFrame
    runs: pd.DataFrame
    tested: pd.DataFrame


def measured(folder: Path) -> Measured:
    """Read the records of a campaign, and name those that cannot be read.

    Raises
    ------
    AnalysisError
        If there is nothing to read.
    """
    found = read.read(folder)
    warn(found.skipped)
    if not found.records:
        message = f"none of the {len(found.skipped)} records in {folder} can be read"
        raise AnalysisError(message, "see the warnings above, each with its cure")
    runs = runs_frame(found.records)
    table = with_saving(with_training(medians(cells_frame(found.records), runs), runs), runs)
    table = with_baselines(table, runs)
    return Measured(found, table, runs, verdicts(table, runs))


def report(folder: Path, out: Path | None, junit: Path | None = None, *, quiet: bool = False) -> int:
    """Write all tables and figures of a campaign and print the summary; return the exit code.

    Raises
    ------
    AnalysisError
        If there is nothing to read, or no place to write.
    """
    all_of_it = measured(folder)
    found, table, runs, tested = all_of_it.found, all_of_it.table, all_of_it.runs, all_of_it.tested
    home = out or found.home
    drawn = plates(table, runs, {record.cell: record.folder for record in found.records})
    written, images = put(drawn, home / "figures")
    written += tables.write(table, runs, tested, home / "tables")
    note(drawn, forget(home / "figures", written), quiet=quiet)
    results = Results(found, table, runs, tested, drawn, images, home)
    written.append(save.write(home / "report.html", page(results)))
    written += [save.write(junit, document(tested))] if junit else []
    if quiet:
        terminal.put_paths(written)
    else:
        terminal.show(table, runs, tested, written)
    return EXIT_SKIPPED if found.skipped else 0


def put(drawn: Sequence[Plate], folder: Path) -> tuple[list[Path], dict[str, Markup]]:
    """Draw and write figures; return their files, and the drawings for the page by figure."""
    written, images = [], {}
    for plate, drawing in zip(drawn, drawings(drawn, MOST_FIGURES), strict=True):
        written += save.put(drawing.files, folder, plate.stem)
        images[plate.stem] = drawing.inline
    return written, images


def warn(skipped: Iterable[read.Skipped]) -> None:
    """Name each record that was set aside, with the cure."""
    for each in skipped:
        say(f"warning: {each.path} {each.why}; skipped\nhint: {each.cure}")


def note(drawn: Sequence[Plate], old: Iterable[Path], *, quiet: bool) -> None:
    """Say what the figures do not show."""
    if quiet:
        return
    if not drawn:
        say(f"note: no figure is drawn: {NEEDED}")
    for plate in drawn:
        for row in plate.left_out.to_dict("records"):
            say(f"note: {plate.stem} does not show {row['cell']}: {row['status']}")
    if old:
        say(f"note: removed figures that the records no longer give: {', '.join(sorted(path.name for path in old))}")


def forget(folder: Path, written: Iterable[Path]) -> list[Path]:
    """Remove the figures that an earlier analysis wrote here and this one did not; keep the list for the next.

    Only what the list names is ours: a file that somebody else put there stays.
    """
    list_file = folder / LIST_NAME
    names = {path.name for path in written if path.parent == folder}
    listed = set(list_file.read_text(encoding="utf-8").splitlines()) if list_file.exists() else set()
    old = [folder / name for name in listed - names if Path(name).name == name and (folder / name).is_file()]
    for path in old:
        path.unlink()
    if names or listed:
        save.write(list_file, "".join(f"{name}\n" for name in sorted(names)).encode())
    return old


def say(text: str) -> None:
    """Write to stderr."""
    sys.stderr.write(f"{text}\n")
