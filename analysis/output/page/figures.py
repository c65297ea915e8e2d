"""Every figure with the numbers that it shows."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.figures.kit.figure_spec import FigureSpec
from analysis.output.page.results import MOST_CSV_BYTES, MOST_FIGURES, MOST_LINES, MOST_SVG_BYTES, Results, some
from analysis.text.html import Markup, folded, joined, link, scrolling, table, tag
from analysis.text.plain import NONE, number
from analysis.text.spreadsheet import csv


def headline(drawn: Sequence[FigureSpec]) -> Sequence[FigureSpec]:
    """Return the figure that answers what was asked, as one or none; baselines are measured beside something else."""
    return sorted(drawn, key=lambda spec: spec.stem.startswith("table1"))[:1]


def figures(results: Results, drawn: Sequence[FigureSpec]) -> Markup:
    """Return figures, each with its table and a CSV to take away."""
    shown = [spec for spec in drawn if results.images[spec.stem]][:MOST_FIGURES]
    more = some(len(shown), len(drawn), "figures", "the folder figures/ beside this page")
    return joined([*(_figure(spec, results.images[spec.stem]) for spec in shown), tag("p", more)])


def _figure(spec: FigureSpec, image: Markup) -> Markup:
    rows = [[_text(value) for value in row] for row in spec.frame.head(MOST_LINES).itertuples(index=False, name=None)]
    more = some(len(rows), len(spec.frame), "rows", f"figures/{spec.stem}.csv")
    left = [not pd.api.types.is_numeric_dtype(kind) for kind in spec.frame.dtypes]
    small = len(image) <= MOST_SVG_BYTES
    return tag(
        "figure",
        tag("h3", spec.title),
        scrolling(image) if small else tag("p", f"Too large for this page; it stands in figures/{spec.stem}.pdf."),
        tag("figcaption", spec.caption),
        tag("p", *_downloads(spec), class_="files"),
        folded(
            f"Its numbers ({len(spec.frame)} rows)",
            table([str(name) for name in spec.frame], rows, left),
            tag("p", more),
        ),
        id=spec.stem,
    )


def _downloads(spec: FigureSpec) -> list[str]:
    """Return links to the figure's files, the CSV within the page unless it is long."""
    content = csv(spec.frame)
    name = f"{spec.stem}.csv"
    within = f"data:text/csv;charset=utf-8;base64,{base64.b64encode(content).decode()}"
    target = within if len(content) <= MOST_CSV_BYTES else f"figures/{name}"
    beside = [link(f"figures/{spec.stem}{ending}", f"{spec.stem}{ending}") for ending in (".pdf", ".png")]
    return [link(target, name, download=name), " ", beside[0], " ", beside[1]]


def _text(value: Any) -> str:
    """Return a value of the frame as it is read best; the CSV has all its digits."""
    if pd.isna(value):
        return NONE
    return number(value) if isinstance(value, float) else str(value)
