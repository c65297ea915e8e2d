"""The pairs of cells of two campaigns, and the verdict whether one is faster, with the evidence, or why there is none.

A change counts if the interval of the ratio does not contain 1, so that it is no accident of these runs, and if it is
larger than the tolerance (the limit of the check `spread` in the records), so that it is no accident of a day.
The larger of two tolerances counts: noise at either site is no change. If a cell is unstable, there is a verdict only
if the whole interval is on one side of the tolerance.

Cells correspond by their ids, else by the settings that define the measurement.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.records.runs import HIGHER
from analysis.records.settings import IMPLIED, Facts, is_storage
from analysis.statistics.comparable import (
    CURE_OF_LOOSER,
    FEWEST_RUNS,
    differing_conditions,
    sentence_on_looser_checks,
    sentence_on_replaced_calls,
)
from analysis.statistics.medians import positive_values
from analysis.statistics.ratio import ROUNDING, Ratio, ratio_of_medians
from analysis.text import percentage

NAMES_STORAGE = ("storage", "storage.name")
# Settings of the place of data: two sites may mount the same kind of disk at different places, or emulate it.
PLACES = ("root", "path", "emulated")
# Settings whose difference makes a pair incomparable: it is reported, and the pair is still made.
MEANING = frozenset({"benchmark_version", "data"})

INTERVAL = "95 % percentile interval of the bootstrap"


@dataclass(frozen=True)
class MatchedCell:
    """A cell for matching: the row of its medians, its settings, and its keys from strict to loose."""

    row: Row
    facts: Facts
    keys: tuple[str, ...]


# A cell of each campaign, or a cell of one campaign and None.
Pair = tuple[MatchedCell | None, MatchedCell | None]


def cells_to_match(table: pd.DataFrame, known_as: Mapping[str, str] | None = None) -> list[MatchedCell]:
    """Return the cells of a table of medians; `known_as` maps storage names to the other campaign's names."""
    return [_cell(row, known_as or {}) for row in rows_of(table.astype({"unstable": object}))]


def matched_pairs(before: Sequence[MatchedCell], after: Sequence[MatchedCell]) -> list[Pair]:
    """Return each cell with its partner, or with None if it has no partner; pairs without a partner come last.

    Cells with equal ids are partners; then cells with equal settings, wherever storage and data lie; then also with
    another version of the benchmark or other data; then also with another storage. In each step two cells are partners
    only if their keys are unique in both campaigns: with two candidates the right one is not known.
    """
    partner: dict[int, MatchedCell] = {}
    taken: set[int] = set()
    for step in range(len(before[0].keys) if before else 0):
        ours, theirs = _unique(before, step), _unique(after, step)
        for key in ours.keys() & theirs.keys():
            if id(ours[key]) not in partner and id(theirs[key]) not in taken:
                partner[id(ours[key])] = theirs[key]
                taken.add(id(theirs[key]))
    matched = [(cell, partner[id(cell)]) for cell in before if id(cell) in partner]
    left = [(cell, None) for cell in before if id(cell) not in partner]
    return [*matched, *left, *((None, cell) for cell in after if id(cell) not in taken)]


def _cell(row: Row, known_as: Mapping[str, str]) -> MatchedCell:
    facts = row["series_key"].facts | {"threads": row.get("threads")}
    name = known_as.get(row["storage_name"])
    # With another storage name the cell does not match by its id any more.
    id_key = row["cell"] if name is None else f"{row['cell']} as {name}"
    renamed_facts = facts if name is None else facts | {each: name for each in NAMES_STORAGE if each in facts}
    return MatchedCell(row, facts, (id_key, *_looser(renamed_facts)))


def _looser(facts: Facts) -> Iterator[str]:
    """Yield the settings as text, each time with fewer settings."""
    places = {name for name in facts if name.rpartition(".")[2] in PLACES}
    storage = {name for name in facts if is_storage(name)}
    for free in ({IMPLIED} | more for more in (places, places | MEANING, places | MEANING | storage)):
        yield json.dumps({name: facts[name] for name in sorted(facts) if name not in free})


def _unique(campaign: Sequence[MatchedCell], step: int) -> dict[str, MatchedCell]:
    counts = Counter(cell.keys[step] for cell in campaign)
    return {cell.keys[step]: cell for cell in campaign if counts[cell.keys[step]] == 1}


FASTER, SLOWER, SAME, NOT_COMPARABLE = "faster", "slower", "no change", "not comparable"
TOLD = (FASTER, SLOWER, SAME)
VERDICTS = (*TOLD, NOT_COMPARABLE)
SIDES = ("a", "b")
OF_SIDE = ("cell", "storage", "host", "tensorflow", "status", "n_valid", "median", "min", "max")
COLUMNS = [
    "label", "benchmark", "figure", "ratio", "low", "high", "tolerance", "verdict", "why",
    *(f"{name}_{side}" for side in SIDES for name in OF_SIDE),
]  # fmt: skip


