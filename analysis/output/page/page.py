"""The page, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from analysis.figures import step_timeline as timelines
from analysis.figures.profiled_calls import STEM
from analysis.output.page import advice, calls_part, cells, claims_part, figures, machines, proofs, steps_part, summary
from analysis.output.page.rerun import again
from analysis.output.page.results import Results
from analysis.text.html import Markup, joined, link, tag

CSS = Path(__file__).with_name("page.css")
HEADINGS = {
    "summary": "",
    "medians": "Medians",
    "verdicts": "The paper's claims",
    "figures": "More figures",
    "calls": "POSIX calls",
    "steps": "Steps",
    "advice": "Advice, tested",
    "proofs": "Proofs",
    "machines": "Machines",
    "cells": "Cells",
    "again": "Run it again",
}
"""The parts of the page by their ids, in their order."""


def undrawn(results: Results) -> dict[str, Markup]:
    """Return the parts of the page that have no drawing, by their ids; an empty one is left out of the page."""
    return {
        "summary": summary.summary(results),
        "medians": joined([cells.medians(results), cells.not_counted(results)]),
        "verdicts": claims_part.verdicts(results),
        "calls": calls_part.calls(seen) if (seen := calls_part.profiled(results)) else Markup(),
        "steps": steps_part.steps(results),
        "advice": advice.advice(results.found.home),
        "proofs": proofs.proofs(results),
        "machines": machines.machines(results),
        "cells": cells.cells(results),
        "again": again(results.found.home),
    }


def page(results: Results, texts: Mapping[str, Markup]) -> bytes:
    """Return the report as HTML, UTF-8, the same bytes from the same records; `texts` are those of `undrawn`."""
    title = _title(results)
    parts = _parts(results, texts)
    links = tag("nav", *(link(f"#{name}", heading) for name, heading, _ in parts if heading), aria_label="parts")
    told = (
        tag("section", *([tag("h2", heading)] if heading else []), content, id=name) for name, heading, content in parts
    )
    head = joined(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", title),
            tag("style", Markup(CSS.read_text(encoding="utf-8"))),
        ]
    )
    body = tag("body", tag("header", tag("h1", title), links), tag("main", *told))
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), body, lang='en')}\n".encode()


def _title(results: Results) -> str:
    benchmarks, hosts = (sorted(set(results.table[name]) - {""}) for name in ("benchmark", "host"))
    shown = hosts[:3]
    more = f" and {len(hosts) - len(shown)} more" if len(hosts) > len(shown) else ""
    return f"Campaign: {', '.join(benchmarks)} on {', '.join(shown) or 'an unknown host'}{more}"


def _parts(results: Results, texts: Mapping[str, Markup]) -> list[tuple[str, str, Markup]]:
    """Return id, heading and content of each part: first what was found, under the title, then what it rests on."""
    first = figures.headline(results.drawn)
    others = [spec for spec in results.drawn if spec not in first]
    of_calls = [spec for spec in others if spec.stem.startswith(f"{STEM}-")]
    of_steps = [spec for spec in others if spec.stem.partition("-")[0] == timelines.STEM]
    others = [spec for spec in others if spec not in (*of_calls, *of_steps)]
    drawn = {"summary": first, "figures": others, "calls": of_calls, "steps": of_steps if texts["steps"] else []}
    drawings = {name: figures.figures(results, specs) for name, specs in drawn.items() if specs}
    nothing = Markup()
    contents = ((name, joined([texts.get(name, nothing), drawings.get(name, nothing)])) for name in HEADINGS)
    return [(name, HEADINGS[name], content) for name, content in contents if content]
