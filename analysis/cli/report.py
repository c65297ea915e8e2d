"""The steps of an analysis: from a folder of records to tables, charts and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from analysis.claims.judge_claim import checklist
from analysis.figures.all import specs
from analysis.figures.kit import save
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.figures.kit.save import Drawing, drawings
from analysis.frames import measured
from analysis.output import tables, terminal
from analysis.output.junit import document
from analysis.output.notes import forget, note
from analysis.page.part import MOST_FIGURES, Results
from analysis.page.report_page import page, undrawn
from analysis.processes import Helpers, keeping
from analysis.records.read_records import Found

EXIT_SKIPPED = 1


def report(  # noqa: PLR0913 - what the command line says
    folder: Path, found: Found, helpers: Helpers, out: Path | None, junit: Path | None = None, *, quiet: bool = False
) -> int:
    """Write all tables and charts of the records and print the summary; return the exit code.

    The processes `helpers` draw too. Raises AnalysisError if no record can be read, or the output cannot be written.
    """
    table, runs = measured(folder, found)
    home = out or found.home
    save.must_be_own(home, "tables", "figures")
    drawn = specs(table, runs, {record.cell: record.folder for record in found.records})
    with keeping(), drawings(drawn, MOST_FIGURES, helpers) as ready:  # this process draws when it has done all else
        tested = checklist(table, runs)
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
    """Write charts as soon as they are drawn; return their paths, and the drawings for the page by stem."""
    written, images = [], {}
    for spec, drawing in zip(drawn, ready, strict=True):
        written += save.put(drawing.files, folder, spec.stem)
        images[spec.stem] = drawing.inline
    return written, images
