"""What the parts of the report share: its data, the limits on how much a page shows, and the HTML templates.

The templates (folder `templates`, one file per part) escape all text from records; no code does.
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

# A page of 10,000 cells must open on a phone: the rest is in files, which the page names.
MOST_FIGURES, MOST_ROWS, MOST_CELLS, MOST_LINES = 30, 1000, 300, 200
MOST_CSV_BYTES, MOST_SVG_BYTES = 100_000, 300_000


@dataclass(frozen=True)
class Results:
    """All results of an analysis.

    The records read or skipped, the medians (one row per cell), every run, the verdicts, the charts, the SVG of the
    charts on the page by stem, and the folder that contains the page, `figures/` and `tables/`.
    """

    found: FoundRecords
    table: pd.DataFrame
    runs: pd.DataFrame
    tested: pd.DataFrame
    drawn: Sequence[FigureSpec]
    images: Mapping[str, Markup]
    home: Path


def count_sentence(shown: int, of: int, what: str, where: str) -> str:
    """Return a sentence with the number of items shown and the place of all; empty if all are shown."""
    return "" if shown >= of else f"{shown:,} of {of:,} {what} are shown; all are in {where}."


FOLDER = Path(__file__).with_name("templates")


def render_template(template: str, **data: Any) -> Markup:
    """Return a template of the folder filled with data; a missing name in the data is an error."""
    return Markup(_environment().get_template(template).render(data))  # noqa: S704 - a template escapes


def paragraphs_and_tables(*parts: str | TextTable) -> Markup:
    """Return texts as paragraphs and tables as tables, in order; empty texts are left out."""
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
