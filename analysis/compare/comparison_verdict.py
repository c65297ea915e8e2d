"""Match the cells of two campaigns, and judge for each pair of cells whether the second campaign is faster.

A change counts only if two conditions are met. First, the interval of the ratio does not contain 1, so the change is
not caused by the scatter of the runs. Second, the change is larger than the tolerance, so the change is not caused by
the usual difference between two days. The tolerance is the limit of the check `spread` in the records. If the two
records have different limits, the larger limit is used. If a cell is unstable, a verdict is given only if the whole
interval is inside the tolerance, or the whole interval is outside.

Two cells are matched if their ids are equal, or else if the settings that define the measurement are equal.
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
    FEWEST_RUNS,
    differing_conditions,
    refusal,
    sentence_on_replaced_calls,
)
from analysis.statistics.medians import positive_values
from analysis.statistics.ratio import ROUNDING, Ratio, ratio_of_medians
from analysis.text import percentage

NAMES_STORAGE = ("storage", "storage.name")
# Settings in which matched cells may differ, because two sites may mount the same kind of disk at different paths, and
# because one site may emulate the disk.
PLACES = ("root", "path", "emulated")
# Settings in which matched cells may differ too. The verdict on such a pair of cells is then "not comparable".
MEANING = frozenset({"benchmark_version", "data"})

INTERVAL = "95 % percentile interval of the bootstrap"


@dataclass(frozen=True)
class MatchedCell:
    """A cell with the keys by which it is matched with a cell of the other campaign.

    `row` is the row of the cell's medians, and `facts` are its settings. The first key is the strictest key, and each
    next key contains fewer settings.
    """

    row: Row
    facts: Facts
    keys: tuple[str, ...]


# A cell of campaign A and its partner in campaign B. A cell without a partner is paired with None.
Pair = tuple[MatchedCell | None, MatchedCell | None]


def cells_to_match(table: pd.DataFrame, known_as: Mapping[str, str] | None = None) -> list[MatchedCell]:
    """Return the cells of a table of medians, with the keys for matching.

    `known_as` maps the name of a storage to its name in the other campaign.
    """
    return [_cell(row, known_as or {}) for row in rows_of(table.astype({"unstable": object}))]


def matched_pairs(before: Sequence[MatchedCell], after: Sequence[MatchedCell]) -> list[Pair]:
    """Return each cell with its partner in the other campaign, or with None. Cells without a partner come last.

    Partners are found in four steps:

    1. cells with equal ids;
    2. cells with equal settings, where the paths of storage and data may differ;
    3. the same as step 2, where also the version of the benchmark and the data may differ;
    4. the same as step 3, where also the storage may differ.

    In each step, two cells become partners only if their key occurs once in each campaign. If a key occurs several
    times, the right partner is unknown.
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
    # A cell with a renamed storage must not match by its id, because the id contains the old name.
    id_key = row["cell"] if name is None else f"{row['cell']} as {name}"
    renamed_facts = facts if name is None else facts | {each: name for each in NAMES_STORAGE if each in facts}
    return MatchedCell(row, facts, (id_key, *_looser(renamed_facts)))


def _looser(facts: Facts) -> Iterator[str]:
    """Yield three keys for matching, which are texts of settings. Each next key contains fewer settings."""
    places = {name for name in facts if name.rpartition(".")[2] in PLACES}
    storage = {name for name in facts if is_storage(name)}
    for free in ({IMPLIED} | more for more in (places, places | MEANING, places | MEANING | storage)):
        yield json.dumps({name: facts[name] for name in sorted(facts) if name not in free})


def _unique(campaign: Sequence[MatchedCell], step: int) -> dict[str, MatchedCell]:
    counts = Counter(cell.keys[step] for cell in campaign)
    return {cell.keys[step]: cell for cell in campaign if counts[cell.keys[step]] == 1}


FASTER, SLOWER, SAME, NOT_COMPARABLE = "faster", "slower", "no change", "not comparable"
DECIDED_VERDICTS = (FASTER, SLOWER, SAME)
VERDICTS = (*DECIDED_VERDICTS, NOT_COMPARABLE)
SIDES = ("a", "b")
OF_SIDE = ("cell", "storage", "host", "tensorflow", "status", "n_valid", "median", "min", "max")
COLUMNS = [
    "label", "benchmark", "figure", "ratio", "low", "high", "tolerance", "verdict", "why",
    *(f"{name}_{side}" for side in SIDES for name in OF_SIDE),
]  # fmt: skip


def judged_pairs(labelled: Sequence[tuple[str, Pair]], runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return one row per pair of cells: the two medians, the ratio B / A with its interval, and the verdict.

    The columns are `COLUMNS`. `labelled` has each pair with its label, and `runs` has the frames of runs of A and B.
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
    """Return whether the whole interval of a ratio is inside the tolerance, or the whole interval is outside."""
    least, most = 1 / (1 + tolerance), 1 + tolerance
    return (least <= ratio.low and ratio.high <= most) or ratio.high < least or most < ratio.low


def verdict_on_ratio(ratio: Ratio, tolerance: float, better: str) -> tuple[str, str]:
    """Return the verdict on a ratio B / A, and the reason if the verdict is "no change".

    `tolerance` is NaN if no record has a spread limit.
    """
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
        elif any(words_and_cure := refusal(cell.row)):
            loose.setdefault("; ".join(words_and_cure), []).append(side.upper())
    for words, sides in loose.items():
        yield f"{'both were' if len(sides) == len(SIDES) else f'{sides[0]} was'} {words}"
    if before.facts["data"] != after.facts["data"] and before.facts["data"] and after.facts["data"]:
        yield "other data: the checksums of the datasets differ"


def _sides(pair: Pair, figure: str) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for side, cell in zip(SIDES, pair, strict=True):
        row = cell.row if cell else {}
        numbers = {"median": figure, "min": f"{figure}_min", "max": f"{figure}_max"}
        columns |= {f"{name}_{side}": row.get(numbers.get(name, name)) for name in OF_SIDE}
    return columns
