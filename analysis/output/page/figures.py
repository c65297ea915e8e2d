"""Every figure with the numbers that it shows, and the verdicts on the paper's claims."""

from __future__ import annotations

import base64
from itertools import islice
from typing import TYPE_CHECKING

import pandas as pd

from analysis.figures.kit import save
from analysis.output import tables
from analysis.output.page.results import MOST_CSV_BYTES, MOST_FIGURES, MOST_LINES, MOST_SETS, MOST_SVG_BYTES, some
from analysis.records.frame import rows_of
from analysis.text.html import folded, joined, link, scrolling, table, tag
from analysis.text.plain import NONE, number

if TYPE_CHECKING:
    from typing import Any

    from analysis.figures.kit.figure import FigureSpec
    from analysis.output.page.results import Results
    from analysis.records.frame import Row
    from analysis.text.html import Markup


def verdicts(results: Results) -> Markup:
    """Return each claim of the paper with its verdict and evidence, the single pairs folded."""
    parts, sets = [], results.tested.groupby("about", sort=False)
    for about, rows in islice(sets, MOST_SETS):
        pairs = rows[rows["pair"] != ""]
        parts.append(tag("h3", str(about) or tables.NOT_MEASURED_HERE))
        parts += [_claim(row) for row in rows_of(rows[rows["pair"] == ""])]
        if not pairs.empty:
            parts.append(folded(f"Each pair of cells ({len(pairs)})", _pairs(pairs)))
    more = some(MOST_SETS, sets.ngroups, "sets of settings", "tables/verdicts.md")
    return joined([*parts, tag("p", more)])


def figures(results: Results) -> Markup:
    """Return the figures in the paper's order, each with its table and a CSV to take away."""
    shown = results.drawn[:MOST_FIGURES]
    more = some(len(shown), len(results.drawn), "figures", "the folder figures/ beside this page")
    return joined([*(_figure(spec, results.images[spec.stem]) for spec in shown), tag("p", more)])


def _claim(row: Row) -> Markup:
    ours, interval, tolerance = tables.evidence(row)
    numbers = f"ours {ours} ({interval}), tolerance: {tolerance}; " if ours != NONE else ""
    return tag("p", _verdict(row), f": {row['claim']} ({row['source']}); {numbers}{tables.why_of(row)}")


def _pairs(pairs: pd.DataFrame) -> Markup:
    rows = rows_of(pairs.head(MOST_LINES))
    told = [[_verdict(row), f"{row['claim']}: {row['pair']}", *tables.evidence(row), row["why"]] for row in rows]
    more = some(len(told), len(pairs), "pairs", "tables/verdicts.md")
    headings = ("verdict", "claim", "ours", "interval", "tolerance", "why")
    return joined([table(headings, told, [True, True, False, False, False, True]), tag("p", more)])


def _verdict(row: Row) -> Markup:
    return tag("strong", tables.verdict_of(row), class_=row["verdict"].split()[0])


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
    content = save.csv(spec.frame)
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