def judged_pairs(labelled: Sequence[tuple[str, Pair]], runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return one row per pair (`COLUMNS`): both medians, their ratio B / A with its interval, and the verdict.

    `labelled` has each pair with its label; `runs` are the frames of runs of A and of B.
    """
    named = {next(cell for cell in pair if cell).row["figure"] for _, pair in labelled}
    figures = [{name: positive_values(each, name) if name in each else {} for name in named} for each in runs]
    rows = []
    for label, pair in labelled:
        row = next(cell for cell in pair if cell).row
        benchmark, figure = row["benchmark"], row["figure"]
        values = [of[figure].get(cell.row["cell"], []) if cell else [] for cell, of in zip(pair, figures, strict=True)]
        about = {"label": label, "benchmark": benchmark, "figure": figure}
        rows.append(about | _sides(pair, figure) | _finding(pair, values))
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(("ratio", "low", "high", "tolerance"), "float64"))


def is_decided(ratio: Ratio, tolerance: float) -> bool:
    """Return whether the whole interval of a ratio is within the tolerance, or the whole interval is beyond it."""
    least, most = 1 / (1 + tolerance), 1 + tolerance
    return (least <= ratio.low and ratio.high <= most) or ratio.high < least or most < ratio.low


def verdict_on_ratio(ratio: Ratio, tolerance: float, better: str) -> tuple[str, str]:
    """Return the verdict on a ratio B / A, and the reason if it is no change; a missing tolerance is NaN."""
    if ratio.low <= 1 <= ratio.high:
        return SAME, "the interval holds 1"
    if max(ratio.value, 1 / ratio.value) - 1 <= tolerance + ROUNDING:
        return SAME, f"within the tolerance of {percentage(tolerance, 1)}"
    return (FASTER if (ratio.value > 1) == (better == HIGHER) else SLOWER), ""


def _finding(pair: Pair, values: Sequence[Sequence[float]]) -> dict[str, Any]:
    hindrance = "; ".join(_hindrances(pair, values))
    if hindrance:
        return {"verdict": NOT_COMPARABLE, "why": hindrance}
    before, after = values
    ratio = ratio_of_medians(before, after)
    limits = [cell.row["spread_limit"] for cell in pair if cell and not math.isnan(cell.row["spread_limit"])]
    evidence = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "tolerance": max(limits, default=math.nan)}
    unstable = [side.upper() for side, cell in zip(SIDES, pair, strict=True) if cell and cell.row["unstable"] is True]
    if unstable and not is_decided(ratio, evidence["tolerance"]):
        return evidence | {"verdict": NOT_COMPARABLE, "why": f"unstable: {' and '.join(unstable)}"}
    better = next(cell.row["better"] for cell in pair if cell)
    word, why = verdict_on_ratio(ratio, evidence["tolerance"], better)
    apart = "; ".join(differing_conditions([cell.row for cell in pair if cell]))
    return evidence | {"verdict": word, "why": "; ".join(filter(None, [why, apart and f"other conditions: {apart}"]))}


def _hindrances(pair: Pair, values: Sequence[Sequence[float]]) -> Iterator[str]:
    """Yield the reasons why the cells of a pair cannot be compared."""
    before, after = pair
    if before is None or after is None:
        yield "only in B" if before is None else "only in A"
        return
    if before.facts["benchmark_version"] != after.facts["benchmark_version"]:
        yield f"benchmark versions {before.facts['benchmark_version']} and {after.facts['benchmark_version']}"
    loose: dict[str, list[str]] = {}
    for side, cell, runs in zip(SIDES, (before, after), values, strict=True):
        if cell.row["status"] != "done":
            yield f"{side.upper()} is {cell.row['status']}"
        elif len(runs) < FEWEST_RUNS:
            yield f"{side.upper()} has {len(runs)} valid run{'s' * (len(runs) != 1)}, fewer than {FEWEST_RUNS}"
        elif words := sentence_on_replaced_calls([cell.row]):
            yield f"{side.upper()}: {words}"
        elif words := sentence_on_looser_checks([cell.row]):
            loose.setdefault(words, []).append(side.upper())
    for words, sides in loose.items():
        yield f"{'both were' if len(sides) == len(SIDES) else f'{sides[0]} was'} {words}; {CURE_OF_LOOSER}"
    if before.facts["data"] != after.facts["data"] and before.facts["data"] and after.facts["data"]:
        yield "other data: the checksums of the datasets differ"


def _sides(pair: Pair, figure: str) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for side, cell in zip(SIDES, pair, strict=True):
        row = cell.row if cell else {}
        numbers = {"median": figure, "min": f"{figure}_min", "max": f"{figure}_max"}
        columns |= {f"{name}_{side}": row.get(numbers.get(name, name)) for name in OF_SIDE}
    return columns
