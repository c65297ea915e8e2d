"""Tables for machines and papers: the tidy frame, the medians, and the medians as Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analysis import paper, save
from analysis.figures import significant
from analysis.frame import KEYS, rows_of
from analysis.medians import not_counted
from analysis.settings import describe, facts_of, telling
from analysis.signs import DAGGER, DASH, TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    import pandas as pd

RANGE = f"min{DASH}max"
FIGURES = ("images/s", RANGE, "MB/s", RANGE, "s", "n", "vs 1 thread")
HEADINGS = ("storage", "threads", *FIGURES, "checks", "status", "cell")
NONE = DASH
# Columns of text; numbers stand right.
LEFT = ("storage", "checks", "status", "cell")


def write(table: pd.DataFrame, runs: pd.DataFrame, folder: Path) -> list[Path]:
    """Write `runs.csv` (the tidy frame), `medians.csv` and `medians.md`."""
    plain = table.drop(columns=[name for name in KEYS if name != "storage"])
    return [
        save.write(folder / "medians.md", markdown(table, runs).encode()),
        save.write(folder / "medians.csv", save.csv(plain)),
        save.write(folder / "runs.csv", save.csv(runs)),
    ]


def sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a heading and the sorted rows for each set of settings that must not be mixed."""
    groups = {str(key): rows for key, rows in table.groupby("set_key", sort=True)}
    apart = telling([facts_of(key) for key in groups])
    for key, rows in groups.items():
        facts = facts_of(key)
        order = ["storage", "threads", "cell"] if "threads" in rows else ["storage", "cell"]
        about = describe(facts, _more(facts, apart))
        heading = f"{facts['benchmark']}: {about}" if about else str(facts["benchmark"])
        yield heading, rows.sort_values(order, key=_sortable)


def markdown(table: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Return the medians as Markdown: a table per set of settings, then what did not count and why."""
    lines = ["# Medians", "", "Median, min and max over the valid measured runs (n); † unstable.", ""]
    for heading, rows in sections(table):
        lines += [f"## {_escape(heading)}", "", _line(HEADINGS)]
        lines += [_line("---" if name in LEFT else "---:" for name in HEADINGS)]
        lines += [_line(_cells(row)) for row in rows_of(rows)]
        lines.append("")
    if complaints := [*unfinished(table), *excluded(runs)]:
        lines += ["## Not counted", "", *(f"- `{cell}`: {_escape(text)}" for cell, text in complaints), ""]
    return "\n".join(lines)


def unfinished(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return `(cell, status: reason)` of each cell that is not done."""
    rows = table[table["status"] != "done"]
    texts = rows["status"] + rows["reason"].map(lambda reason: f": {one_line(reason)}" if reason else "")
    return [(cell, f"cell {text}") for cell, text in zip(rows["cell"], texts, strict=True)]


def excluded(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Return `(cell, "3 measured runs invalid: reason")` for each cell and kind of reason."""
    told = []
    for row in rows_of(not_counted(runs)):
        what = "warm-up" if row["role"] == "warmup" else str(row["role"])
        some = f"{row['count']} {what} run{'s' if row['count'] > 1 else ''} {row['status']}"
        told.append((str(row["cell"]), f"{some}: {one_line(row['reason']) or 'no reason recorded'}"))
    return told


def number(value: float) -> str:
    """Return a figure for a table, a dash where there is none."""
    return NONE if math.isnan(value) else significant(value)


def span(low: float, high: float) -> str:
    """Return a range of figures, a dash where there is none."""
    return NONE if math.isnan(low) else f"{significant(low)}{DASH}{significant(high)}"


def count(row: Mapping[str, Any]) -> str:
    """Return the number of runs that count, of those that were measured."""
    measured = row["n_valid"] + row["n_invalid"] + row["n_failed"]
    return str(row["n_valid"]) if measured == row["n_valid"] else f"{row['n_valid']}/{measured}"


def one_line(text: str) -> str:
    """Return a reason without line breaks or control characters of the program that gave it."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))


def _cells(row: Mapping[str, Any]) -> list[str]:
    mark = f" {DAGGER}" if row["unstable"] is True else ""
    return [
        _escape(str(row["storage"])),
        str(row.get("threads") or NONE),
        number(row["images_per_s"]) + mark,
        span(row["images_per_s_min"], row["images_per_s_max"]),
        number(row["read_mb_per_s"]),
        span(row["read_mb_per_s_min"], row["read_mb_per_s_max"]),
        number(row["wall_s"]),
        count(row),
        NONE if math.isnan(row["scaling"]) else f"{row['scaling']:.2f}{TIMES}",
        _escape(row["checks"]),
        row["status"],
        f"`{row['cell']}`",
    ]


def _more(facts: Mapping[str, Any], apart: Sequence[str]) -> list[str]:
    """Return the settings to name beside the usual ones: those that tell the sets apart, and the pipeline."""
    pipeline = "benchmark.preprocess"
    return list(dict.fromkeys([*([pipeline] if pipeline in facts else []), *apart]))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    return one_line(text).replace("|", "\\|")


def _sortable(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column that sorts: the paper's storages in its order, threads as numbers, absent last."""
    if column.name == "storage":
        return column.map(paper.place)
    if column.name == "threads":
        return column.map(lambda each: each if isinstance(each, int) else float("inf"))
    return column
