"""Judge the claims of papers by the cells of a campaign.

There are four verdicts. A claim *holds* if the measured value agrees with the paper's value within the tolerance. A
claim *differs* if the measured value does not agree. A claim is *not measured* if cells are missing. A claim is *not
comparable* for one of three reasons: the cells cannot be compared (`analysis.statistics.comparable`), the paper's
number was measured on another device, or an unstable cell makes the verdict uncertain.

The measured value of an unstable cell may be inside or outside the tolerance by accident. A claim on an unstable cell
thus gets the verdict *holds* or *differs* only if the whole interval of the measured value supports this verdict.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.claims import chien2018, nersc2018, tfdarshan2020
from analysis.claims.cell_sets import Cell, CellSet, Evidence, emulated_parts, model_names
from analysis.claims.claim import ANY_SITE, EACH, SIZES, STORAGES, Claim, Finding, NothingToCompare
from analysis.records.frame import Row, json_rows
from analysis.statistics import comparable
from analysis.text import join_values

SMOKE = "smoke"
HOLDS, DIFFERS, NOT_COMPARABLE, NOT_MEASURED = "holds", "differs", "not comparable", "not measured"
EMULATED, BY_MODEL = "emulated", "emulated (model)"
COLUMNS = [
    "claim", "kind", "about", "pair", "source", "published", "ours", "unit", "interval", "tolerance", "tolerance_from",
    "verdict", "emulated", "why", "cells", "measure",
]  # fmt: skip
PAPERS = (chien2018, nersc2018, tfdarshan2020)


def judge_all_claims(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the verdicts on all claims as a frame with one row per claim and set of cells.

    `table` is the frame of medians and `runs` the frame of runs. If a claim is tested on single pairs of cells, the
    rows of the pairs follow the row of the set. `analysis.output.csv_columns` describes the columns. Each claim has at
    least one row: a claim without enough cells has the verdict `not measured`, and the column `measure` has the
    commands that measure the missing cells. The claims on one set of cells have the order of the paper.
    """
    evidence = Evidence(table, runs)
    about = [group.about for paper in PAPERS for cells in paper.SETS for group in evidence.sets(cells)]
    place = {words: number for number, words in enumerate(dict.fromkeys(about))}
    rows = [row for paper in PAPERS for claim in paper.claims(table) for row in _of_claim(claim, evidence)]
    rows.sort(key=lambda row: place.get(row["about"], len(place)))
    tested = pd.DataFrame(rows)[COLUMNS]
    sites = set(table["site"]) - {"", "none"}
    if len(sites) == 1:
        tested["measure"] = tested["measure"].str.replace(ANY_SITE, f"site={sites.pop()}", regex=False)
    return tested


def _of_claim(claim: Claim, evidence: Evidence) -> list[Row]:
    rows = [row | {"about": group.about} for group in evidence.sets(claim.cells) for row in _of_set(claim, group)]
    return rows or [_row(claim, NOT_MEASURED, "no such cells are done")]


def _of_set(claim: Claim, group: CellSet) -> Iterator[Row]:
    findings = list(claim.compare(group))
    rows, cells = (
        [judge_finding(claim, finding) for finding in findings],
        [cell for each in findings for cell in each.cells],
    )
    yield from [_in_all(claim, rows, cells, group.planned_count)] if claim.in_all and cells else []
    yield from rows


def judge_finding(claim: Claim, finding: Finding | NothingToCompare) -> Row:
    """Return the row for a finding, with the verdict that follows from the claim's predicate."""
    if isinstance(finding, NothingToCompare):
        return _row(claim, NOT_MEASURED, finding.why, finding.cells)
    cells, words = finding.cells, [claim.words.format_map(finding.words)]
    hindrance = claim.hindrance(cells) or _hindrance(claim, cells)
    verdict, why = (NOT_COMPARABLE, hindrance) if hindrance else _verdict(claim, finding)
    if verdict == DIFFERS:
        words += [claim.doubt] if claim.doubt else model_names(cells)
        verdict = NOT_COMPARABLE if claim.doubt else DIFFERS
    _, _, tolerance = claim.predicate.widened_range(cells)
    return _row(claim, verdict, "; ".join([why, *words] if why else words), cells) | {
        "pair": finding.pair, "ours": finding.ours, "unit": finding.unit,
        "interval": json.dumps([round(finding.low, 6), round(finding.high, 6)]),
        "tolerance": None if tolerance is None or math.isnan(tolerance) else tolerance,
        "tolerance_from": claim.predicate.tolerance_from,
    }  # fmt: skip


