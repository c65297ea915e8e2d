"""Data, limits and functions that all parts of the HTML report page use.

Each part has a template in the folder `templates`. The templates escape all texts from records, so no code escapes
these texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.figures.kit.figure_spec import FigureSpec
from analysis.output.text_table import TextTable
from analysis.records.read_records import FoundRecords
from analysis.text import without_illegal_html

# Limits on the content of the page, because a page about 10,000 cells must open on a phone. The page names the files
# that have the complete data.
MOST_FIGURES, MOST_ROWS, MOST_CELLS, MOST_LINES = 30, 1000, 300, 200
MOST_CSV_BYTES, MOST_SVG_BYTES = 100_000, 300_000


@dataclass(frozen=True)
class Results:
    """All results of an analysis.

    `found` has the records, `table` the medians (one row per cell), `runs` every run, and `verdicts` the verdicts on
    claims. `drawn` has all charts, and `images` the SVG of the charts on the page, by file stem. `home` is the folder
    of the page, which also contains `figures/` and `tables/`.
    """

    found: FoundRecords
    table: pd.DataFrame
    runs: pd.DataFrame
    verdicts: pd.DataFrame
    drawn: Sequence[FigureSpec]
    images: Mapping[str, Markup]
    home: Path


def count_sentence(shown: int, of: int, what: str, where: str) -> str:
    """Return a sentence that tells how many items the page shows and which file has all items.

    Return `""` if the page shows all items.
    """
    return "" if shown >= of else f"{shown:,} of {of:,} {what} are shown; all are in {where}."


FOLDER = Path(__file__).with_name("templates")


def render_template(template: str, **data: Any) -> Markup:
    """Return the HTML of a template that is filled with `data`; raise an error if `data` lacks a needed name."""
    return Markup(_environment().get_template(template).render(data))  # noqa: S704 - a template escapes


def paragraphs_and_tables(*parts: str | TextTable) -> Markup:
    """Return the HTML of some texts (as paragraphs) and tables, in the given order. Empty texts are left out."""
    return render_template("tables.html", parts=[part for part in parts if part])


@cache
def _environment() -> Environment:
    return Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else without_illegal_html(str(value)),
        loader=FileSystemLoader(FOLDER),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
