"""What the figure of a comparison shows: the ratio of each pair of cells, the largest changes where there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.compare.figure import ratios
from analysis.compare.judge import RATE, READ, RUNTIME, WRITTEN
from analysis.compare.tables import INTERVAL
from analysis.figures.kit.figure import Plate
from analysis.output.columns import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

# More rows than this are no figure that anybody reads.
MOST_ROWS = 60
TITLES = {
    RATE: "Throughput, B relative to A",
    READ: "Read from the storages, B relative to A",
    WRITTEN: "Written to the storages, B relative to A",
    RUNTIME: "Runtime, B relative to A",
}


def plates(table: pd.DataFrame, sides: Sequence[str]) -> list[Plate]:
    """Return a plate for each figure that was compared, of the pairs that have a ratio.

    Parameters
    ----------
    table
        A row per pair, as `analysis.compare.judge.judged` returns it.
    sides
        What A and B are, for the caption.
    """
    made = []
    for figure, title in TITLES.items():
        known = table[(table["figure"] == figure) & table["ratio"].notna()]
        if not known.empty:
            caption = f"{'. '.join(sides)}. {_what(known)}"
            made.append(Plate(f"ratio-{figure}", title, caption, largest(known), ratios))
    return made


def largest(known: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the largest changes, up or down, in the order of the table."""
    change = np.abs(np.log(known["ratio"]))
    kept = change.sort_values(ascending=False, kind="stable").index[:MOST_ROWS]
    return known[known.index.isin(kept)].reset_index(drop=True)


def _what(known: pd.DataFrame) -> str:
    many = len(known) > MOST_ROWS
    stands = f"The {MOST_ROWS} largest changes of {len(known)} cells; all stand in comparison.csv. " if many else ""
    limits = " and ".join(share(limit, 1) for limit in sorted(set(known["tolerance"].dropna())))
    shaded = f"; shaded: the tolerance, checks.spread_max, {limits}" if limits else ""
    return f"{stands}Ratio of the medians of the valid measured runs with the {INTERVAL}{shaded}."
