"""The medians, and every cell with its runs and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from analysis.output import tables
from analysis.output.columns import DISTURBED, columns, mark, shown_rows
from analysis.output.page.results import MOST_CELLS, MOST_LINES, MOST_ROWS, Results, some
from analysis.records.frame import Row, rows_of
from analysis.records.judging import FILE, judged
from analysis.records.readable import UnreadableError
from analysis.records.record import Record
from analysis.statistics.comparable import COLUMNS, looser, looser_cells
from analysis.text.html import Markup, address, folded, joined, link, table, tag
from analysis.text.plain import DAGGER, NONE, number, share, typed
from jobs.judging.campaign_judge import CampaignJudge
from jobs.model.results import METRICS

MARKS = {True: "\N{CHECK MARK}", False: "\N{BALLOT X}", None: "?"}
STANDING = {True: "held", False: "failed", None: "unverifiable"}
ALL_CELLS = "tables/medians.csv and tables/runs.csv"


def medians(results: Results) -> Markup:
    """Return a table of medians per set of settings, as in `tables/medians.md`."""
    parts, room, detailed = [], MOST_ROWS, {record.cell for record in chosen(results)}
    for heading, rows in tables.sections(results.table):
        if room <= 0:
            break
        parts += [tag("h3", heading), _medians(rows.head(room), detailed)]
        room -= len(rows)
    parts += [tag("p", told, class_="notice") for told in looser_cells(rows_of(results.table, COLUMNS))]
    if tables.has_controls(results.table):
        parts.append(tag("p", tables.BETWEEN))
    if tables.has_baselines(results.table):
        parts.append(tag("p", tables.OF_BASELINE))
    if results.table["disturbed"].notna().any():
        parts.append(tag("p", DISTURBED))
    more = some(min(MOST_ROWS, len(results.table)), len(results.table), "cells", ALL_CELLS)
    told = f"Median, min and max over the valid measured runs (n); {DAGGER} unstable."
    return joined([tag("p", told), *parts, tag("p", more)])


def not_counted(results: Results) -> Markup:
    """Return what does not count, cell by cell, and why."""
    complaints = tables.not_counted(results.table, results.runs)
    if not complaints:
        return tag("p", "Every cell is done and every run counts.")
    told = (tag("li", tag("code", cell), f": {text}") for cell, text in complaints[:MOST_LINES])
    more = some(min(MOST_LINES, len(complaints)), len(complaints), "complaints", "tables/medians.md")
    return folded(f"Not counted: {len(complaints)}, each with its reason", tag("ul", *told), tag("p", more))


def cells(results: Results) -> Markup:
    """Return each cell folded: its settings, its runs with every check, and a link to its record."""
    shown = chosen(results)
    table = results.table
    rows = {row["cell"]: row for row in rows_of(table[table["cell"].isin([record.cell for record in shown])])}
    more = some(len(shown), len(table), "cells", f"{ALL_CELLS}, each in records/, those with trouble come first")
    told = [_cell(record, rows[record.cell], results) for record in shown]
    return joined([tag("p", more), *told])


def chosen(results: Results) -> Sequence[Record]:
    """Return the cells that the page holds: all, or as many as it may, those with trouble first."""
    all_of_them = results.found.records
    if len(all_of_them) <= MOST_CELLS:
        return all_of_them
    table = results.table
    good = (table["status"] == "done") & ~table["unstable"].fillna(value=False).astype(bool)
    fine = set(table["cell"][good & (table["n_invalid"] + table["n_failed"] == 0)])
    return sorted(all_of_them, key=lambda record: record.cell in fine)[:MOST_CELLS]


def _medians(rows: pd.DataFrame, detailed: set[str]) -> Markup:
    shown = columns(rows, whole=True)
    told = []
    for row in shown_rows(rows):
        texts = [" ".join(filter(None, [each.text(row), mark(each, row)])) for each in shown]
        # Words are broken into lines where the page is narrow, so that no column is off it.
        sides = zip(shown, texts, strict=True)
        texts = [tag("span", text, class_="wraps") if each.left else _figure(text, row) for each, text in sides]
        cell = tag("code", row["cell"].rpartition("-")[2], title=row["cell"])
        told.append([*texts, link(f"#cell-{row['cell']}", cell) if row["cell"] in detailed else cell])
    return table([*(each.heading for each in shown), "cell"], told, [*(each.left for each in shown), True])


def _figure(text: str, row: Row) -> str:
    return tag("span", text, class_="disturbed") if row["disturbed"] else text


def _cell(record: Record, row: Row, results: Results) -> Markup:
    unstable = " (unstable)" if row["unstable"] is True else ""
    head = f"{record.cell}: {record.status}{unstable}, {row['n_valid']} valid runs, {row['checks']}"
    settings = " ".join(f"{name}={typed(value)}" for name, value in record.settings.items())
    stored = _stored(record, results.found.judge)
    return folded(
        head,
        tag("p", record.reason),
        tag("p", looser([row])),
        tag("p", tag("code", settings), class_="settings"),
        *(tag("p", f"{name}: {facts}") for name, facts in _conditions(record)),
        tag("ul", *_checks(stored.get("checks") or ())),
        tag("div", *map(_run, stored.get("runs") or ()), class_="runs"),
        tag(
            "p",
            link(address(record.folder / FILE, results.home), "its record"),
            f", benchmark version {record.benchmark_version}",
        ),
        id=f"cell-{record.cell}",
        class_=None if record.status == "done" else "trouble",
    )


def _conditions(record: Record) -> Iterator[tuple[str, str]]:
    """Yield in words what else can change the speed: of the process, of the machine, and of each storage."""
    groups = {**record.conditions, **record.conditions.get("storages", {})}
    for name, facts in groups.items():
        if name != "storages":
            yield name, ", ".join(f"{fact} {value}" for fact, value in facts.items())


def _stored(record: Record, judge: CampaignJudge) -> Mapping[str, Any]:
    """Return the record with the messages of its checks; nothing where it was removed meanwhile."""
    with suppress(UnreadableError):
        return judged(record.folder / FILE, judge)
    return {}


def _run(run: Row) -> Markup:
    """Return a run with its figures and every check."""
    figures = [f"{number(run[name])} {metric.unit}" for name, metric in METRICS.items() if run.get(name) is not None]
    head = tag("strong", f"run {run['run']}, {'warm-up' if run['role'] == 'warmup' else run['role']}: {run['status']}")
    told = f": {run['reason']}" if run["status"] == "failed" and run.get("reason") else ""
    told += _added(run.get("added") or {})
    stands = tag("p", head, told, ", ".join(["", *figures]))
    return tag("div", stands, tag("ul", *_checks(run.get("checks") or ())), _ranks(run.get("ranks") or ()))


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Markup:
    """Return what each rank of a run did, and when by the clock of the hub; nothing for a run of one rank."""
    if not ranks:
        return joined([])
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
    heads = ["rank", "node", "s", "MB", "began within ms", "ended after s"]
    return table(heads, rows, [False, True, False, False, False, False])


def _added(why: Mapping[str, Any]) -> str:
    """Say that a run was added, and what the runs before it left open; empty where it was asked for."""
    if not why:
        return ""
    width = why.get("width")
    state = f"the interval of the median was {share(width, 2)} wide" if width is not None else "too few for an interval"
    return f", added for until_spread={number(why['until_spread'])}: of {why['n']} runs {state}"


def _checks(checks: Sequence[Mapping[str, Any]]) -> list[Markup]:
    return [
        tag(
            "li",
            f"{MARKS[check['passed']]} {check['rule']} {STANDING[check['passed']]}: {check.get('message') or NONE}",
        )
        for check in checks
    ]
