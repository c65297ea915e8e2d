"""The head of the report: how much was measured, and what it is not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from analysis.output.page.results import MOST_LINES
from analysis.records.devices import one_device
from analysis.records.frame import rows_of
from analysis.text.html import joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pandas as pd

    from analysis.output.page.results import Results
    from analysis.records.record import Record
    from analysis.records.settings import Facts
    from analysis.text.html import Markup

EMULATED = "emulated"
BOUNDS = {
    "read_mb_per_s": "MB/s read",
    "write_mb_per_s": "MB/s written",
    "read_iops": "reads/s",
    "write_iops": "writes/s",
}
ROLES = {
    "storage": "storage",
    "checkpoint": "checkpoint target",
    "checkpoint.fast": "fast side of the burst buffer",
    "checkpoint.slow": "slow side of the burst buffer",
}


def summary(results: Results) -> Markup:
    """Return how much was measured, and what the reader must know before any figure."""
    cells, runs = results.table, results.runs
    measured = runs[runs["role"] == "measured"]
    whole = results.tested[results.tested["pair"] == ""]
    stamps = sorted(set(runs["started_utc"]) - {""})
    facts = {
        "cells": f"{len(cells):,} ({_counted(cells['status'])})",
        "measured runs": f"{len(measured):,} ({_counted(measured['status'])})",
        "warm-up runs": f"{len(runs) - len(measured):,}",
        "unstable cells": f"{int(cells['unstable'].fillna(value=False).sum()):,}",
        "figures": f"{len(results.drawn):,}",
        "claims of the paper": ", ".join(
            f"{told} {count:,}" for told, count in whole["verdict"].value_counts().items()
        ),
        "measured": f"{_utc(stamps[0])} to {_utc(stamps[-1])}" if stamps else "unknown",
    }
    notices = (tag("p", text, class_="notice") for text in warnings(results))
    return joined([*notices, _facts(facts)])


def warnings(results: Results) -> Iterator[str]:
    """Yield what keeps the figures from being the paper's, or the page from being whole."""
    sizes = Counter(record.size for record in results.found.records if record.size)
    for size, count in sizes.items():
        reduced = ": a small version of the paper's experiment, for trying it out" if size == "smoke" else ""
        yield f"Size {size}{reduced} ({count:,} of {len(results.table):,} cells)."
    yield from emulated(results)
    yield from (f"{told}: what differs between them is not the storage." for told in one_device(rows_of(results.table)))
    skipped = results.found.skipped
    for each in skipped[:MOST_LINES]:
        yield f"Not in this report: the record {each.path.parent.name}/{each.path.name} {each.why}."
    if len(skipped) > MOST_LINES:
        yield f"Not in this report: {len(skipped) - MOST_LINES:,} more records that cannot be read."


def emulated(results: Results) -> Iterator[str]:
    """Yield the parts that were not the real thing, with the number of cells."""
    parts: Counter[str] = Counter()
    for record in results.found.records:
        for name, value in record.settings.items():
            group, _, last = name.rpartition(".")
            if last == "name" and value == EMULATED and "." not in group:
                step_s = record.settings.get(f"{group}.step_s")
                parts[f"{group} of {step_s:g} s a step" if _is_number(step_s) else group] += 1
    parts.update(_storages(results.found.records))
    for part, count in parts.items():
        yield f"Emulated: {part}, {count:,} of {len(results.table):,} cells."


def _storages(records: Iterable[Record]) -> Counter[str]:
    """Count the cells in which each storage was emulated, in whatever roles; each of its bounds is one by itself."""
    cells: Counter[str] = Counter()
    keys: dict[str, set[str]] = {}
    for record in records:
        played = {key: _at_most(facts) for key, facts in record.emulated.items()}
        cells.update(dict.fromkeys(played.values(), 1))  # a cell is one cell in however many roles
        for key, told in played.items():
            keys.setdefault(told, set()).add(key)
    roles = {told: ", ".join(ROLES.get(key, key) for key in sorted(each, reverse=True)) for told, each in keys.items()}
    return Counter({f"{told} (as {roles[told]})": count for told, count in cells.items()})


def _at_most(facts: Facts) -> str:
    """Name an emulated storage and its bounds; those of an unreadable marker are not known (`jobs.system.emulated`)."""
    if not BOUNDS.keys() & facts.keys():
        return f"{facts.get('name', '')}, of unknown speed"
    known = (f"{facts[each]:g} {unit}" for each, unit in BOUNDS.items() if _is_number(facts.get(each)))
    return f"{facts.get('name', '')}, at most {', '.join(known) or 'what lies beneath'}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _facts(facts: Mapping[str, str]) -> Markup:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()))


def _utc(stamp: str) -> str:
    """Return a stamp of a record to the second, as people write it."""
    return stamp.partition(".")[0].removesuffix("Z").replace("T", " ") + " UTC"


def _counted(values: pd.Series[str]) -> str:
    return ", ".join(f"{count:,} {value}" for value, count in values.value_counts().items())
