"""From a folder of records to tables, figures and a summary: the order of the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.cli.measured import measured
from analysis.figures.all import specs
from analysis.figures.kit import save
from analysis.figures.kit.draw import Drawing, drawings
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.output import tables, terminal
from analysis.output.junit import document
from analysis.output.notes import forget, note
from analysis.output.page.page import page, undrawn
from analysis.output.page.results import MOST_FIGURES, Results
from analysis.processes import keeping
from analysis.records.read_records import Found
from analysis.text.html import Markup
from analysis.verdicts.checklist import verdicts

EXIT_SKIPPED = 1


def report(folder: Path, found: Found, out: Path | None, junit: Path | None = None, *, quiet: bool = False) -> int:
    """Write all tables and figures of what was found in a folder and print the summary; return the exit code.

    Raises AnalysisError: no record could be read, or there is no place to write.
    """
    table, runs = measured(folder, found)
    home = out or found.home
    save.must_be_own(home, "tables", "figures")
    drawn = specs(table, runs, {record.cell: record.folder for record in found.records})
    with keeping(), drawings(drawn, MOST_FIGURES) as ready:  # this process draws when it has done all else
        tested = verdicts(table, runs)
        results = Results(found, table, runs, tested, drawn, {}, home)
        tabled = tables.write(table, runs, tested, home / "tables")
        texts = undrawn(results)
        written, images = put(drawn, ready, home / "figures")
    written += tabled
    note(drawn, forget(home / "figures", written), table["benchmark"], quiet=quiet)
    written.append(save.write(home / "report.html", page(replace(results, images=images), texts)))
    written += [save.write(junit, document(tested))] if junit else []
    if quiet:
        terminal.put_paths(written)
    else:
        terminal.show(table, runs, tested, written)
    return EXIT_SKIPPED if found.skipped else 0


def put(drawn: Sequence[FigureSpec], ready: Iterator[Drawing], folder: Path) -> tuple[list[Path], dict[str, Markup]]:
    """Write figures as they are drawn; return their files, and the drawings for the page by figure."""
    written, images = [], {}
    for spec, drawing in zip(drawn, ready, strict=True):
        written += save.put(drawing.files, folder, spec.stem)
        images[spec.stem] = drawing.inline
    return written, images
