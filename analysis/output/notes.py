"""What an analysis says on stderr beside its results, and the list of the figures that it wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.figures.kit import save
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.records.read_records import Found
from analysis.records.readable import UnreadableError, content
from analysis.text.plain import visible

NEEDED = {
    "baseline": "Table I needs a done baseline that reads or writes",
    "micro": "Figs 4 and 5 need a done cell of micro",
    "alexnet": "Figs 6 to 8 need done cells of alexnet with prefetch and without, Figs 9 and 10 one with snapshots",
}
"""What the figures of a benchmark need."""
MOST_BYTES = 1 << 20
MOST_NOTES = 40  # of cells that a figure does not show, and of records that are skipped
LIST_NAME = ".written-by-analysis"


def warn(found: Found, folder: Path) -> None:
    """Name the first records in a folder that were set aside, with the cure, and how many more there are.

    Raises
    ------
    AnalysisError
        If none is left.
    """
    for each in found.skipped[:MOST_NOTES]:
        say(f"warning: {each.path} {each.why}; skipped")
        say(f"hint: {each.cure}")
    if (more := len(found.skipped) - MOST_NOTES) > 0:
        say(f"warning: {more:,} more records are skipped")
    if not found.records:
        message = f"none of the {len(found.skipped)} records in {folder} can be read"
        raise AnalysisError(message, "see the warnings above, each with its cure")


def note(drawn: Sequence[FigureSpec], old: Iterable[Path], benchmarks: Iterable[str], *, quiet: bool) -> None:
    """Say what the figures of the benchmarks that were measured do not show."""
    if quiet:
        return
    if not drawn:
        needed = [NEEDED.get(name, f"that of {name} needs a done cell") for name in dict.fromkeys(benchmarks)]
        say(f"note: no figure is drawn: {'; '.join(needed)}")
    left = [(spec.stem, row) for spec in drawn for row in spec.left_out.head(MOST_NOTES).to_dict("records")]
    for stem, row in left[:MOST_NOTES]:
        say(f"note: {stem} does not show {row['cell']}: {row['status']}")
    if (more := sum(len(spec.left_out) for spec in drawn) - MOST_NOTES) > 0:
        say(f"note: nor do figures show {more:,} more cells, which are in tables/medians.md")
    if old:
        say(f"note: removed figures that the records no longer give: {', '.join(sorted(path.name for path in old))}")


def forget(folder: Path, written: Iterable[Path]) -> list[Path]:
    """Remove the figures that an earlier analysis wrote here and this one did not; keep the list for the next.

    Only what the list names is ours: a file that somebody else put there stays.
    """
    list_file = folder / LIST_NAME
    names = {path.name for path in written if path.parent == folder}
    try:
        listed = set(content(list_file, MOST_BYTES).decode(errors="replace").splitlines())
    except UnreadableError:
        listed = set()
    old = [folder / name for name in listed - names if Path(name).name == name and (folder / name).is_file()]
    for path in old:
        path.unlink()
    if names or listed:
        save.write(list_file, "".join(f"{name}\n" for name in sorted(names)).encode())
    return old


def say(text: str) -> None:
    """Write to stderr."""
    sys.stderr.write(f"{visible(text)}\n")
