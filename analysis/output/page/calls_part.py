"""What the runs called, cell by cell, where a cell was profiled (`profile.posix`): amounts, order, sizes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from analysis.output.page.results import MOST_LINES, Results, some
from analysis.records.record import Record
from analysis.records.settings import storage_name
from analysis.text.html import Markup, joined, scrolling, table, tag
from analysis.text.plain import NONE, number, share
from analysis.traces.posix import SIZES

AMOUNTS = {
    "files": "files", "opens": "opens", "reads": "reads", "bytes_read": "MB read", "read_mb_per_s": "MB/s",
    "read_s": "s in reads", "writes": "writes", "bytes_written": "MB written", "write_s": "s in writes",
    "meta_s": "s in metadata",
}  # fmt: skip
SHARES = ("sequential", "consecutive")
COST = "time that it added"
OF_CELL = ("storage", "threads", "mode")


def profiled(results: Results) -> list[Record]:
    """Return the cells of which a valid measured run was profiled."""
    return [each for each in results.found.records if not math.isnan(_median(each, "reads"))]


def calls(found: Sequence[Record]) -> Markup:
    """Return two tables of these cells: what was called, and how the reads were spread over sizes."""
    shown = found[:MOST_LINES]
    compared = any(each.profile_cost for each in found)
    headings = (*OF_CELL, *AMOUNTS.values(), *SHARES, *([COST] if compared else []), "cell")
    amounts = [
        [*_of_cell(each), *_amounts(each), *_order(each), *([_cost(each)] if compared else []), each.cell]
        for each in shown
    ]
    sizes = [[*_of_cell(each), *_sizes(each), each.cell] for each in shown]
    left = [True, False, True]
    of_cost = " Time added: the median over pairs of runs, one with the profile and one without." if compared else ""
    told = (
        "Medians over the valid measured runs, of the files of the data set and of the snapshots. Seconds are of all"
        " threads together. Sequential: beyond the last byte read of the file; consecutive: just behind it (Darshan)."
        + of_cost
    )
    return joined(
        [
            tag("p", told),
            scrolling(_table(headings, amounts, left)),
            tag("p", "Share of the reads by the bytes that came, each column up to its size:"),
            scrolling(_table((*OF_CELL, *SIZES, "cell"), sizes, left)),
            tag("p", some(len(shown), len(found), "cells", "tables/runs.csv")),
        ]
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool]) -> Markup:
    return table(headings, rows, [*left, *[False] * (len(headings) - len(left) - 1), True])


def _of_cell(record: Record) -> list[str]:
    facts = record.settings
    return [storage_name(facts), str(facts.get("threads", "")), str(facts.get("profile.posix", ""))]


def _amounts(record: Record) -> list[str]:
    values = {name: _median(record, name) for name in AMOUNTS}
    return [number(value / 1e6 if name.startswith("bytes_") else value) for name, value in values.items()]


def _order(record: Record) -> list[str]:
    return [share(_median(record, name)) for name in SHARES]


def _sizes(record: Record) -> list[str]:
    counts = [_median(record, f"read_size_{place}") for place in range(len(SIZES))]
    total = sum(counts)
    return [share(count / total if total else math.nan) for count in counts]


def _cost(record: Record) -> str:
    cost = record.profile_cost
    if not cost:
        return NONE
    return f"{cost['median']:+.1%} ({cost['min']:+.1%} to {cost['max']:+.1%}, {cost['pairs']:g} pairs)"


def _median(record: Record, name: str) -> float:
    valid = [run.figures for run in record.runs if run.role == "measured" and run.status == "valid"]
    values = [figures[f"posix_{name}"] for figures in valid if f"posix_{name}" in figures]
    return statistics.median(values) if values else math.nan
