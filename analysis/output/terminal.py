"""The output on a terminal: medians, scaling beside the paper's, what did not count, and the paths of files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from analysis import paper
from analysis.claims import chien2018
from analysis.output import tables
from analysis.output.columns import (
    DISTURBED,
    EXPENDABLE,
    Column,
    common_run_count,
    mark_of_number,
    ratio_to_one_thread,
    shown_rows,
    table_columns,
)
from analysis.records.frame import rows_of
from analysis.records.record import one_device
from analysis.statistics.comparable import COLUMNS, lines_on_looser_checks
from analysis.statistics.selection import is_plain
from analysis.statistics.training import is_training
from analysis.text import DAGGER, NONE, PLUS_MINUS, one_line, ratio_text, visible

# The width of piped output: every column fits on one line; a terminal or $COLUMNS sets its own width.
PIPED_WIDTH = 120
# Further rows are only in the files: their layout would take longer than reading all records.
MOST_ROWS = 200
GREY = "bright_black"  # numbers that do not count
VERDICT_STYLE = {"holds": "green", "differs": "red"}


def print_summary(table: pd.DataFrame, runs: pd.DataFrame, tested: pd.DataFrame, written: Sequence[Path]) -> None:
    """Print the summary to stdout: coloured on a terminal, plain if piped."""
    print_text(*summary_tables(table, runs), *verdict_texts(tested))
    print_paths(written)


def print_paths(written: Iterable[Path]) -> None:
    """Print the paths of the written files, one per line, never wrapped, so that they can be copied."""
    _print(visible(str(path)) for path in written)


def print_text(*what: RenderableType) -> None:
    """Print to stdout; control sequences in texts from records are made harmless, only our own styles remain.

    All is rendered to text first, so that a closed pipe is handled in one place.
    """
    console = _console()
    parts = [Segment(_lines(each.text), each.style) for each in console.render(Group(*what))]
    with console.capture() as captured:
        console.print(Segments(parts), end="")
    _print(line.rstrip() for line in captured.get().splitlines())


def _lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _print(lines: Iterable[str]) -> None:
    if sys.stdout is None:  # closed by who started us
        return
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that knows no dash or dagger still gets its figures.
        sys.stdout.reconfigure(errors="replace")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _console() -> Console:
    free = "COLUMNS" in os.environ or (sys.stdout is not None and sys.stdout.isatty())
    return Console(width=None if free else PIPED_WIDTH, highlight=False, markup=False, emoji=False)


def summary_tables(table: pd.DataFrame, runs: pd.DataFrame) -> Iterable[RenderableType]:
    """Yield the tables of medians and scaling, per set of cells, then everything that did not count."""
    short, room = short_ids(table["cell"]), MOST_ROWS
    for heading, every in tables.table_sections(table):
        if room <= 0:
            break
        rows, room = every.head(room), room - len(every)
        count = common_run_count(rows)
        told = f"{heading}; {count} run{'s' * (count > 1)} of each" if count else heading
        yield Text(one_line(told), style="bold")
        yield medians_table(rows, short)
        if not is_training(rows).all() and not is_plain(rows).all() and (ratios := scaling_table(rows)):
            yield Text("")
            yield ratios
        yield Text("")
    yield from _more(len(table) - MOST_ROWS, "medians.csv")
    yield from _signs(table)
    for told in lines_on_looser_checks(rows_of(table, COLUMNS)):
        yield Text(f"{told}\n")
    for told in one_device(rows_of(table, COLUMNS)):
        yield Text(f"{told}: what differs between them is not the storage\n")
    if complaints := tables.not_counted(table, runs):
        yield Text("Not counted", style="bold")
        lines = sum_up_complaints(complaints, short)
        yield complaints_table(lines[:MOST_ROWS])
        yield from _more(len(lines) - MOST_ROWS, "medians.md")
        yield Text("")
    if tables.has_controls(table):
        yield Text(f"{tables.BETWEEN}\n")
    if tables.has_baselines(table):
        yield Text(f"{tables.OF_BASELINE}\n")


def _signs(table: pd.DataFrame) -> Iterable[Text]:
    """Yield an explanation of the signs behind numbers that occur in the table."""
    signs = [f"{PLUS_MINUS} distance of the farthest run from the median"]
    if table["unstable"].fillna(value=False).any():
        signs.append(f"{DAGGER} unstable: (max - min) / median is above checks.spread_max")
    yield Text(f"{'; '.join(signs)}\n")
    if table["disturbed"].notna().any():
        yield Text(f"{DISTURBED}\n")


def _more(count: int, file: str) -> Iterable[Text]:
    if count > 0:
        yield Text(f"\N{HORIZONTAL ELLIPSIS} and {count:,} more, in tables/{file}\n")


def verdict_texts(tested: pd.DataFrame, *, whole: bool = False) -> Iterable[RenderableType]:
    """Yield the verdict on each claim of the paper with its evidence; verdicts on pairs are in `verdicts.md`.

    Parameters
    ----------
    whole
        Show also claims that were not measured (with the command to do so) and claims about other devices.
    """
    claims = tested[tested["pair"] == ""]
    told = claims["verdict"].isin(["holds", "differs"]) | (
        (claims["verdict"] == "not comparable") & (claims["kind"] == "shape")
    )
    shown = claims if whole else claims[told].head(MOST_ROWS)
    for about, rows in shown.groupby("about", sort=False):
        yield Text(f"Verdicts: {about!s}" if about else tables.NOT_MEASURED_HERE, style="bold")
        table = empty_table(("", "left"), ("", "left"))
        table.show_header = False
        for row in rows_of(rows):
            ours, interval, tolerance = tables.evidence_text(row)
            numbers = f"ours {ours} ({interval}), tolerance: {tolerance}; " if ours != NONE else ""
            claim = f"{row['claim']} ({row['source']})\n{numbers}{tables.reason_of_verdict(row)}"
            table.add_row(Text(tables.verdict_in_words(row), style=VERDICT_STYLE.get(row["verdict"], "")), Text(claim))
        yield table
        yield Text("")
    if whole:
        return
    yield from _more(int(told.sum()) - MOST_ROWS, "verdicts.md")
    if told.any() and not told.all():
        more = f"{len(claims) - told.sum()} more are not measured here, or of the paper's own devices"
        yield Text(f"{more}: python -m campaign verdicts\n")


def medians_table(rows: pd.DataFrame, short: dict[str, str]) -> Table:
    """Return the table of medians of one set of cells, a line per cell; on a narrow terminal it has fewer columns.

    Words are folded before a number or the id of a cell is cut.
    """
    console, shown = _console(), list(table_columns(rows, whole=False))
    # Widths are measured without a limit: within the console's limit, every table seems to fit.
    free = console.options.update(max_width=10 * PIPED_WIDTH)
    table = _medians(rows, short, shown)
    for column, instead in EXPENDABLE.items():
        if console.measure(table, options=free).minimum <= console.width:
            return table
        shown = [new for old in shown if (new := instead if old is column else old)]
        table = _medians(rows, short, shown)
    return table if console.measure(table, options=free).minimum <= console.width else _medians(rows, short, shown, 1)


def _medians(rows: pd.DataFrame, short: dict[str, str], shown: Sequence[Column], least_width: int = 99) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    lines = [*shown_rows(rows)]
    texts = {each: [one_line(each.text(row)) + mark_of_number(each, row) for row in lines] for each in shown}
    for each, words in texts.items():
        heading = each.heading if each.left else each.heading.replace(" ", "\n")
        least = min([max(map(len, words)), *[each.least_width, least_width] * each.left])
        least = max(least, *map(len, heading.split()))
        table.add_column(heading, justify="left" if each.left else "right", overflow="fold", min_width=least)
    cells = [short[row["cell"]] for row in lines]
    table.add_column("cell", overflow="fold", min_width=max(map(len, cells)))
    for row, *words in zip(lines, *texts.values(), cells, strict=True):
        style = "" if row["status"] == "done" else "red"
        table.add_row(*words, style=GREY if row["disturbed"] else style)
    return table


def scaling_table(rows: pd.DataFrame) -> Group | None:
    """Return the table of throughput relative to one thread, ours beside the paper's; None if there is no such cell."""
    known = rows_of(rows[rows["scaling"].notna() | (rows["no_scaling"] != "")])
    cells = [row for row in known if row["threads"] != 1]
    if not cells:
        return None
    storages = list(dict.fromkeys(row["storage"] for row in cells))
    published = list(chien2018.THREAD_SCALING) if (rows["benchmark"] == paper.MICRO).all() else []
    ours = {(row["storage"], row["threads"]): ratio_to_one_thread(row) for row in cells if not row["no_scaling"]}
    heads = [("vs 1 thread", "right"), *((name, "right") for name in storages)]
    table = empty_table(*heads, *((f"paper's {name}", "right") for name in published))
    for threads in sorted({row["threads"] for row in cells}):
        theirs = (chien2018.published_number(chien2018.THREAD_SCALING, name, threads) for name in published)
        mine = (ours.get((name, threads), NONE) for name in storages)
        table.add_row(str(threads), *mine, *(NONE if ratio is None else ratio_text(ratio) for ratio in theirs))
    remarks = [*tables.missing_ratio_sentences(rows), *([f"paper: {chien2018.SOURCE}"] if published else [])]
    return Group(table, *map(Text, remarks))


def sum_up_complaints(complaints: Iterable[tuple[str, str]], short: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return `(cell, text)` pairs with each text once; the first cell is named, the other cells are counted."""
    cells_by_text: dict[str, list[str]] = {}
    for cell, text in complaints:
        cells_by_text.setdefault(text, []).append(short[cell])
    return [
        (f"{cells[0]} and {len(cells) - 1} more" if len(cells) > 1 else cells[0], text)
        for text, cells in cells_by_text.items()
    ]


def complaints_table(complaints: Iterable[tuple[str, str]]) -> Table:
    """Return a table with one line per complaint."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for cells, text in complaints:
        table.add_row(cells, Text(text))
    return table


def short_ids(cells: Iterable[str]) -> dict[str, str]:
    """Return for each cell id the hash at its end, which `python -m campaign show` accepts; else the whole id."""
    names = list(cells)
    ends = {cell: cell.rpartition("-")[2] for cell in names}
    unique = len(set(ends.values())) == len(names) and all(len(end) >= 6 for end in ends.values())  # noqa: PLR2004
    return ends if unique else {cell: cell for cell in names}


def empty_table(*columns: tuple[str, str]) -> Table:
    """Return an empty table with these columns; each has a name and an alignment, `left` or `right`."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table
