"""What a person reads: medians, scaling beside the paper's, what did not count, and where the files are."""

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
from analysis.output import tables
from analysis.output.columns import BECAUSE, DISTURBED, EXPENDABLE, Column, columns, mark, shown_rows, versus_one_thread
from analysis.records.frame import rows_of
from analysis.records.shared_devices import one_device
from analysis.statistics.comparable import COLUMNS, looser_cells
from analysis.statistics.sweeps import is_plain
from analysis.statistics.training import is_training
from analysis.text.plain import DAGGER, NONE, one_line, times, visible

# Wide enough for every column on one line; a terminal or $COLUMNS decides for itself.
PIPED_WIDTH = 120
# A name up to this long stands on one line where there is room ("optane (emulated)"): remarks are folded first.
NAME_WIDTH = 20
# The least room for the numbers that say what bounds a cell; with less, its word stands alone.
BECAUSE_WIDTH = 16
# More rows are in the files: laying them out takes longer than reading all records.
MOST_ROWS = 200
GREY = "bright_black"  # of figures that count for nothing
VERDICT_STYLE = {"holds": "green", "differs": "red"}


def show(table: pd.DataFrame, runs: pd.DataFrame, tested: pd.DataFrame, written: Sequence[Path]) -> None:
    """Print the summary to stdout: coloured on a terminal, plain lines when piped."""
    put(*summary(table, runs), *verdicts(tested))
    put_paths(written)


def put_paths(written: Iterable[Path]) -> None:
    """Print the paths of what was written, one a line, never wrapped, so that they can be copied."""
    _print(visible(str(path)) for path in written)


