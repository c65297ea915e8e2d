"""What a person reads: medians, scaling beside the paper's, what did not count, and where the files are."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from analysis import paper, tables
from analysis.frame import rows_of
from analysis.signs import DAGGER, TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pandas as pd
    from rich.console import RenderableType

# Wide enough for every column on one line; a terminal or $COLUMNS decides for itself.
PIPED_WIDTH = 120


def show(table: pd.DataFrame, runs: pd.DataFrame, written: Sequence[Path]) -> None:
    """Print the summary to stdout: coloured on a terminal, plain lines when piped."""
    put(Group(*summary(table, runs), paths(written)))


def put(what: RenderableType) -> None:
    """Print to stdout; rendered to text first, so that a closed pipe is met by our one handler."""
    if sys.stdout is None:  # closed by who started us
        return
    free = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if free else PIPED_WIDTH, highlight=False, soft_wrap=False)
    with console.capture() as captured:
        console.print(what)
    lines = (line.rstrip() for line in captured.get().splitlines())
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that knows no dash or dagger still gets its figures.
        sys.stdout.reconfigure(errors="replace")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def summary(table: pd.DataFrame, runs: pd.DataFrame) -> Iterable[RenderableType]:
    """Yield the tables of medians and of scaling, set by set, then everything that did not count."""
    short = short_ids(table["cell"])
    for heading, rows in tables.sections(table):
        yield Text(heading, style="bold")
        yield medians(rows, short)
        if ratios := scaling(rows):
            yield Text("")
            yield ratios
        yield Text("")
    if table["unstable"].fillna(value=False).any():
        yield Text(f"{DAGGER} unstable: (max - min) / median is above the site's tolerance\n")
    if complaints := [*tables.unfinished(table), *tables.excluded(runs)]:
        yield Text("Not counted", style="bold")
        yield not_counted(complaints, short)
        yield Text("")


def medians(rows: pd.DataFrame, short: dict[str, str]) -> Table:
    """Return the medians of one set of settings, one line per cell."""
    table = _table(("storage", "left"), ("threads", "right"), ("images/s", "right"), (tables.RANGE, "right"))
    for name in ("MB/s", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("checks", overflow="fold")
    table.add_column("cell", no_wrap=True)
    for row in rows_of(rows):
        good = row["status"] == "done"
        table.add_row(
            row["storage"],
            str(row.get("threads") or tables.NONE),
            tables.number(row["images_per_s"]) + (DAGGER if row["unstable"] is True else ""),
            tables.span(row["images_per_s_min"], row["images_per_s_max"]),
            tables.number(row["read_mb_per_s"]),
            tables.count(row),
            row["checks"] if good else f"{row['status'].upper()}; {row['checks']}",
            short[row["cell"]],
            style=None if good else "red",
        )
    return table


def scaling(rows: pd.DataFrame) -> Table | None:
    """Return throughput relative to one thread, ours beside the paper's; None with nothing to say."""
    known = rows[rows["scaling"].notna()]
    if known.empty or (known["threads"] == 1).all():
        return None
    storages = list(dict.fromkeys(known["storage"]))
    published = list(paper.THREAD_SCALING) if (known["benchmark"] == "micro").all() else []
    ours = {(row["storage"], row["threads"]): row["scaling"] for row in rows_of(known)}
    heads = [("vs 1 thread", "right"), *((name, "right") for name in storages)]
    table = _table(*heads, *((f"paper's {name}", "right") for name in published))
    for threads in sorted({threads for _, threads in ours if threads != 1}):
        mine = [_times(ours.get((name, threads))) for name in storages]
        table.add_row(str(threads), *mine, *(_times(paper.ratio(name, threads)) for name in published))
    if published:
        table.caption = f"paper: {paper.SOURCE}"
        table.caption_justify = "left"
    return table


def not_counted(complaints: Sequence[tuple[str, str]], short: dict[str, str]) -> Table:
    """Return one line per cell and reason."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for cell, text in complaints:
        table.add_row(short[cell], Text(text))
    return table


def paths(written: Iterable[Path]) -> Text:
    """Return the paths of what was written, one a line, never wrapped, so that they can be copied."""
    return Text("\n".join(str(path) for path in written), no_wrap=True, overflow="ignore")


def short_ids(cells: Iterable[str]) -> dict[str, str]:
    """Return the hash at the end of each cell id, which `python -m campaign why` takes, or the whole id."""
    names = list(cells)
    ends = {cell: cell.rpartition("-")[2] for cell in names}
    unique = len(set(ends.values())) == len(names) and all(len(end) >= 6 for end in ends.values())  # noqa: PLR2004
    return ends if unique else {cell: cell for cell in names}


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table


def _times(ratio: float | None) -> str:
    return tables.NONE if ratio is None else f"{ratio:.2f}{TIMES}"
