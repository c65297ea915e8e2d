"""What the paper claims of the mini-application, tested: a verdict with its evidence.

A claim *holds* where ours is within the tolerance and *differs* where it is not. It is *not comparable* where
machines, accelerators or versions of TensorFlow mix, and *not measured* where cells are missing.

The tolerance follows from the site's own, the limit L of the check `spread`, that the records carry: two stable
cells of one true runtime may each scatter over L around it, so together over 2 L. What was observed never widens it:
else the noisier the machine, the more would hold. Where a cell is unstable, ours may be within the tolerance, or
beyond it, by accident; then a verdict is given only if the whole interval agrees with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analysis.frame import rows_of
from analysis.plates.plate import settled
from analysis.plates.sets import families, in_order, trained
from analysis.settings import describe, facts_of, family_key, telling
from analysis.training import is_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

SOURCE = "Chien et al. 2018, Sec. V.B"
EQUAL = "with prefetch the runtime is equal for every storage and thread count"
EXCESS = "the excess without prefetch is the cost of I/O"
PUBLISHED = {EQUAL: "the same runtime", EXCESS: "excess = cost of I/O"}
COLUMNS = [
    "claim", "about", "pair", "source", "published", "ours", "interval", "tolerance", "verdict", "why", "cells",
]  # fmt: skip
HOLDS, DIFFERS, NOT_COMPARABLE, NOT_MEASURED = "holds", "differs", "not comparable", "not measured"
# Two cells, each as wide as the site allows.
CELLS_THAT_SCATTER = 2
MIXED = {"accelerator": "accelerators", "host": "hosts", "tensorflow": "versions of TensorFlow"}


@dataclass(frozen=True)
class Finding:
    """One test: ours, the interval that ours may lie in, and what it is held against, as shares of a runtime."""

    ours: float
    low: float
    high: float


def verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per claim and set of settings, and below the second claim one per pair (`COLUMNS`).

    Empty without cells of the mini-application. `ours`, `interval` (JSON, low and high) and `tolerance` are shares
    of a runtime; `pair` names storage and threads, `""` for a whole set; `cells` are ids between blanks.
    """
    if not is_training(table).any():
        return pd.DataFrame(columns=COLUMNS)
    cells = settled(trained(table), ["set_key", "storage", "threads"], "wall_s")
    groups = families(cells, {"prefetch"})
    apart = telling([facts_of(key) for key in groups])
    rows = []
    for key, group in groups.items():
        for ahead in sorted(set(group["prefetch"]) - {0}) or [1]:
            facts = facts_of(family_key(key, frozenset(), (("prefetch", ahead),)))
            about = describe(facts, apart, group["accelerator"], group["size"])
            rows += [row | {"about": about} for row in _of_set(group, ahead)]
    if not rows:
        rows = [_row(claim, NOT_MEASURED, "there are only controls") | {"about": ""} for claim in PUBLISHED]
    return pd.DataFrame(rows)[COLUMNS]


def _of_set(group: pd.DataFrame, ahead: int) -> Iterator[dict[str, Any]]:
    done = in_order(group[group["status"] == "done"], ["threads"])
    with_prefetch = done[done["prefetch"] == ahead]
    yield equal_runtime(with_prefetch)
    both = done[done["prefetch"].isin([0, ahead])]
    places = both.groupby(["storage", "threads"], sort=False)
    pairs = [excess(pair) for _, pair in places if len(pair) > 1]
    asked = group[group["prefetch"].isin([0, ahead])][["storage", "threads"]].drop_duplicates()
    yield all_pairs(pairs, len(asked))
    yield from pairs


def equal_runtime(cells: pd.DataFrame) -> dict[str, Any]:
    """Test whether the cells with prefetch have one runtime: (max - min) / median of their medians.

    The interval is what the cells' own ranges allow: from the gap between them to the whole that they cover.
    """
    ids = cells["cell"].tolist()
    if len(cells) < 2:  # noqa: PLR2004 - nothing is equal to itself alone
        return _row(
            EQUAL, NOT_MEASURED, "fewer than two cells with prefetch are done: there is nothing to compare", ids
        )
    if mixed := _mixed(cells):
        return _row(EQUAL, NOT_COMPARABLE, mixed, ids)
    middle = cells["wall_s"].median()
    low = max(0.0, cells["wall_s_min"].max() - cells["wall_s_max"].min())
    high = cells["wall_s_max"].max() - cells["wall_s_min"].min()
    ours = cells["wall_s"].max() - cells["wall_s"].min()
    words = f"{len(cells)} cells: {_listed(cells['storage'])}; threads {_listed(cells['threads'])}"
    finding = Finding(ours / middle, low / middle, high / middle)
    return _judged(EQUAL, finding, cells["spread_limit"].min(), words, cells)


