"""The first part of the report page: the number of cells and runs, and warnings such as emulated parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pandas as pd
from markupsafe import Markup

from analysis.claims.judge_claim import BY_MODEL, EMULATED, kind_of_verdict
from analysis.figures import feed_accelerators
from analysis.output.notes import missing_sentence
from analysis.page.part import MOST_LINES, Results, render_template
from analysis.records.frame import rows_of
from analysis.records.record import BOUNDS, Record, emulation_bounds, emulation_mark, sentences_on_shared_devices
from analysis.records.settings import Facts
from analysis.statistics.comparable import COLUMNS
from analysis.statistics.selection import is_number

ROLES = {
    "storage": "storage",
    "checkpoint": "checkpoint target",
    "checkpoint.fast": "fast side of the burst buffer",
    "checkpoint.slow": "slow side of the burst buffer",
}


def summary_lines(results: Results) -> Markup:
    """Return a summary of the campaign: the numbers of cells, runs and claims, the time, and warnings."""
    cells, runs = results.table, results.runs
    measured = runs[runs["role"] == "measured"]
    claims = results.verdicts[results.verdicts["pair"] == ""]
    stamps = sorted(set(runs["started_utc"]) - {""})
    unstable = int(cells["unstable"].fillna(value=False).sum())
    facts = [
        *feed_accelerators.answers(cells, runs),
        f"{len(cells):,} cells: {_counted(cells['status'])}" + (f"; {unstable:,} unstable" if unstable else ""),
        f"{len(measured):,} measured runs: {_counted(measured['status'])}",
        f"Verdicts on the paper's claims, one per claim and set of settings: {counted_claims(claims)}",
        f"Measured {_utc(stamps[0])} to {_utc(stamps[-1])} UTC" if stamps else "Measured at an unknown time",
    ]
    return render_template("summary.html", facts=facts, notices=list(reader_warnings(results)))


def reader_warnings(results: Results) -> Iterator[list[str]]:
    """Yield warnings about a reduced size, emulated parts, storages on one device, and records that cannot be read.

    A warning is a list of lines, of which the first line is the heading.
    """
    sizes = Counter(record.size for record in results.found.records if record.size)
    for size, count in sizes.items():
        reduced = ": a small version of the paper's experiment, for trying it out" if size == "smoke" else ""
        yield [f"Size {size}{reduced} ({count:,} of {len(results.table):,} cells)."]
    parts = emulated_counts(results)
    names = dict.fromkeys(part.partition(" of ")[0].partition(",")[0] for part in parts)
    lines = [f"{part}, {count:,} of {len(results.table):,} cells." for part, count in parts.items()]
    yield from _folded("Emulated", ", ".join(names), lines)
    for sentence in sentences_on_shared_devices(rows_of(results.table, COLUMNS)):
        yield [f"{sentence}: differences between these cells are not caused by the storage."]
    if sentence := missing_sentence(results.found):
        yield [f"Not in this report: {sentence}."]
    skipped = [f"the record {each.path.parent.name}/{each.path.name} {each.why}." for each in results.found.skipped]
    more = [f"{len(skipped) - MOST_LINES:,} more records."] if len(skipped) > MOST_LINES else []
    yield from _folded(
        "Not in this report", f"{len(skipped):,} records that cannot be read", skipped[:MOST_LINES] + more
    )


def _folded(head: str, several: str, lines: list[str]) -> Iterator[list[str]]:
    """Yield one warning: a single line, or several lines below a common heading. Yield nothing without lines."""
    if lines:
        yield [f"{head}: {lines[0]}"] if len(lines) == 1 else [f"{head}: {several}.", *lines]


def emulated_counts(results: Results) -> Counter[str]:
    """Return the emulated accelerators and storages, with the number of cells that used each of them."""
    parts: Counter[str] = Counter()
    for record in results.found.records:
        for name, value in record.settings.items() if EMULATED in record.settings.values() else ():
            group, _, last = name.partition(".") if value == EMULATED else ("", "", "")
            if last == "name":
                step_s = record.settings.get(f"{group}.step_s")
                parts[f"{group} of {step_s:g} s a step" if is_number(step_s) else group] += 1
    parts.update(_storages(results.found.records))
    return parts


def _storages(records: Iterable[Record]) -> Counter[str]:
    """Return the number of cells for each emulated storage, with the roles of the storage.

    A storage of the same name with other speed limits is counted separately.
    """
    cells: Counter[str] = Counter()
    keys: dict[str, set[str]] = {}
    for record in records:
        played = {key: _at_most(facts) for key, facts in record.emulated.items()}
        cells.update(dict.fromkeys(played.values(), 1))  # counts a cell once, even if the storage has several roles
        for key, name in played.items():
            keys.setdefault(name, set()).add(key)
    roles = {name: ", ".join(ROLES.get(key, key) for key in sorted(each, reverse=True)) for name, each in keys.items()}
    return Counter({f"{name} (as {roles[name]})": count for name, count in cells.items()})


def _at_most(facts: Facts) -> str:
    """Return the name of an emulated storage with its speed limits.

    The limits are unknown if the marker file of the emulated storage is damaged (`jobs.system.layers`).
    """
    if isinstance(mark := emulation_mark(facts), str):
        return mark
    if not BOUNDS.keys() & facts.keys():
        return f"{facts.get('name', '')}, of unknown speed"
    return f"{facts.get('name', '')}, at most {', '.join(emulation_bounds(facts)) or 'what lies beneath'}"


def _utc(stamp: str) -> str:
    """Return the time stamp of a record in readable form, without seconds."""
    return stamp[: len("2026-01-01T00:00")].replace("T", " ")


def counted_claims(claims: pd.DataFrame) -> str:
    """Return the number of claims for each verdict in words, for example `1 differs, 2 hold`.

    Claims that were measured on emulated storage are counted separately.
    """
    kinds = claims["emulated"].map(kind_of_verdict)
    of_kinds = ((kind, claims["verdict"][kinds == kind]) for kind in ("", EMULATED, BY_MODEL))
    parts = [f"{kind}: {_of_each(each)}" if kind else _of_each(each) for kind, each in of_kinds if len(each)]
    return "; ".join(parts) or "none"


def _of_each(verdicts: pd.Series[str]) -> str:
    several = {"holds": "hold", "differs": "differ"}
    counts = verdicts.value_counts().items()
    return ", ".join(f"{n:,} {several.get(str(word), word) if n > 1 else word}" for word, n in counts)


def _counted(values: pd.Series[str]) -> str:
    return ", ".join(f"{count:,} {value}" for value, count in values.value_counts().items())
