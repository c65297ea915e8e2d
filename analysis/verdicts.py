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
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analysis import gains, paper
from analysis.frame import rows_of
from analysis.plates.plate import settled
from analysis.plates.sets import families, in_order, trained
from analysis.settings import describe, facts_of, family_key, telling
from analysis.training import AND, is_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    # The evidence that one cell gives, by name.
    Cell = Mapping[str, Any]

SOURCE = "Chien et al. 2018, Sec. V.B"
SHARE = "share"
EQUAL = "with prefetch the runtime is equal whatever the storage and the threads"
EXCESS = "the excess without prefetch is the cost of I/O"
PUBLISHED = {EQUAL: "the same runtime", EXCESS: "excess = cost of I/O"}
COLUMNS = [
    "claim", "about", "pair", "source", "published", "ours", "unit", "interval", "tolerance", "verdict", "why", "cells",
]  # fmt: skip
HOLDS, DIFFERS, NOT_COMPARABLE, NOT_MEASURED = "holds", "differs", "not comparable", "not measured"
# Two cells, each as wide as the site allows.
CELLS_THAT_SCATTER = 2
EVIDENCE = [
    "cell", "storage", "threads", "prefetch", "unstable", "spread_limit", "accelerator", "host", "tensorflow",
    "wall_s", "wall_s_min", "wall_s_max", "load_s", "load_s_min", "load_s_max",
]  # fmt: skip
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
    of a runtime; where `unit` is `times`, ours and its interval are ratios. `pair` names storage and threads, `""` for
    a whole set; `cells` are ids between blanks.
    """
    if not is_training(table).any():
        return pd.DataFrame(columns=COLUMNS)
    cells = settled(trained(table), ["set_key", "storage", "threads"], "wall_s")
    groups = families(cells, {"prefetch"})
    apart = telling([facts_of(key) for key in groups])
    # Fig. 7's cells are sets of one thread count each: where others can be compared, these need not say they cannot.
    several = {key for key, group in groups.items() if len(group[["storage", "threads"]].drop_duplicates()) > 1}
    rows = []
    for key, group in groups.items():
        for ahead in sorted(set(group["prefetch"]) - {0}) or [1]:
            facts = facts_of(family_key(key, frozenset(), (("prefetch", ahead),)))
            about = describe(facts, apart, group["accelerator"], group["size"])
            rows += [row | {"about": about} for row in _of_set(group, ahead, comparable=key in several or not several)]
    saved = [_of_burst_buffer(found) for found in gains.findings(table, _mixed, CELLS_THAT_SCATTER)]
    if not rows and not saved:
        rows = [_row(claim, NOT_MEASURED, "there are only controls") | {"about": ""} for claim in PUBLISHED]
    return pd.DataFrame([*rows, *saved])[COLUMNS]


def _of_burst_buffer(found: Mapping[str, Any]) -> dict[str, Any]:
    of_claim = {"claim": gains.GAIN, "pair": "", "source": paper.SOURCE, "published": gains.PUBLISHED}
    return {"ours": None, "unit": SHARE, "interval": "", "tolerance": None} | of_claim | dict(found)


def _of_set(group: pd.DataFrame, ahead: int, *, comparable: bool) -> Iterator[dict[str, Any]]:
    asked = group[group["prefetch"].isin([0, ahead])]
    done = in_order(asked[asked["status"] == "done"], ["threads"])[EVIDENCE]
    cells = rows_of(done.astype({"unstable": object}))
    if comparable:
        yield equal_runtime([cell for cell in cells if cell["prefetch"]])
    places: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        places.setdefault((cell["storage"], cell["threads"]), []).append(cell)
    pairs = [excess(*pair) for pair in places.values() if len(pair) > 1]
    yield all_pairs(pairs, len(asked[["storage", "threads"]].drop_duplicates()))
    yield from pairs


def equal_runtime(cells: Sequence[Cell]) -> dict[str, Any]:
    """Test whether the cells with prefetch have one runtime: (max - min) / median of their medians.

    The interval is what the cells' own ranges allow: from the gap between them to the whole that they cover.
    """
    if len(cells) < 2:  # noqa: PLR2004 - nothing is equal to itself alone
        why = "fewer than two cells with prefetch are done: there is nothing to compare"
        return _row(EQUAL, NOT_MEASURED, why, cells)
    if mixed := _mixed(cells):
        return _row(EQUAL, NOT_COMPARABLE, mixed, cells)
    times, lows, highs = ([cell[f"wall_s{end}"] for cell in cells] for end in ("", "_min", "_max"))
    middle = statistics.median(times)
    apart, covered = max(0.0, max(lows) - min(highs)), max(highs) - min(lows)
    finding = Finding((max(times) - min(times)) / middle, apart / middle, covered / middle)
    storages, threads = (_listed(cell[name] for cell in cells) for name in ("storage", "threads"))
    return _judged(EQUAL, finding, f"{len(cells)} cells: {storages}; threads {threads}", cells)


def excess(ahead: Cell, none: Cell) -> dict[str, Any]:
    """Test whether the runtime that is added without prefetch is the time spent waiting for input.

    (excess - load_s) / runtime without prefetch; its ends take each run's figures at their worst.
    """
    where = {"pair": f"{ahead['storage']}, threads {ahead['threads']}"}
    if mixed := _mixed([ahead, none]):
        return _row(EXCESS, NOT_COMPARABLE, mixed, [ahead, none]) | where
    added, runtime = none["wall_s"] - ahead["wall_s"], none["wall_s"]
    low = none["wall_s_min"] - ahead["wall_s_max"] - none["load_s_max"]
    high = none["wall_s_max"] - ahead["wall_s_min"] - none["load_s_min"]
    words = f"excess {added:.3g} s, waiting for input {none['load_s']:.3g} s, runtime {runtime:.3g} s"
    finding = Finding((added - none["load_s"]) / runtime, low / runtime, high / runtime)
    return _judged(EXCESS, finding, words, [ahead, none]) | where


def all_pairs(pairs: Sequence[dict[str, Any]], asked: int) -> dict[str, Any]:
    """Return the verdict on all pairs: it holds if each holds, and differs if one does; ours is the worst pair's."""
    if not pairs:
        return _row(EXCESS, NOT_MEASURED, "no storage and thread count is done with prefetch and without")
    told = [pair["verdict"] for pair in pairs]
    verdict = next(each for each in (DIFFERS, NOT_COMPARABLE, HOLDS) if each in told)
    why = [f"{each}: {told.count(each)} of {len(told)} pairs" for each in dict.fromkeys(told)]
    why += [f"{asked - len(pairs)} of {asked} pairs not done"] if asked > len(pairs) else []
    worst = max((pair for pair in pairs if pair["verdict"] == verdict), key=lambda pair: abs(pair["ours"] or 0))
    why += [f"worst: {worst['pair']} ({worst['why']})"]
    evidence = {name: worst[name] for name in ("ours", "interval", "tolerance")}
    cells = " ".join(pair["cells"] for pair in pairs)
    return _row(EXCESS, verdict, "; ".join(why)) | evidence | {"cells": cells}


