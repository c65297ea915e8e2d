"""What a report is made of, and how much of it a page may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.figures.kit.figure_spec import FigureSpec
from analysis.records.read_records import Found
from analysis.text.html import Markup

# A page of 10,000 cells must open on a phone: what is beyond these stands in files, and the page says in which.
MOST_FIGURES, MOST_ROWS, MOST_CELLS, MOST_LINES = 30, 1000, 300, 200
MOST_CSV_BYTES, MOST_SVG_BYTES = 100_000, 300_000


@dataclass(frozen=True)
class Results:
    """Everything that an analysis found.

    The records read or refused, the medians (one row per cell), every run, the verdicts, the figures, those that the
    page holds as SVG by their stem, and the folder that the page, `figures/` and `tables/` lie in.
    """

    found: Found
    table: pd.DataFrame
    runs: pd.DataFrame
    tested: pd.DataFrame
    drawn: Sequence[FigureSpec]
    images: Mapping[str, Markup]
    home: Path


def some(shown: int, of: int, what: str, where: str) -> str:
    """Say how many of something the page holds and where all are; empty where it holds them all."""
    return "" if shown >= of else f"{shown:,} of {of:,} {what} are shown; all are in {where}."