def excess(pair: pd.DataFrame) -> dict[str, Any]:
    """Test whether the runtime that is added without prefetch is the time spent waiting for input.

    (excess - load_s) / runtime without prefetch; its ends take each run's figures at their worst. `pair`: the cell
    with prefetch, then the one without.
    """
    ahead, none = rows_of(pair)
    where = {"pair": f"{ahead['storage']}, threads {ahead['threads']}"}
    if mixed := _mixed(pair):
        return _row(EXCESS, NOT_COMPARABLE, mixed, pair["cell"]) | where
    added, runtime = none["wall_s"] - ahead["wall_s"], none["wall_s"]
    low = none["wall_s_min"] - ahead["wall_s_max"] - none["load_s_max"]
    high = none["wall_s_max"] - ahead["wall_s_min"] - none["load_s_min"]
    words = f"excess {added:.3g} s, waiting for input {none['load_s']:.3g} s, runtime {runtime:.3g} s"
    finding = Finding((added - none["load_s"]) / runtime, low / runtime, high / runtime)
    return _judged(EXCESS, finding, pair["spread_limit"].min(), words, pair) | where


def all_pairs(pairs: list[dict[str, Any]], asked: int) -> dict[str, Any]:
    """Return the verdict on all pairs: it holds if each holds, and differs if one does; ours is the worst pair's."""
    ids = [cell for pair in pairs for cell in pair["cells"].split()]
    if not pairs:
        return _row(EXCESS, NOT_MEASURED, "no storage and thread count is done with prefetch and without")
    told = [pair["verdict"] for pair in pairs]
    verdict = next(each for each in (DIFFERS, NOT_COMPARABLE, HOLDS) if each in told)
    why = [f"{each}: {told.count(each)} of {len(told)} pairs" for each in dict.fromkeys(told)]
    why += [f"{asked - len(pairs)} of {asked} pairs not done"] if asked > len(pairs) else []
    worst = max((pair for pair in pairs if pair["verdict"] == verdict), key=lambda pair: abs(pair["ours"] or 0))
    evidence = {name: worst[name] for name in ("ours", "interval", "tolerance")}
    more = f"worst: {worst['pair']} ({worst['why']})"
    return _row(EXCESS, verdict, "; ".join([*why, more]), ids) | evidence


def _judged(claim: str, finding: Finding, limit: float, words: str, cells: pd.DataFrame) -> dict[str, Any]:
    """Hold a finding of cells against twice the site's tolerance."""
    tolerance = CELLS_THAT_SCATTER * limit
    ids, unstable = cells["cell"].tolist(), cells["cell"][cells["unstable"].fillna(value=False)].tolist()
    interval = json.dumps([round(finding.low, 6), round(finding.high, 6)])
    evidence = {"ours": finding.ours, "interval": interval, "tolerance": tolerance}
    if not tolerance >= 0:  # NaN: no record names one
        why = f"{words}; the records name no tolerance (limit of the check spread)"
        return _row(claim, NOT_COMPARABLE, why, ids) | evidence
    least = 0.0 if finding.low <= 0 <= finding.high else min(abs(finding.low), abs(finding.high))
    most = max(abs(finding.low), abs(finding.high))
    if unstable and least <= tolerance < most:
        why = f"unstable: the runs of {_listed(unstable)} scatter too widely to tell; {words}"
        return _row(claim, NOT_COMPARABLE, why, ids) | evidence
    return _row(claim, HOLDS if abs(finding.ours) <= tolerance else DIFFERS, words, ids) | evidence


def _row(claim: str, verdict: str, why: str, cells: Iterable[str] = ()) -> dict[str, Any]:
    plain = {"claim": claim, "pair": "", "source": SOURCE, "published": PUBLISHED[claim], "verdict": verdict}
    return plain | {"why": why, "cells": " ".join(cells), "ours": None, "interval": "", "tolerance": None}


def _mixed(cells: pd.DataFrame) -> str:
    """Return what is not the same in all cells, `""` where all are of one kind."""
    kinds = {word: sorted(set(cells[name])) for name, word in MIXED.items()}
    told = [f"{word} {_listed(values)}" for word, values in kinds.items() if len(values) > 1]
    return f"mixed: {'; '.join(told)}" if told else ""


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(str(each) for each in dict.fromkeys(values))
