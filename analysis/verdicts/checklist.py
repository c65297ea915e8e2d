"""A whole paper as a checklist: each claim that its text states, with the verdict on it."""

from __future__ import annotations

import json

import pandas as pd

from analysis.records.frame import rows_of
from analysis.verdicts import (
    checkpoint_claims,
    device_claims,
    nersc_claims,
    prefetch_claims,
    reading_claims,
    tfdarshan_claims,
    thread_claims,
)
from analysis.verdicts.all_claims import ANY_SITE, CLAIMS
from analysis.verdicts.claim_judge import COLUMNS, DIFFERS, HOLDS, NOT_MEASURED, Verdict
from analysis.verdicts.evidence import Evidence


def verdicts(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the whole checklist, a row per claim and set of settings and, below a claim, per pair (`COLUMNS`).

    Each claim of Chien et al. 2018 has a row, and each of tf-Darshan where any cell was profiled: where no cells are
    there, or too few, it is `not measured` and `measure` says how to. `ours`, `interval` (JSON, low and high) and
    `tolerance` are shares, but that ours and its interval are in `unit` where it is another. In the paper's order
    within a set; `about` is empty where nothing was measured.

    `table` and `runs` are as `analysis.figures.all.specs` takes them.
    """
    found = Evidence(table, runs)
    told: list[Verdict] = [
        *device_claims.verdicts(found), *thread_claims.verdicts(found), *prefetch_claims.verdicts(found),
        *reading_claims.of_batches(found), *checkpoint_claims.verdicts(found), *nersc_claims.verdicts(found),
        *tfdarshan_claims.verdicts(found),
    ]  # fmt: skip
    claims = [
        *CLAIMS,
        *nersc_claims.claims(table),
        *(() if tfdarshan_claims.profiled(table).empty else tfdarshan_claims.CLAIMS),
    ]
    known = {verdict.claim for verdict in told}
    told += [Verdict(claim, NOT_MEASURED, "no such cells are done") for claim in claims if claim not in known]
    order = {claim: place for place, claim in enumerate(claims)}
    sets = {
        about: place for place, about in enumerate(dict.fromkeys(verdict.about for verdict in told if verdict.about))
    }
    told.sort(key=lambda verdict: (sets.get(verdict.about, len(sets)), order[verdict.claim]))
    rows = pd.DataFrame([verdict.row for verdict in told])[COLUMNS]
    sites = set(table["site"]) - {"", "none"}
    if len(sites) == 1:
        rows["measure"] = rows["measure"].str.replace(ANY_SITE, f"site={sites.pop()}", regex=False)
    return rows


def well(tested: pd.DataFrame, *, strict: bool) -> bool:
    """Say whether no claim differs; `strict`: whether each holds, on hardware. A pair counts through its claim."""
    told = tested[tested["pair"] == ""]
    held = (told["verdict"] == HOLDS) & (told["emulated"] == "")
    return bool(held.all() if strict else (told["verdict"] != DIFFERS).all())


def as_json(tested: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows as JSON has them: an interval as two numbers, cells as a list, null where there is none."""
    rows = rows_of(tested.astype(object).where(tested.notna(), None))
    return [row | {"interval": json.loads(row["interval"] or "null"), "cells": row["cells"].split()} for row in rows]