def put(*what: RenderableType) -> None:
    """Print to stdout; what came from records cannot act on a terminal: of control sequences those of styles are ours.

    Rendered to text first, so that a closed pipe is met by our one handler.
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


def summary(table: pd.DataFrame, runs: pd.DataFrame) -> Iterable[RenderableType]:
    """Yield the tables of medians and of scaling, set by set, then everything that did not count."""
    short, room = short_ids(table["cell"]), MOST_ROWS
    for heading, every in tables.sections(table):
        if room <= 0:
            break
        rows, room = every.head(room), room - len(every)
        yield Text(one_line(heading), style="bold")
        yield medians(rows, short)
        if not is_training(rows).all() and not is_plain(rows).all() and (ratios := scaling(rows)):
            yield Text("")
            yield ratios
        yield Text("")
    yield from _more(len(table) - MOST_ROWS, "medians.csv")
    yield from _signs(table)
    for told in looser_cells(rows_of(table, COLUMNS)):
        yield Text(f"{told}\n")
    for told in one_device(rows_of(table, COLUMNS)):
        yield Text(f"{told}: what differs between them is not the storage\n")
    if complaints := tables.not_counted(table, runs):
        yield Text("Not counted", style="bold")
        lines = summed_up(complaints, short)
        yield not_counted(lines[:MOST_ROWS])
        yield from _more(len(lines) - MOST_ROWS, "medians.md")
        yield Text("")
    if tables.has_controls(table):
        yield Text(f"{tables.BETWEEN}\n")
    if tables.has_baselines(table):
        yield Text(f"{tables.OF_BASELINE}\n")


def _signs(table: pd.DataFrame) -> Iterable[Text]:
    """Yield what the signs behind figures mean, as far as there are any."""
    if table["unstable"].fillna(value=False).any():
        yield Text(f"{DAGGER} unstable: (max - min) / median is above checks.spread_max\n")
    if table["disturbed"].notna().any():
        yield Text(f"{DISTURBED}\n")


def _more(count: int, file: str) -> Iterable[Text]:
    if count > 0:
        yield Text(f"\N{HORIZONTAL ELLIPSIS} and {count:,} more, in tables/{file}\n")


def verdicts(tested: pd.DataFrame, *, whole: bool = False) -> Iterable[RenderableType]:
    """Yield the verdict on each claim of the paper with its evidence; single pairs stand in `verdicts.md`.

    Parameters
    ----------
    whole
        What was not measured too, with the command that measures it, and what is of other devices.
    """
    claims = tested[tested["pair"] == ""]
    told = claims["verdict"].isin(["holds", "differs"]) | (
        (claims["verdict"] == "not comparable") & (claims["kind"] == "shape")
    )
    shown = claims if whole else claims[told].head(MOST_ROWS)
    for about, rows in shown.groupby("about", sort=False):
        yield Text(f"Verdicts: {about!s}" if about else tables.NOT_MEASURED_HERE, style="bold")
        table = of_columns(("", "left"), ("", "left"))
        table.show_header = False
        for row in rows_of(rows):
            ours, interval, tolerance = tables.evidence(row)
            numbers = f"ours {ours} ({interval}), tolerance: {tolerance}; " if ours != NONE else ""
            claim = f"{row['claim']} ({row['source']})\n{numbers}{tables.why_of(row)}"
            table.add_row(Text(tables.verdict_of(row), style=VERDICT_STYLE.get(row["verdict"], "")), Text(claim))
        yield table
        yield Text("")
    if whole:
        return
    yield from _more(int(told.sum()) - MOST_ROWS, "verdicts.md")
    if told.any() and not told.all():
        more = f"{len(claims) - told.sum()} more are not measured here, or of the paper's own devices"
        yield Text(f"{more}: python -m campaign verdicts\n")


def medians(rows: pd.DataFrame, short: dict[str, str]) -> Table:
    """Return the medians of one set of settings, one line per cell; a narrow terminal gets fewer columns."""
    console, every = _console(), list(columns(rows, whole=False))
    # Measured without a limit: within the console's own, every table seems to fit.
    free = console.options.update(max_width=10 * PIPED_WIDTH)
    shown = [each for each in every if each is not BECAUSE]
    table = _medians(rows, short, shown)
    if BECAUSE in every and console.measure(table, options=free).maximum + BECAUSE_WIDTH <= console.width:
        shown = every
        table = _medians(rows, short, shown)
    for column in EXPENDABLE:
        if console.measure(table, options=free).minimum <= console.width:
            break
        shown = [each for each in shown if each is not column]
        table = _medians(rows, short, shown)
    named = _medians(rows, short, shown, name_width=NAME_WIDTH)
    return named if console.measure(named, options=free).minimum <= console.width else table


def _medians(rows: pd.DataFrame, short: dict[str, str], shown: Sequence[Column], name_width: int = 0) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    lines = shown_rows(rows)
    for each in shown:
        heading = each.heading.replace(" ", "\n")
        if each.left:
            least = 0 if each is BECAUSE else min(name_width, max(len(each.text(row)) for row in lines))
            table.add_column(heading, overflow="fold", min_width=least)
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("checks", overflow="fold")
    table.add_column("cell", no_wrap=True)
    for row in lines:
        texts = [one_line(each.text(row)) + mark(each, row) for each in shown]
        checks = row["checks"] if row["status"] == "done" else f"{row['status'].upper()}; {row['checks']}"
        style = "" if row["status"] == "done" else "red"
        table.add_row(*texts, Text(checks, style), short[row["cell"]], style=GREY if row["disturbed"] else style)
    return table


def scaling(rows: pd.DataFrame) -> Table | None:
    """Return throughput relative to one thread, ours beside the paper's, or why it is not told; None without any."""
    known = rows_of(rows[rows["scaling"].notna() | (rows["no_scaling"] != "")])
    cells = [row for row in known if row["threads"] != 1]
    if not cells:
        return None
    storages = list(dict.fromkeys(row["storage"] for row in cells))
    published = list(paper.THREAD_SCALING) if (rows["benchmark"] == paper.MICRO).all() else []
    ours = {(row["storage"], row["threads"]): versus_one_thread(row) for row in cells if not row["no_scaling"]}
    heads = [("vs 1 thread", "right"), *((name, "right") for name in storages)]
    table = of_columns(*heads, *((f"paper's {name}", "right") for name in published))
    for threads in sorted({row["threads"] for row in cells}):
        theirs = (paper.ratio(name, threads) for name in published)
        mine = (ours.get((name, threads), NONE) for name in storages)
        table.add_row(str(threads), *mine, *(NONE if ratio is None else times(ratio) for ratio in theirs))
    reasons = dict.fromkeys(f"no ratio of {row['storage']}: {row['no_scaling']}" for row in cells if row["no_scaling"])
    table.caption = "\n".join([*reasons, *([f"paper: {paper.SOURCE}"] if published else [])]) or None
    table.caption_justify = "left"
    return table


def summed_up(complaints: Iterable[tuple[str, str]], short: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return `(cell, text)` of each text once, with the number of the other cells that it is said of."""
    cells_by_text: dict[str, list[str]] = {}
    for cell, text in complaints:
        cells_by_text.setdefault(text, []).append(short[cell])
    return [
        (f"{cells[0]} and {len(cells) - 1} more" if len(cells) > 1 else cells[0], text)
        for text, cells in cells_by_text.items()
    ]


def not_counted(complaints: Iterable[tuple[str, str]]) -> Table:
    """Return one line per complaint."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for cells, text in complaints:
        table.add_row(cells, Text(text))
    return table


def short_ids(cells: Iterable[str]) -> dict[str, str]:
    """Return the hash at the end of each cell id, which `python -m campaign why` takes, or the whole id."""
    names = list(cells)
    ends = {cell: cell.rpartition("-")[2] for cell in names}
    unique = len(set(ends.values())) == len(names) and all(len(end) >= 6 for end in ends.values())  # noqa: PLR2004
    return ends if unique else {cell: cell for cell in names}


def of_columns(*columns: tuple[str, str]) -> Table:
    """Return an empty table of columns with these names, each on its side, `left` or `right`."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table
