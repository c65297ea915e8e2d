"""Print warnings and notes of an analysis to stderr, and delete figures of an earlier analysis."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.figures.kit import save
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.records.read_records import FoundRecords, UnreadableError, read_content
from analysis.text import join_values, visible

NEEDED = {
    "baseline": "Table I needs a done baseline that reads or writes",
    "micro": "Figs 4 and 5 need a done cell of micro",
    "alexnet": "Figs 6 to 8 need done cells of alexnet with prefetch and without, Figs 9 and 10 one with snapshots",
}
"""For each benchmark, a phrase that names the cells without which no chart of this benchmark is drawn."""
MOST_BYTES = 1 << 20
MOST_NAMED = 3  # maximum number of cells without a record that are named
MOST_NOTES = 40  # maximum number of lines about skipped records, and about cells that a chart does not show
LIST_NAME = ".written-by-analysis"


def warn_of_skipped(found: FoundRecords, folder: Path) -> None:
    """Print a warning and a hint for each of the first `MOST_NOTES` skipped records, then how many more there are.

    Also print how many requested cells have no record.

    Raises
    ------
    AnalysisError
        If all records of the folder were skipped.
    """
    for each in found.skipped[:MOST_NOTES]:
        print_to_stderr(f"warning: {each.path} {each.why}; skipped")
        print_to_stderr(f"hint: {each.cure}")
    if (more := len(found.skipped) - MOST_NOTES) > 0:
        print_to_stderr(f"warning: {more:,} more records are skipped")
    if sentence := missing_sentence(found):
        print_to_stderr(f"warning: {sentence}")
    if sentence := commits_sentence(found):
        print_to_stderr(f"note: {sentence}")
    if not found.records:
        message = f"none of the {len(found.skipped)} records in {folder} can be read"
        raise AnalysisError(message, "follow the hints of the warnings above")


def missing_sentence(found: FoundRecords) -> str:
    """Return a sentence that says how many requested cells have no record, or `""` if there are none."""
    if not found.missing:
        return ""
    named = [*found.missing[:MOST_NAMED], "…"] if len(found.missing) > MOST_NAMED else found.missing
    count = f"{len(found.missing):,} of {len(found.requested):,} requested cells have no record"
    return f"{count} (not measured yet, or removed): {join_values(named)}"


def commits_sentence(found: FoundRecords) -> str:
    """Return a sentence that names the commits of this tool that measured the cells, or `""` if there is only one."""
    facts = [git for record in found.records if isinstance(git := record.provenance.get("git"), Mapping)]
    counts = Counter(f"{str(git.get('commit'))[:12]}{' with changes' * (git.get('dirty') is True)}" for git in facts)
    named = [f"{commit} ({count:,})" for commit, count in counts.most_common(MOST_NAMED)]
    more = ["…"] * (len(counts) > MOST_NAMED)
    if len(counts) < 2:  # noqa: PLR2004 - one commit is nothing to tell
        return ""
    words = join_values([*named, *more])
    return f"the cells were measured by {len(counts)} commits of this tool (number of cells): {words}"


def print_notes(drawn: Sequence[FigureSpec], old: Iterable[Path], benchmarks: Iterable[str], *, quiet: bool) -> None:
    """Print why no figure is drawn, which cells the figures do not show, and which old figures were removed."""
    if quiet:
        return
    if not drawn:
        needed = [NEEDED.get(name, f"the chart of {name} needs a done cell") for name in dict.fromkeys(benchmarks)]
        print_to_stderr(f"note: no figure is drawn: {'; '.join(needed)}")
    left = [(spec.stem, row) for spec in drawn for row in spec.left_out.head(MOST_NOTES).to_dict("records")]
    for stem, row in left[:MOST_NOTES]:
        print_to_stderr(f"note: {stem} does not show {row['cell']}: {row['status']}")
    if (more := sum(len(spec.left_out) for spec in drawn) - MOST_NOTES) > 0:
        print_to_stderr(f"note: {more:,} more cells are in no figure; tables/medians.md lists all cells")
    if old:
        print_to_stderr(
            "note: removed old figures, which are not made from the present records: "
            + ", ".join(sorted(path.name for path in old))
        )


def remove_old_figures(folder: Path, written: Iterable[Path]) -> list[Path]:
    """Delete the figures in a folder that an earlier analysis wrote and this analysis did not write.

    The names of written figures are saved in the file `LIST_NAME`. Only files in this list are deleted, so a file of
    the user is never deleted. Returns the paths of the deleted files.
    """
    list_file = folder / LIST_NAME
    names = {path.name for path in written if path.parent == folder}
    try:
        listed = set(read_content(list_file, MOST_BYTES).decode(errors="replace").splitlines())
    except UnreadableError:
        listed = set()
    old = [folder / name for name in listed - names if Path(name).name == name and (folder / name).is_file()]
    for path in old:
        path.unlink()
    if names or listed:
        save.write_file(list_file, "".join(f"{name}\n" for name in sorted(names)).encode())
    return old


def print_to_stderr(text: str) -> None:
    """Write a line to stderr, with escapes for unprintable characters."""
    sys.stderr.write(f"{visible(text)}\n")