def _row(claim: Claim, verdict: str, why: str, cells: Sequence[Cell] = ()) -> Row:
    """Return a row with a verdict, but without the measured value and its interval."""
    played = ", ".join(dict.fromkeys(part for cell in cells for part in emulated_parts(cell)))
    return {
        "claim": claim.text, "kind": "device" if claim.machine else "shape", "about": "", "pair": "",
        "source": f"{claim.paper}, {claim.place}", "published": claim.published, "ours": None, "unit": "",
        "interval": "", "tolerance": None, "tolerance_from": "", "verdict": verdict, "why": why,
        "emulated": f"{BY_MODEL}: {played}" if model_names(cells) else played, "measure": claim.measure,
        "cells": " ".join(dict.fromkeys(cell["cell"] for cell in cells)),
    }  # fmt: skip


def _verdict(claim: Claim, finding: Finding) -> tuple[str, str]:
    """Return the verdict on a finding whose cells may be compared, and the reason for a verdict *not comparable*."""
    low, high, tolerance = claim.predicate.widened_range(finding.cells)
    if tolerance is not None and math.isnan(tolerance):
        return NOT_COMPARABLE, "the records name no tolerance (limit of the check spread)"
    within = low <= finding.low and finding.high <= high
    beyond = finding.high < low or high < finding.low
    unstable = [cell["cell"] for cell in finding.cells if cell["unstable"] is True]
    if unstable and not within and not beyond:
        return NOT_COMPARABLE, f"unstable: the runs of {join_values(unstable)} scatter too widely to tell"
    return HOLDS if (within if claim.predicate.whole else low <= finding.ours <= high) else DIFFERS, ""


def _hindrance(claim: Claim, cells: Sequence[Cell]) -> str:
    """Return the reason why cells cannot be compared with a claim, or `""` if the cells can be compared."""
    across, sizes = claim.compares == STORAGES, claim.compares == SIZES
    unlike = "" if claim.compares == EACH else comparable.forbidding_differences(cells, across=across, sizes=sizes)
    if why := unlike or comparable.reason_for_weak_proof(cells):
        return why
    small = any(cell["size"] == SMOKE for cell in cells) and not (claim.emulable and model_names(cells))
    if claim.predicate.number and small:
        return "size smoke is a small version of the paper's experiment"
    # A number that the paper measured on its own device is valid only for this device or an emulation of this device.
    strange = [
        cell["site"] or "none"
        for cell in cells
        if claim.machine and cell["site"] not in claim.machine.split(" or ")
        and not (claim.emulable and "storage" in emulated_parts(cell))
    ]  # fmt: skip
    return f"a number of the paper's own {claim.machine}, and this is site {join_values(strange)}" if strange else ""


def _in_all(claim: Claim, pairs: Sequence[Row], cells: Sequence[Cell], asked: int) -> Row:
    """Return the row of a claim over all its pairs of cells.

    The claim holds if the claim holds for all pairs, and differs if the claim differs for one pair. The measured value
    in the row is the value of the worst pair.
    """
    verdicts = [pair["verdict"] for pair in pairs]
    verdict = next(each for each in (DIFFERS, NOT_COMPARABLE, HOLDS) if each in verdicts)
    worst = max((pair for pair in pairs if pair["verdict"] == verdict), key=lambda pair: abs(pair["ours"]))
    why = [f"{each}: {verdicts.count(each)} of {len(verdicts)} pairs" for each in dict.fromkeys(verdicts)]
    why += [f"{asked - len(pairs)} of {asked} pairs not done"] if asked > len(pairs) else []
    why += [f"worst: {worst['pair']} ({worst['why']})"]
    ours = {name: worst[name] for name in ("ours", "unit", "interval", "tolerance", "tolerance_from")}
    return _row(claim, verdict, "; ".join(why), cells) | ours


def no_claim_differs(tested: pd.DataFrame, *, strict: bool) -> bool:
    """Return whether no claim has the verdict `differs`. Verdicts on pairs of cells are ignored.

    If `strict` is true, return whether all claims hold on storage that is not emulated.
    """
    whole = tested[tested["pair"] == ""]
    held = (whole["verdict"] == HOLDS) & (whole["emulated"] == "")
    return bool(held.all() if strict else (whole["verdict"] != DIFFERS).all())


def verdicts_as_json(tested: pd.DataFrame) -> list[dict[str, object]]:
    """Return the verdicts as dictionaries for JSON: an interval is a list of two numbers, and cells are a list of ids.

    A missing value is None.
    """
    rows = json_rows(tested)
    return [row | {"interval": json.loads(row["interval"] or "null"), "cells": row["cells"].split()} for row in rows]


def kind_of_verdict(emulated: str) -> str:
    """Return the kind of emulation on which a verdict is based, given the verdict's column `emulated`.

    Return `EMULATED`, `BY_MODEL`, or `""` for a verdict on storage that is not emulated.
    """
    return BY_MODEL if emulated.startswith(BY_MODEL) else EMULATED * bool(emulated)
