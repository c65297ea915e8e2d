"""Run all steps of an analysis: make tables, charts, a report page and a summary from records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from analysis.claims.judge_claim import judge_all_claims
from analysis.figures.all import chart_specs
from analysis.figures.kit import save
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.figures.kit.save import Drawing, draw_all
from analysis.frames import medians_and_runs
from analysis.output import tables, terminal
from analysis.output.junit import junit_xml
from analysis.output.notes import print_notes, remove_old_figures
from analysis.page.part import MOST_FIGURES, Results
from analysis.page.report_page import parts_without_charts, report_html
from analysis.processes import Helpers, garbage_collection_off
from analysis.records.read_records import FoundRecords

EXIT_SKIPPED = 1


def report_records(  # noqa: PLR0913 - one parameter per option of the command line
    folder: Path,
    found: FoundRecords,
    helpers: Helpers,
    out: Path | None,
    junit: Path | None = None,
    *,
    quiet: bool = False,
) -> int:
    """Write all tables, charts and the report page of the records, and print the summary; return the exit code.

    The processes in `helpers` draw charts too. Raises AnalysisError if no record can be read, or if the output cannot
    be written.
    """
    table, runs = medians_and_runs(folder, found)
    home = out or found.home
    save.require_own_folders(home, "tables", "figures")
    drawn = chart_specs(table, runs, {record.cell: record.folder for record in found.records})
    with (
        garbage_collection_off(),
        draw_all(drawn, MOST_FIGURES, helpers) as ready,
    ):  # helpers draw at once; this process writes the tables first and then draws charts in `write_charts`
        tested = judge_all_claims(table, runs)
        results = Results(found, table, runs, tested, drawn, {}, home)
        tabled = tables.write_tables(table, runs, tested, home / "tables")
        texts = parts_without_charts(results)
        written, images = write_charts(drawn, ready, home / "figures")
    written += tabled
    print_notes(drawn, remove_old_figures(home / "figures", written), table["benchmark"], quiet=quiet)
    written.append(save.write_file(home / "report.html", report_html(replace(results, images=images), texts)))
    written += [save.write_file(junit, junit_xml(tested))] if junit else []
    if quiet:
        terminal.print_paths(written)
    else:
        terminal.print_summary(table, runs, tested, written)
    return EXIT_SKIPPED if found.skipped else 0


def write_charts(
    drawn: Sequence[FigureSpec], ready: Iterator[Drawing], folder: Path
) -> tuple[list[Path], dict[str, Markup]]:
    """Write each chart as soon as the chart is drawn.

    Returns the paths of the written files, and a mapping from a chart's file stem to its drawing for the report page.
    """
    written, images = [], {}
    for spec, drawing in zip(drawn, ready, strict=True):
        written += save.write_files(drawing.files, folder, spec.stem)
        images[spec.stem] = drawing.inline
    return written, images