def _judged(claim: str, finding: Finding, words: str, cells: Sequence[Cell]) -> dict[str, Any]:
    """Hold a finding of cells against twice the site's tolerance, the strictest where the cells differ in it."""
    limits = [cell["spread_limit"] for cell in cells if not math.isnan(cell["spread_limit"])]
    tolerance = CELLS_THAT_SCATTER * min(limits, default=math.nan)
    interval = json.dumps([round(finding.low, 6), round(finding.high, 6)])
    evidence = {"ours": finding.ours, "interval": interval, "tolerance": tolerance}
    if not limits:
        why = f"{words}; the records name no tolerance (limit of the check spread)"
        return _row(claim, NOT_COMPARABLE, why, cells) | evidence | {"tolerance": None}
    least = 0.0 if finding.low <= 0 <= finding.high else min(abs(finding.low), abs(finding.high))
    most = max(abs(finding.low), abs(finding.high))
    unstable = [cell["cell"] for cell in cells if cell["unstable"] is True]
    if unstable and least <= tolerance < most:
        why = f"unstable: the runs of {_listed(unstable)} scatter too widely to tell; {words}"
        return _row(claim, NOT_COMPARABLE, why, cells) | evidence
    return _row(claim, HOLDS if abs(finding.ours) <= tolerance else DIFFERS, words, cells) | evidence


def _row(claim: str, verdict: str, why: str, cells: Sequence[Cell] = ()) -> dict[str, Any]:
    plain = {"claim": claim, "pair": "", "source": SOURCE, "published": PUBLISHED[claim], "verdict": verdict}
    ids = " ".join(cell["cell"] for cell in cells)
    return plain | {"why": why, "cells": ids, "ours": None, "unit": SHARE, "interval": "", "tolerance": None}


def _mixed(cells: Sequence[Cell]) -> str:
    """Return what is not the same in all cells, `""` where all are of one kind."""
    kinds = {word: sorted({each for cell in cells for each in cell[name].split(AND)}) for name, word in MIXED.items()}
    told = [f"{word} {_listed(values)}" for word, values in kinds.items() if len(values) > 1]
    return f"mixed: {'; '.join(told)}" if told else ""


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(str(each) for each in dict.fromkeys(values))
