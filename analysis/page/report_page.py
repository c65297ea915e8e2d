"""Make the HTML report page from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from analysis.figures import step_timeline as timelines
from analysis.figures.profiled_calls import STEM
from analysis.page import cells, charts, evidence, machines, summary
from analysis.page.part import Results, render_template

HEADINGS = {
    "summary": "",
    "medians": "Medians",
    "verdicts": "The paper's claims",
    "figures": "More figures",
    "calls": "POSIX calls",
    "steps": "Steps",
    "proofs": "Proofs",
    "machines": "Machines",
    "cells": "Cells",
    "again": "Run it again",
}
"""The heading of each part of the page by the id of the part, in the order of the page."""


def parts_without_charts(results: Results) -> dict[str, Markup]:
    """Return the HTML of each part of the page by id, without the charts."""
    return {
        "summary": summary.summary_lines(results),
        "medians": cells.median_tables(results) + cells.not_counted_table(results),
        "verdicts": evidence.claim_tables(results),
        "calls": charts.call_tables(seen) if (seen := charts.profiled_cells(results)) else Markup(),
        "steps": charts.step_table(results),
        "proofs": evidence.check_table(results),
        "machines": machines.machine_tables(results),
        "cells": cells.cell_sections(results),
        "again": evidence.repeat_commands(results.found.home),
    }


def report_html(results: Results, texts: Mapping[str, Markup]) -> bytes:
    """Return the report page as UTF-8 HTML. Equal records give the same bytes.

    `texts` comes from `parts_without_charts`.
    """
    return render_template("page.html", title=_title(results), parts=_parts(results, texts)).encode()


def _title(results: Results) -> str:
    benchmarks, hosts = (sorted(set(results.table[name]) - {""}) for name in ("benchmark", "host"))
    shown = hosts[:3]
    more = f" and {len(hosts) - len(shown)} more" if len(hosts) > len(shown) else ""
    return f"Campaign: {', '.join(benchmarks)} on {', '.join(shown) or 'an unknown host'}{more}"


def _parts(results: Results, texts: Mapping[str, Markup]) -> list[dict[str, Any]]:
    """Return the name, the heading and the content of each part that is not empty, in the order of the page."""
    first = charts.headline_chart(results.drawn)
    others = [spec for spec in results.drawn if spec not in first]
    of_calls = [spec for spec in others if spec.stem.startswith(f"{STEM}-")]
    of_steps = [spec for spec in others if spec.stem.partition("-")[0] == timelines.STEM]
    others = [spec for spec in others if spec not in (*of_calls, *of_steps)]
    drawn = {"summary": first, "figures": others, "calls": of_calls, "steps": of_steps if texts["steps"] else []}
    drawings = {name: charts.charts_with_tables(results, specs) for name, specs in drawn.items() if specs}
    contents = {name: texts.get(name, Markup()) + drawings.get(name, Markup()) for name in HEADINGS}
    return [{"name": name, "heading": HEADINGS[name], "content": it} for name, it in contents.items() if it]
