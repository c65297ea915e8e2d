"""Whether a cell is faster or slower than its partner, with the evidence, or why that cannot be said.

A change counts if the interval of the ratio leaves out 1, so that it is no accident of these runs, and if it is wider
than the tolerance, the limit of the check `spread` that the records carry, so that it is no accident of a day.
Of two tolerances the wider counts: what one of the sites calls noise is no change. Where a cell is unstable, only a
whole interval on one side of the tolerance tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from analysis.compare.pairs import Pair
from analysis.records.merit import HIGHER
from analysis.statistics.comparable import CURE_OF_LOOSER, FEWEST_RUNS, looser, other_conditions, replaced
from analysis.statistics.medians import values_of
from analysis.statistics.ratio import ROUNDING, Ratio, ratio_of_medians
from analysis.text.plain import share

FASTER, SLOWER, SAME, NOT_COMPARABLE = "faster", "slower", "no change", "not comparable"
TOLD = (FASTER, SLOWER, SAME)
VERDICTS = (*TOLD, NOT_COMPARABLE)
SIDES = ("a", "b")
OF_SIDE = ("cell", "storage", "host", "tensorflow", "status", "n_valid", "median", "min", "max")
COLUMNS = [
    "label", "benchmark", "figure", "ratio", "low", "high", "tolerance", "verdict", "why",
    *(f"{name}_{side}" for side in SIDES for name in OF_SIDE),
]  # fmt: skip


def judged(labelled: Sequence[tuple[str, Pair]], runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return a row per pair (`COLUMNS`): both medians, their ratio B / A with its interval, and the verdict.

    Of each pair with what it is called, and every run of A and of B.
    """
    named = {next(cell for cell in pair if cell).row["figure"] for _, pair in labelled}
    figures = [{name: values_of(each, name) if name in each else {} for name in named} for each in runs]
    rows = []
    for label, pair in labelled:
        row = next(cell for cell in pair if cell).row
        benchmark, figure = row["benchmark"], row["figure"]
        values = [of[figure].get(cell.row["cell"], []) if cell else [] for cell, of in zip(pair, figures, strict=True)]
        about = {"label": label, "benchmark": benchmark, "figure": figure}
        rows.append(about | _sides(pair, figure) | _finding(pair, values))
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(("ratio", "low", "high", "tolerance"), "float64"))


def clear(ratio: Ratio, tolerance: float) -> bool:
    """Say whether the whole interval of a ratio is within the tolerance, or beyond it."""
    least, most = 1 / (1 + tolerance), 1 + tolerance
    return (least <= ratio.low and ratio.high <= most) or ratio.high < least or most < ratio.low


def verdict(ratio: Ratio, tolerance: float, better: str) -> tuple[str, str]:
    """Return the verdict on a ratio B / A and why it is no change; a tolerance that is not given is NaN."""
    if ratio.low <= 1 <= ratio.high:
        return SAME, "the interval holds 1"
    if max(ratio.value, 1 / ratio.value) - 1 <= tolerance + ROUNDING:
        return SAME, f"within the tolerance of {share(tolerance, 1)}"
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
    if unstable and not clear(ratio, evidence["tolerance"]):
        return evidence | {"verdict": NOT_COMPARABLE, "why": f"unstable: {' and '.join(unstable)}"}
    better = next(cell.row["better"] for cell in pair if cell)
    told, why = verdict(ratio, evidence["tolerance"], better)
    apart = "; ".join(other_conditions([cell.row for cell in pair if cell]))
    return evidence | {"verdict": told, "why": "; ".join(filter(None, [why, apart and f"other conditions: {apart}"]))}


def _hindrances(pair: Pair, values: Sequence[Sequence[float]]) -> Iterator[str]:
    """Yield each reason why the ratio of a pair means nothing."""
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
        elif words := replaced([cell.row]):
            yield f"{side.upper()}: {words}"
        elif words := looser([cell.row]):
            loose.setdefault(words, []).append(side.upper())
    for words, sides in loose.items():
        yield f"{'both were' if len(sides) == len(SIDES) else f'{sides[0]} was'} {words}; {CURE_OF_LOOSER}"
    if before.facts["data"] != after.facts["data"] and before.facts["data"] and after.facts["data"]:
        yield "other data: the checksums of the datasets differ"


def _sides(pair: Pair, figure: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for side, cell in zip(SIDES, pair, strict=True):
        row = cell.row if cell else {}
        numbers = {"median": figure, "min": f"{figure}_min", "max": f"{figure}_max"}
        told |= {f"{name}_{side}": row.get(numbers.get(name, name)) for name in OF_SIDE}
    return told
