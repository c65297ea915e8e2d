"""The parts of the report page with charts, and with tables of POSIX profiles and of TensorFlow's step profiles."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from analysis.figures.kit.figure_spec import FigureSpec
from analysis.output.text_table import TextTable
from analysis.page.part import (
    MOST_CSV_BYTES,
    MOST_FIGURES,
    MOST_LINES,
    MOST_SVG_BYTES,
    Results,
    count_sentence,
    paragraphs_and_tables,
    render_template,
)
from analysis.records.frame import Row, rows_of
from analysis.records.record import Record
from analysis.records.settings import storage_name
from analysis.spreadsheet import frame_as_csv
from analysis.statistics.medians import valid_measured_runs
from analysis.text import NONE, number, percentage
from analysis.traces.posix import SIZES
from analysis.traces.system import typical_runs
from jobs.events.step_times import SMALLEST_NAMED_SHARE, InputBound
from jobs.events.tensorflow_trace import REMEDIES, SPENT

AMOUNTS = {
    "files": "files", "opens": "opens", "reads": "reads", "bytes_read": "MB read", "read_mb_per_s": "MB/s",
    "read_s": "s in reads", "writes": "writes", "bytes_written": "MB written", "write_s": "s in writes",
    "meta_s": "s in metadata",
}  # fmt: skip
SHARES = ("sequential", "consecutive")
OF_CELL = ("storage", "threads", "mode")
OF_RUN = ("steps_s", "waited_s", *(f"spent_{name}" for name in SPENT), *(f"saves_{name}" for name in REMEDIES))
STEP_HEADINGS = ("storage", "threads", "prefetch", "input-bound", "would save at most, s", "steps, s", *SPENT, "cell")
ABOUT_STEPS = (
    "Seconds of the profiled steps, of the run with the median runtime. If events of several categories run at the same"
    " time, the time counts for the first of these categories, so that the categories of a row add up to the steps."
    f" Steps are input-bound if at least {SMALLEST_NAMED_SHARE:.0%} of the time is spent on"
    " reading, decoding, buffering and waiting for input. Remedies, and the time that each remedy saves at most:"
)


def profiled_cells(results: Results) -> list[tuple[Record, Row]]:
    """Return the cells with a valid measured run that has a POSIX profile, and the medians of their POSIX metrics."""
    if "posix_reads" not in results.runs:
        return []
    names = [name for name in map(str, results.runs) if name.startswith("posix_")]
    table = valid_measured_runs(results.runs, names).groupby("cell").median().dropna(subset=["posix_reads"])
    medians = dict(zip(map(str, table.index), rows_of(table), strict=True))
    return [(each, medians[each.cell]) for each in results.found.records if each.cell in medians]


def call_tables(cells: Sequence[tuple[Record, Row]]) -> Markup:
    """Return two tables of cells with POSIX profiles: the numbers and times of calls, and the sizes of reads."""
    shown = cells[:MOST_LINES]
    headings = (*OF_CELL, *AMOUNTS.values(), *SHARES, "cell")
    amounts = [[*_of_cell(each), *_amounts(medians), *_order(medians), each.cell] for each, medians in shown]
    sizes = [[*_of_cell(each), *_sizes(medians), each.cell] for each, medians in shown]
    left = [True, False, True]
    about = (
        "Medians over the valid measured runs. The profile has the calls on files of the dataset and of snapshots."
        " Seconds are sums over all threads. A read is consecutive if it begins directly after the last byte that was"
        " read of the file, and sequential if it begins anywhere after this byte (definitions of Darshan)."
    )
    return paragraphs_and_tables(
        about,
        _table(headings, amounts, left),
        "Share of the reads by the number of returned bytes. Each column has the upper limit of its bin as heading:",
        _table((*OF_CELL, *SIZES, "cell"), sizes, left),
        count_sentence(len(shown), len(cells), "cells", "tables/runs.csv"),
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool]) -> TextTable:
    return TextTable(headings, rows, [*left, *[False] * (len(headings) - len(left) - 1), True])


def _of_cell(record: Record) -> list[str]:
    facts = record.settings
    return [storage_name(facts), str(facts.get("threads", "")), str(facts.get("profile.posix", ""))]


def _amounts(medians: Row) -> list[str]:
    values = {name: medians.get(f"posix_{name}", math.nan) for name in AMOUNTS}
    return [number(value / 1e6 if name.startswith("bytes_") else value) for name, value in values.items()]


def _order(medians: Row) -> list[str]:
    return [percentage(medians.get(f"posix_{name}", math.nan)) for name in SHARES]


def _sizes(medians: Row) -> list[str]:
    counts = [medians.get(f"posix_read_size_{place}", math.nan) for place in range(len(SIZES))]
    total = sum(counts)
    return [percentage(count / total if total else math.nan) for count in counts]


def step_table(results: Results) -> Markup:
    """Return a table of the cells whose steps TensorFlow's profiler recorded.

    Return empty markup if there is no such cell.
    """
    runs = results.runs
    if "tensorflow_steps_s" not in runs:
        return Markup()
    typical = typical_runs(runs[runs["tensorflow_steps_s"] > 0], [f"tensorflow_{name}" for name in OF_RUN])
    found = [(each, typical[each.cell]) for each in results.found.records if each.cell in typical]
    if not found:
        return Markup()
    rows = [_line(*each) for each in found[:MOST_LINES]]
    left = [True, *[False] * 3, True, *[False] * (len(STEP_HEADINGS) - 6), True]
    words = "; ".join(f"{name}: {remedy}" for name, remedy in REMEDIES.items() if name != remedy)
    more = count_sentence(len(rows), len(found), "cells", "tables/runs.csv")
    return paragraphs_and_tables(
        f"{ABOUT_STEPS} {words}. The saved times do not add up.", TextTable(STEP_HEADINGS, rows, left), more
    )


def _line(record: Record, run: Mapping[str, Any]) -> list[str]:
    facts, seen = record.settings, {name: run.get(f"tensorflow_{name}", math.nan) for name in OF_RUN}
    saves = {name: seen[f"saves_{name}"] for name in REMEDIES}
    bound = InputBound(
        seen["steps_s"], seen["waited_s"], {name: it for name, it in saves.items() if not math.isnan(it)}
    )
    words = f"{'yes' if bound.share >= SMALLEST_NAMED_SHARE else 'no'}, {percentage(bound.share, 1)}"
    saved = ", ".join(f"{name} {number(it)}" for name, it in bound.named.items())
    place = [storage_name(facts), str(facts.get("threads", "")), str(facts.get("prefetch", ""))]
    times = [number(seen[name]) for name in ("steps_s", *(f"spent_{name}" for name in SPENT))]
    return [*place, words, saved or NONE, *times, record.cell]


def headline_chart(drawn: Sequence[FigureSpec]) -> Sequence[FigureSpec]:
    """Return the chart for the top of the page as a list with at most one chart.

    A chart of baselines is returned only if there is no other chart.
    """
    return sorted(drawn, key=lambda spec: spec.stem.startswith("table1"))[:1]


def charts_with_tables(results: Results, drawn: Sequence[FigureSpec]) -> Markup:
    """Return the HTML of charts, with a table of numbers and a CSV file to download for each chart."""
    shown = [spec for spec in drawn if results.images[spec.stem]][:MOST_FIGURES]
    more = count_sentence(len(shown), len(drawn), "figures", "the folder figures/ beside this page")
    return render_template(
        "figures.html", figures=[_figure(spec, results.images[spec.stem]) for spec in shown], more=more
    )


def _figure(spec: FigureSpec, image: Markup) -> dict[str, Any]:
    rows = [[_text(value) for value in row] for row in spec.frame.head(MOST_LINES).itertuples(index=False, name=None)]
    left = [not pd.api.types.is_numeric_dtype(kind) for kind in spec.frame.dtypes]
    return {
        "stem": spec.stem,
        "title": spec.title,
        "caption": spec.caption,
        "image": image if len(image) <= MOST_SVG_BYTES else "",
        "csv": _csv_link(spec),
        "count": len(spec.frame),
        "numbers": TextTable([str(name) for name in spec.frame], rows, left),
        "more": count_sentence(len(rows), len(spec.frame), "rows", f"figures/{spec.stem}.csv"),
    }


def _csv_link(spec: FigureSpec) -> str:
    """Return a URL for the numbers of a chart: a data URL with the CSV, or for a long CSV the path of its file."""
    content = frame_as_csv(spec.frame)
    within = f"data:text/csv;charset=utf-8;base64,{base64.b64encode(content).decode()}"
    return within if len(content) <= MOST_CSV_BYTES else f"figures/{spec.stem}.csv"


def _text(value: Any) -> str:
    """Return a value of the frame in readable form, rounded. The CSV has the exact value."""
    if pd.isna(value):
        return NONE
    return number(value) if isinstance(value, float) else str(value)
