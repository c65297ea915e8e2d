"""Print the results of an analysis on a terminal: medians, scaling, verdicts, invalid runs, and paths of files."""

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
from analysis.records.record import sentences_on_shared_devices
from analysis.statistics.comparable import COLUMNS, lines_on_looser_checks
from analysis.statistics.selection import is_plain
from analysis.statistics.training import is_training
from analysis.text import DAGGER, NONE, PLUS_MINUS, one_line, ratio_text, visible

# The width of output to a pipe, in which all columns fit on one line. On a terminal, its width or $COLUMNS is used.
PIPED_WIDTH = 120
# The maximum number of printed rows. More rows are only in the table files, because `rich` needs more time to lay out
# many rows than this program needs to read all records.
MOST_ROWS = 200
GREY = "bright_black"  # the colour of numbers from disturbed runs, which do not count
VERDICT_STYLE = {"holds": "green", "differs": "red"}


def print_summary(table: pd.DataFrame, runs: pd.DataFrame, tested: pd.DataFrame, written: Sequence[Path]) -> None:
    """Print the summary of an analysis to stdout, with colours on a terminal, and without colours to a pipe."""
    print_text(*summary_tables(table, runs), *verdict_texts(tested))
    print_paths(written)


def print_paths(written: Iterable[Path]) -> None:
    """Print the paths of the written files, one path per line.

    Lines are not wrapped, so that a user can copy the paths.
    """
    _print(visible(str(path)) for path in written)


def print_text(*what: RenderableType) -> None:
    """Print tables and texts to stdout.

    Control sequences in texts from records are escaped, so that only the styles of this program reach the terminal. The
    whole output is rendered before printing, so that only `_print` meets a closed pipe.
    """
    console = _console()
    parts = [Segment(_lines(each.text), each.style) for each in console.render(Group(*what))]
    with console.capture() as captured:
        console.print(Segments(parts), end="")
    _print(line.rstrip() for line in captured.get().splitlines())


def _lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _print(lines: Iterable[str]) -> None:
    if sys.stdout is None:  # the parent process started this process without stdout
        return
    if hasattr(sys.stdout, "reconfigure"):
        # If the encoding of stdout has no dash or dagger, print `?` for these characters instead of failing.
        sys.stdout.reconfigure(errors="replace")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _console() -> Console:
    free = "COLUMNS" in os.environ or (sys.stdout is not None and sys.stdout.isatty())
    return Console(width=None if free else PIPED_WIDTH, highlight=False, markup=False, emoji=False)


def summary_tables(table: pd.DataFrame, runs: pd.DataFrame) -> Iterable[RenderableType]:
    """Yield the tables of medians and scaling of each set of cells, then the cells and runs that do not count."""
    short, room = short_ids(table["cell"]), MOST_ROWS
    for heading, every in tables.table_sections(table):
        if room <= 0:
            break
        rows, room = every.head(room), room - len(every)
        count = common_run_count(rows)
        title = f"{heading}; {count} run{'s' * (count > 1)} of each" if count else heading
        yield Text(one_line(title), style="bold")
        yield medians_table(rows, short)
        if not is_training(rows).all() and not is_plain(rows).all() and (ratios := scaling_table(rows)):
            yield Text("")
            yield ratios
        yield Text("")
    yield from _more(len(table) - MOST_ROWS, "medians.csv")
    yield from _signs(table)
    for told in lines_on_looser_checks(rows_of(table, COLUMNS)):
        yield Text(f"{told}\n")
    for told in sentences_on_shared_devices(rows_of(table, COLUMNS)):
        yield Text(f"{told}: differences between these cells are not caused by the storage\n")
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
    """Yield an explanation of the signs that stand after numbers in the table."""
    signs = [f"{PLUS_MINUS} largest distance of a run from the median"]
    if table["unstable"].fillna(value=False).any():
        signs.append(f"{DAGGER} unstable: (max - min) / median is above checks.spread_max")
    yield Text(f"{'; '.join(signs)}\n")
    if table["disturbed"].notna().any():
        yield Text(f"{DISTURBED}\n")


def _more(count: int, file: str) -> Iterable[Text]:
    if count > 0:
        yield Text(f"\N{HORIZONTAL ELLIPSIS} and {count:,} more, in tables/{file}\n")


def verdict_texts(tested: pd.DataFrame, *, whole: bool = False) -> Iterable[RenderableType]:
    """Yield the verdict on each claim of a paper, with the measured value and the reason for the verdict.

    Verdicts on pairs of cells are only in `verdicts.md`.

    Parameters
    ----------
    whole
        Also yield claims that were not measured, with the command that measures them, and claims about devices of the
        paper that cannot be compared.
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
        more = f"{len(claims) - told.sum()} more claims are not measured here, or are about the paper's own devices"
        yield Text(f"{more}; python -m campaign verdicts lists them\n")


def medians_table(rows: pd.DataFrame, short: dict[str, str]) -> Table:
    """Return the table of medians of one set of cells, which has one line per cell.

    If the terminal is too narrow, columns are dropped (`EXPENDABLE`), then words are wrapped.
    """
    console, shown = _console(), list(table_columns(rows, whole=False))
    # Measure without the console's width limit, because with this limit `rich` reports that every table fits.
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
    """Return a table of throughput relative to one thread, with measured ratios and ratios of the paper.

    Return None if no cell has more than one thread.
    """
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
    """Return `(cells, text)` pairs in which each distinct text occurs once.

    `cells` names the first cell with this text, and gives the number of other cells.
    """
    cells_by_text: dict[str, list[str]] = {}
    for cell, text in complaints:
        cells_by_text.setdefault(text, []).append(short[cell])
    return [
        (f"{cells[0]} and {len(cells) - 1} more" if len(cells) > 1 else cells[0], text)
        for text, cells in cells_by_text.items()
    ]


def complaints_table(complaints: Iterable[tuple[str, str]]) -> Table:
    """Return a table with one line per complaint, which says why cells or runs do not count."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for cells, text in complaints:
        table.add_row(cells, Text(text))
    return table


def short_ids(cells: Iterable[str]) -> dict[str, str]:
    """Return a short form of each cell id: the hash at its end, which `python -m campaign show` also accepts.

    If a hash is too short or occurs twice, return the whole ids.
    """
    names = list(cells)
    ends = {cell: cell.rpartition("-")[2] for cell in names}
    unique = len(set(ends.values())) == len(names) and all(len(end) >= 6 for end in ends.values())  # noqa: PLR2004
    return ends if unique else {cell: cell for cell in names}


def empty_table(*columns: tuple[str, str]) -> Table:
    """Return an empty table with these columns; a column is a pair of a name and an alignment (`left` or `right`)."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table
