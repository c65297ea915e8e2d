"""The page, part by part."""

from __future__ import annotations

from pathlib import Path

from analysis.figures import steps as timelines
from analysis.figures.calls import STEM
from analysis.output.page import advice, calls, cells, figures, machines, proofs, steps, summary, verdicts
from analysis.output.page.rerun import again
from analysis.output.page.results import Results
from analysis.text.html import Markup, joined, link, tag

CSS = Path(__file__).with_name("page.css")


def page(results: Results) -> bytes:
    """Return the report as HTML, UTF-8, the same bytes from the same records."""
    title = _title(results)
    parts = _parts(results)
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


def _parts(results: Results) -> list[tuple[str, str, Markup]]:
    """Return id, heading and content of each part: first what was found, under the title, then what it rests on."""
    first = figures.headline(results.drawn)
    others = [spec for spec in results.drawn if spec not in first]
    of_calls = [spec for spec in others if spec.stem.startswith(f"{STEM}-")]
    seen = calls.profiled(results)
    tested = advice.advice(results.found.home)
    of_steps = [spec for spec in others if spec.stem.partition("-")[0] == timelines.STEM]
    watched = steps.steps(results)
    others = [spec for spec in others if spec not in (*of_calls, *of_steps)]
    return [
        ("summary", "", joined([summary.summary(results), figures.figures(results, first)])),
        ("medians", "Medians", joined([cells.medians(results), cells.not_counted(results)])),
        ("verdicts", "The paper's claims", verdicts.verdicts(results)),
        *([("figures", "More figures", figures.figures(results, others))] if others else []),
        *(
            [("calls", "POSIX calls", joined([calls.calls(seen), figures.figures(results, of_calls)]))]
            if seen or of_calls
            else []
        ),
        *([("steps", "Steps", joined([watched, figures.figures(results, of_steps)]))] if watched else []),
        *([("advice", "Advice, tested", tested)] if tested else []),
        ("proofs", "Proofs", proofs.proofs(results)),
        ("machines", "Machines", machines.machines(results)),
        ("cells", "Cells", cells.cells(results)),
        ("again", "Run it again", again(results.found.home)),
    ]
