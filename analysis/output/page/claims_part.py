"""The verdicts on the paper's claims as one table; what was not measured, and single pairs of cells, are folded."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.output import tables
from analysis.output.page.results import MOST_LINES, MOST_ROWS, Results, some
from analysis.records.frame import Row, rows_of
from analysis.text.html import Markup, folded, joined, scrolling, tag
from analysis.text.plain import NONE, share
from analysis.verdicts.claim_judge import NOT_MEASURED

HEADINGS = ("claim", "published", "ours", "verdict", "tolerance")
TOLERANCE = (
    "A number holds within its tolerance: twice the site's own (the limit of the check spread), and half a unit of the"
    " last digit that the paper prints. An order, or a bound, has none: of an order the whole 95 % interval must be on"
    " its side. tables/verdicts.md has the tolerance of each and where it comes from."
)


def verdicts(results: Results) -> Markup:
    """Return each claim of the paper with what it published, ours and the verdict, claim by claim."""
    rows = [row for _, of_claim in results.tested.groupby("claim", sort=False) for row in rows_of(of_claim)]
    pairs = [row for row in rows if row["pair"]]
    told = [row for row in rows if not row["pair"] and row["verdict"] != NOT_MEASURED]
    left = [row for row in rows if not row["pair"] and row["verdict"] == NOT_MEASURED]
    papers: dict[str, list[Row]] = {}
    for row in told:
        papers.setdefault(row["source"].partition(",")[0], []).append(row)
    parts = [
        joined([*([tag("h3", paper)] if len(papers) > 1 else []), _table(rows, MOST_ROWS)])
        for paper, rows in papers.items()
    ]
    parts.append(tag("p", TOLERANCE if told else "None of the paper's claims was measured here."))
    if left:
        lines = (tag("li", f"{_about(row)}: {tables.why_of(row)}") for row in left[:MOST_LINES])
        parts.append(folded(f"Not measured: {len(left)}, each with the command that measures it", tag("ul", *lines)))
    if pairs:
        parts.append(folded(f"Single pairs of cells: {len(pairs)}", _table(pairs, MOST_LINES)))
    return joined(parts)


def _table(rows: Sequence[Row], most: int) -> Markup:
    head = tag("tr", *(tag("th", name, scope="col") for name in HEADINGS))
    body = tag("tbody", *map(_row, rows[:most]))
    more = tag("p", some(most, len(rows), "verdicts", "tables/verdicts.md"))
    return joined([scrolling(tag("table", tag("thead", head), body, class_="claims")), more])


def _row(row: Row) -> Markup:
    ours, interval, _ = tables.evidence(row)
    texts = [
        joined([row["claim"], _small(", ".join(filter(None, (row["source"], row["pair"], row["about"]))))]),
        row["published"],
        ours if ours == NONE else joined([ours, _small(interval)]),
        joined([tag("strong", tables.verdict_of(row), class_=row["verdict"].split()[0]), _small(row["why"])]),
        share(row["tolerance"], 1) if (row["tolerance"] or 0) > 0 else "none",
    ]
    return tag("tr", *(tag("td", text, data_label=name) for name, text in zip(HEADINGS, texts, strict=True)))


def _small(text: str) -> Markup:
    return tag("small", text)


def _about(row: Row) -> str:
    return f"{row['claim']} ({row['about'] or row['source']})"
