"""What rules predicted and what came of it: ``advice.json`` of a campaign folder; a prediction that failed stays."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from filelock import FileLock

from campaign.advice import advice_rules, evidence
from campaign.advice.findings import VERSION, Prediction
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.errors import EnvironmentFaultError
from jobs.judging import stopping
from jobs.model import reading
from jobs.model.predictions import Account, Measured, Tested
from jobs.model.record import Record
from jobs.system import files, untrusted
from jobs.system.clock import utc_now

SCHEMA = 1
_CURE = "restore it, or move it away: what was predicted so far is then forgotten"


def load(folder: CampaignFolder) -> list[Tested]:
    """Return every prediction that was put to the test in this campaign, the oldest first."""
    try:
        return reading.read(folder.advice, Account, SCHEMA)["tests"]
    except FileNotFoundError:
        return []
    except untrusted.UntrustedError as error:
        raise EnvironmentFaultError(f"{folder.advice} is damaged: {error}", _CURE) from error
    except reading.NewerFileError as error:
        raise EnvironmentFaultError(f"{folder.advice} is of a newer version: {error}", _CURE) from error


def promise(
    folder: CampaignFolder, rule: str, predicted: Prediction, cells: tuple[str, str], told: tuple[str, float]
) -> None:
    """Write a prediction down, before it is tested.

    `cells`: the one that it is of, and the one that tests it; `told`: the command, and the figure as it is.
    """
    cell, tested = cells
    made: Tested = {
        "utc": utc_now(),
        "rules": VERSION,
        "rule": rule,
        "cell": cell,
        "tested": tested,
        "command": told[0],
        "figure": predicted.figure,
        "unit": predicted.unit,
        "before": told[1],
        "predicted": predicted.value,
        "low": predicted.low,
        "high": predicted.high,
        "known": folder.record(tested).exists(),
        "measured": None,
        "holds": None,
        "why_not": "not measured yet",
    }
    _change(folder, [made])


def settle(verdicts: Verdicts, origin: Record) -> list[Tested]:
    """Hold predictions of a cell that are open against what was measured since; returns all of the campaign."""
    folder = verdicts.folder
    kept = load(folder)
    found: list[Any] = [
        {**each, **_outcome(verdicts, each, origin)}
        if each["measured"] is None and each["cell"] == origin["cell"]["id"]
        else each
        for each in kept
    ]
    if settled := [after for before, after in zip(kept, found, strict=True) if before["measured"] != after["measured"]]:
        _change(folder, settled)
    return found


def _outcome(verdicts: Verdicts, tested: Tested, origin: Record) -> dict[str, Any]:
    found, fault = verdicts.read(verdicts.folder.record(tested["tested"]))
    if found is None:
        return {"why_not": fault or "not measured yet"}
    if found["status"] != "done":
        return {"why_not": f"{found['status']}: {found.get('reason') or 'under way'}"}
    here, there = (_where(each) for each in (origin, found))
    if here != there:
        return {"why_not": f"measured on {there}, and the cell itself on {here}"}
    runs: Sequence[Any] = stopping.measured(found, "valid")
    if why := advice_rules.held(evidence.gathered(verdicts, found), tested["rule"]):
        return {"why_not": f"{why}: `why {tested['tested']}` names the command, add redo=true"}
    values = [float(value) for run in runs if isinstance(value := run.get(tested["figure"]), int | float)]
    if not values:
        return {"why_not": f"its runs have no {tested['figure']}"}
    median = statistics.median(values)
    measured: Measured = {"median": median, "min": min(values), "max": max(values), "runs": len(values)}
    return {"measured": measured, "holds": tested["low"] <= median <= tested["high"], "why_not": None}


def _where(recorded: Record) -> str:
    """Return what must be the same of both: the machine, and what a quota leaves of it."""
    quota = min((each for run in recorded["runs"] if (each := run.get("quota_cores"))), default=None)
    host = recorded["provenance"].get("host", "an unknown host")
    return host if quota is None else f"{host} with {quota:g} processors"


def _change(folder: CampaignFolder, changed: Sequence[Tested]) -> None:
    """Add predictions, or put them in the place of what they were; whole, and one process at a time."""
    with FileLock(folder.root / "advice.lock"):
        by_name = {(each["utc"], each["cell"], each["rule"]): each for each in [*load(folder), *changed]}
        files.write_json(folder.advice, {"schema": SCHEMA, "tests": list(by_name.values())})
