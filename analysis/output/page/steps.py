"""Where the steps' time went, cell by cell, where TensorFlow's profiler watched (`profile.tensorflow`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.output.page.results import MOST_LINES, some
from analysis.records.settings import storage_name
from analysis.text.html import joined, table, tag
from analysis.text.plain import number, share
from analysis.traces.bound import LEAST
from analysis.traces.shares import CATEGORIES, UNACCOUNTED
from analysis.traces.typical import typical_runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from analysis.output.page.results import Results
    from analysis.records.record import Record
    from analysis.text.html import Markup

PARTS = (*CATEGORIES, UNACCOUNTED)
SPENT = "tensorflow_spent_"
HEADINGS = ("storage", "threads", "prefetch", "input-bound", "steps, s", *PARTS, "cell")
TOLD = (
    "Seconds of the steps in the window, of the run of median runtime: each moment is given to one category, the first"
    " that goes on, so that a line adds up to its steps. Input-bound: at least"
    f" {LEAST:.0%} of them is spent on reading, decoding, buffering and waiting for input. What would remove it:"
    " python -m analysis trace FILE, of the table beside the record."
)


def steps(results: Results) -> Markup | None:
    """Return a table of the cells whose steps were watched; None where there is none."""
    runs = results.runs
    if "tensorflow_steps_s" not in runs:
        return None
    typical = typical_runs(runs[runs["tensorflow_steps_s"] > 0], ["tensorflow_steps_s", "tensorflow_waited_s",
                                                                  *(f"{SPENT}{name}" for name in PARTS)])  # fmt: skip
    found = [(each, typical[each.cell]) for each in results.found.records if each.cell in typical]
    if not found:
        return None
    rows = [_line(*each) for each in found[:MOST_LINES]]
    left = [True, *[False] * (len(HEADINGS) - 2), True]
    shown = some(len(rows), len(found), "cells", "tables/runs.csv")
    return joined([tag("p", TOLD), table(HEADINGS, rows, left), tag("p", shown)])


def _line(record: Record, run: Mapping[str, Any]) -> list[str]:
    facts, whole = record.settings, run["tensorflow_steps_s"]
    waited = run["tensorflow_waited_s"] / whole
    words = f"{'yes' if waited >= LEAST else 'no'}, {share(waited, 1)}"
    place = [storage_name(facts), str(facts.get("threads", "")), str(facts.get("prefetch", ""))]
    return [*place, words, number(whole), *(number(run[f"{SPENT}{name}"]) for name in PARTS), record.cell]
