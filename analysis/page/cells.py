"""The parts of the report page with the medians, and with the details of each cell: runs and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd
from markupsafe import Markup

from analysis.output import tables
from analysis.output.columns import DISTURBED, mark_of_number, shown_rows, table_columns
from analysis.output.text_table import TextTable
from analysis.page.part import MOST_CELLS, MOST_LINES, MOST_ROWS, Results, count_sentence, render_template
from analysis.records.frame import Row, rows_of
from analysis.records.read_records import FILE, UnreadableError, read_judged
from analysis.records.record import Record
from analysis.statistics.comparable import COLUMNS, lines_on_looser_checks, sentence_on_looser_checks
from analysis.text import NONE, as_typed_by_user, link_to_file, number, percentage
from jobs.judging.judge import CampaignJudge
from jobs.model.results import METRICS

MARKS = {True: "\N{CHECK MARK}", False: "\N{BALLOT X}", None: "?"}
STANDING = {True: "held", False: "failed", None: "unverifiable"}
ALL_CELLS = "tables/medians.csv and tables/runs.csv"


def median_tables(results: Results) -> Markup:
    """Return one table of medians per set of cells, as in `tables/medians.md`."""
    sections, room, detailed = [], MOST_ROWS, {record.cell for record in shown_cells(results)}
    for heading, rows in tables.table_sections(results.table):
        if room <= 0:
            break
        sections.append({"heading": heading, **_section(rows.head(room), detailed)})
        room -= len(rows)
    more = count_sentence(min(MOST_ROWS, len(results.table)), len(results.table), "cells", ALL_CELLS)
    notes = [
        *([tables.BETWEEN] if tables.has_controls(results.table) else []),
        *([tables.OF_BASELINE] if tables.has_baselines(results.table) else []),
        *([DISTURBED] if results.table["disturbed"].notna().any() else []),
        *([more] if more else []),
    ]
    looser = lines_on_looser_checks(rows_of(results.table, COLUMNS))
    return render_template("medians.html", over=tables.OVER, sections=sections, looser=looser, notes=notes)


def _section(rows: pd.DataFrame, detailed: set[str]) -> dict[str, Any]:
    shown = table_columns(rows, whole=True)
    lines = [
        {
            "texts": [" ".join(filter(None, [each.text(row), mark_of_number(each, row)])) for each in shown],
            "cell": row["cell"],
            "short": row["cell"].rpartition("-")[2],
            "linked": row["cell"] in detailed,
            "disturbed": bool(row["disturbed"]),
        }
        for row in shown_rows(rows)
    ]
    return {"columns": shown, "lines": lines, "no_ratios": tables.missing_ratio_sentences(rows)}


def not_counted_table(results: Results) -> Markup:
    """Return the cells and runs that do not count, with the reasons."""
    complaints = tables.not_counted(results.table, results.runs)
    more = count_sentence(min(MOST_LINES, len(complaints)), len(complaints), "complaints", "tables/medians.md")
    return render_template("not_counted.html", complaints=complaints[:MOST_LINES], count=len(complaints), more=more)


def cell_sections(results: Results) -> Markup:
    """Return one folded section per cell with its settings, its runs, all checks, and a link to its record."""
    shown = shown_cells(results)
    table = results.table
    rows = {row["cell"]: row for row in rows_of(table[table["cell"].isin([record.cell for record in shown])])}
    more = count_sentence(
        len(shown), len(table), "cells", f"{ALL_CELLS} and in records/; cells with problems come first"
    )
    return render_template(
        "cells.html", cells=[_cell(record, rows[record.cell], results) for record in shown], more=more
    )


def shown_cells(results: Results) -> Sequence[Record]:
    """Return the records of the cells that the page shows in detail, at most `MOST_CELLS`.

    If the campaign has more cells, cells with problems come first.
    """
    all_of_them = results.found.records
    if len(all_of_them) <= MOST_CELLS:
        return all_of_them
    table = results.table
    good = (table["status"] == "done") & ~table["unstable"].fillna(value=False).astype(bool)
    fine = set(table["cell"][good & (table["n_invalid"] + table["n_failed"] == 0)])
    return sorted(all_of_them, key=lambda record: record.cell in fine)[:MOST_CELLS]


def _cell(record: Record, row: Row, results: Results) -> dict[str, Any]:
    unstable = " (unstable)" if row["unstable"] is True else ""
    stored = _stored(record, results.found.judge)
    return {
        "name": record.cell,
        "trouble": record.status != "done",
        "head": f"{record.cell}: {record.status}{unstable}, {row['n_valid']} valid runs, {row['checks']}",
        "reason": record.reason,
        "looser": sentence_on_looser_checks([row]),
        "settings": " ".join(f"{name}={as_typed_by_user(value)}" for name, value in record.settings.items()),
        "conditions": list(_conditions(record)),
        "checks": _checks(stored.get("checks") or ()),
        "runs": [_run(run) for run in stored.get("runs") or ()],
        "record": link_to_file(record.folder / FILE, results.home),
        "version": record.benchmark_version,
    }


def _conditions(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the recorded conditions of the process, of the machine and of each storage, in words."""
    groups = {**record.conditions, **record.conditions.get("storages", {})}
    for name, facts in groups.items():
        if name != "storages":
            yield name, ", ".join(f"{fact} {value}" for fact, value in facts.items())


def _stored(record: Record, judge: CampaignJudge) -> Mapping[str, Any]:
    """Return the judged JSON record with the messages of its checks.

    Return an empty mapping if the record cannot be read any more.
    """
    with suppress(UnreadableError):
        return read_judged(record.folder / FILE, judge)
    return {}


def _run(run: Row) -> dict[str, Any]:
    """Return the texts about a run for the template: status, metrics, checks and ranks."""
    remark = f": {run['reason']}" if run["status"] == "failed" and run.get("reason") else ""
    return {
        "head": f"run {run['run']}, {'warm-up' if run['role'] == 'warmup' else run['role']}: {run['status']}",
        "remark": remark + _added(run.get("added") or {}),
        "figures": [f"{number(run[key])} {metric.unit}" for key, metric in METRICS.items() if run.get(key) is not None],
        "checks": _checks(run.get("checks") or ()),
        "ranks": _ranks(run.get("ranks") or ()),
    }


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> TextTable | None:
    """Return a table with the time, the read MB, the start and the end of each rank, by the clock of the hub process.

    Return None for a run with only one rank.
    """
    rows = [
        [
            str(each["rank"]),
            each.get("node") or each.get("host") or NONE,
            number(each["figures"]["wall_s"]),
            NONE if (moved := each["figures"].get("bytes_read")) is None else number(moved / 1e6),
            NONE if each.get("left_s") is None else number(each["left_s"] * 1e3),
            NONE if each.get("ended_s") is None else number(each["ended_s"]),
        ]
        for each in ranks
    ]
    headings = ["rank", "node", "s", "MB", "began within ms", "ended after s"]
    return TextTable(headings, rows, [False, True, False, False, False, False]) if rows else None


def _added(why: Mapping[str, Any]) -> str:
    """Return a remark that tells why `until_spread` added the run, or `""` if the run was planned."""
    if not why:
        return ""
    width = why.get("width")
    state = (
        f"the interval of the median was {percentage(width, 2)} wide"
        if width is not None
        else "too few for an interval"
    )
    return f", added for until_spread={number(why['until_spread'])}: of {why['n']} runs {state}"


def _checks(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{MARKS[check['passed']]} {check['rule']} {STANDING[check['passed']]}: {check.get('message') or NONE}"
        for check in checks
    ]
