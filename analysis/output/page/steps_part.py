"""Where the steps' time went, cell by cell, where TensorFlow's profiler watched (`profile.tensorflow`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from analysis.output.page.results import MOST_LINES, Results, some
from analysis.records.record import Record
from analysis.records.settings import storage_name
from analysis.text.html import Markup, joined, table, tag
from analysis.text.plain import NONE, number, share
from analysis.traces.bound import LEAST, Bound
from analysis.traces.categories import REMEDIES, SPENT
from analysis.traces.typical import typical_runs

OF_RUN = ("steps_s", "waited_s", *(f"spent_{name}" for name in SPENT), *(f"saves_{name}" for name in REMEDIES))
HEADINGS = ("storage", "threads", "prefetch", "input-bound", "would save at most, s", "steps, s", *SPENT, "cell")
TOLD = (
    "Seconds of the steps in the window, of the run of median runtime: each moment is given to one category, the first"
    " that goes on, so that a line adds up to its steps. Input-bound: at least"
    f" {LEAST:.0%} of them is spent on reading, decoding, buffering and waiting for input. What would remove that, and"
    " the most that it saves:"
)
TEST = "What is saved does not add up. `python -m campaign advise CELL --test` changes one of them and measures."


def steps(results: Results) -> Markup:
    """Return a table of the cells whose steps were watched; empty where there is none."""
    runs = results.runs
    if "tensorflow_steps_s" not in runs:
        return Markup()
    typical = typical_runs(runs[runs["tensorflow_steps_s"] > 0], [f"tensorflow_{name}" for name in OF_RUN])
    found = [(each, typical[each.cell]) for each in results.found.records if each.cell in typical]
    if not found:
        return Markup()
    rows = [_line(*each) for each in found[:MOST_LINES]]
    left = [True, *[False] * 3, True, *[False] * (len(HEADINGS) - 6), True]
    words = "; ".join(f"{name}: {told}" for name, told in REMEDIES.items() if name != told)
    shown = some(len(rows), len(found), "cells", "tables/runs.csv")
    return joined([tag("p", f"{TOLD} {words}. {TEST}"), table(HEADINGS, rows, left), tag("p", shown)])


def _line(record: Record, run: Mapping[str, Any]) -> list[str]:
    facts, seen = record.settings, {name: run.get(f"tensorflow_{name}", math.nan) for name in OF_RUN}
    saves = {name: seen[f"saves_{name}"] for name in REMEDIES}
    bound = Bound(seen["steps_s"], seen["waited_s"], {name: it for name, it in saves.items() if not math.isnan(it)})
    words = f"{'yes' if bound.share >= LEAST else 'no'}, {share(bound.share, 1)}"
    saved = ", ".join(f"{name} {number(it)}" for name, it in bound.named.items())
    place = [storage_name(facts), str(facts.get("threads", "")), str(facts.get("prefetch", ""))]
    times = [number(seen[name]) for name in ("steps_s", *(f"spent_{name}" for name in SPENT))]
    return [*place, words, saved or NONE, *times, record.cell]
