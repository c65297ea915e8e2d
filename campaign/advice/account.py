"""Store the predictions of the rules and their outcomes in ``advice.json``; failed predictions are never removed."""

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
from jobs.judging.judge import spread_of_cell
from jobs.model import reading
from jobs.model.record import MeasuredMetric, PredictionAccount, Record, TestedPrediction
from jobs.system import files, untrusted
from jobs.system.clock import utc_now

SCHEMA = 1
_CURE = "restore advice.json from a backup, or move it away and lose its predictions"


def load_predictions(folder: CampaignFolder) -> list[TestedPrediction]:
    """Return all recorded predictions of this campaign, tested or not, the oldest first."""
    try:
        return reading.read_json(folder.advice, PredictionAccount, SCHEMA)["tests"]
    except FileNotFoundError:
        return []
    except untrusted.UntrustedError as error:
        raise EnvironmentFaultError(f"{folder.advice} is damaged: {error}", _CURE) from error
    except reading.NewerFileError as error:
        raise EnvironmentFaultError(f"{folder.advice} is of a newer version: {error}", _CURE) from error


def record_prediction(
    folder: CampaignFolder,
    rule: str,
    predicted: Prediction,
    cells: tuple[str, str],
    command_and_metric: tuple[str, float],
) -> None:
    """Write a prediction into ``advice.json`` before its test runs.

    `cells` has the id of the advised cell, and the id of the cell that tests the prediction. `command_and_metric` has
    the command that measures the testing cell, and the present metric of the advised cell.
    """
    cell, tested = cells
    prediction: TestedPrediction = {
        "utc": utc_now(),
        "rules": VERSION,
        "rule": rule,
        "cell": cell,
        "tested": tested,
        "command": command_and_metric[0],
        "figure": predicted.figure,
        "unit": predicted.unit,
        "before": command_and_metric[1],
        "predicted": predicted.value,
        "low": predicted.low,
        "high": predicted.high,
        "known": folder.record(tested).exists(),
        "measured": None,
        "holds": None,
        "why_not": "not measured yet",
    }
    _save_predictions(folder, [prediction])


def judge_predictions(verdicts: Verdicts, origin: Record) -> list[TestedPrediction]:
    """Compare the untested predictions on a cell with the records; return all predictions of the campaign."""
    folder = verdicts.folder
    predictions = load_predictions(folder)
    judged: list[Any] = [
        {**prediction, **_judge_prediction(verdicts, prediction, origin)}
        if prediction["measured"] is None and prediction["cell"] == origin["cell"]["id"]
        else prediction
        for prediction in predictions
    ]
    if newly_judged := [
        new for old, new in zip(predictions, judged, strict=True) if old["measured"] != new["measured"]
    ]:
        _save_predictions(folder, newly_judged)
    return judged


def _judge_prediction(verdicts: Verdicts, tested: TestedPrediction, origin: Record) -> dict[str, Any]:
    """Return the new keys of a judged prediction: the measured value and whether the prediction holds.

    If the prediction cannot be judged yet, return only the reason (``why_not``).
    """
    recorded, fault = verdicts.read(verdicts.folder.record(tested["tested"]))
    if recorded is None:
        return {"why_not": fault or "not measured yet"}
    if recorded["status"] != "done":
        return {"why_not": f"{recorded['status']}: {recorded.get('reason') or 'under way'}"}
    machine, tested_machine = _machine_of(origin), _machine_of(recorded)
    if machine != tested_machine:
        return {"why_not": f"the test ran on {tested_machine}, but the advised cell ran on {machine}"}
    runs: Sequence[Any] = stopping.measured_runs(recorded, "valid")
    if disturbance := advice_rules.disturbance_by_others(evidence.gather_evidence(verdicts, recorded), tested["rule"]):
        return {"why_not": f"{disturbance}: `show {tested['tested']}` names the command, add redo=true"}
    values = [float(value) for run in runs if isinstance(value := run.get(tested["figure"]), int | float)]
    if undecided := _reason_of_no_decision(recorded, tested, values):
        return {"why_not": undecided}
    median = statistics.median(values)
    measured: MeasuredMetric = {"median": median, "min": min(values), "max": max(values), "runs": len(values)}
    return {"measured": measured, "holds": tested["low"] <= median <= tested["high"], "why_not": None}


def _reason_of_no_decision(recorded: Record, tested: TestedPrediction, values: Sequence[float]) -> str:
    """Return why the values of a done test decide nothing, or `""`.

    The runs of an unstable cell decide only if all of them are inside the predicted interval, or all are on one side.
    """
    if not values:
        return f"the runs of the test have no metric {tested['figure']}"
    low, high, least, most = tested["low"], tested["high"], min(values), max(values)
    is_clear = low <= least <= most <= high or most < low or high < least
    spread = spread_of_cell(recorded)
    if is_clear or not spread or spread["passed"] is not False:
        return ""
    return f"unstable: {spread['message']}: `show {tested['tested']}` names the command, add redo=true"


def _machine_of(recorded: Record) -> str:
    """Return the host of a record with its quota of processors, in words."""
    quota = min((cores for run in recorded["runs"] if (cores := run.get("quota_cores"))), default=None)
    host = recorded["provenance"].get("host", "an unknown host")
    return host if quota is None else f"{host} with {quota:g} processors"


def _save_predictions(folder: CampaignFolder, changed: Sequence[TestedPrediction]) -> None:
    """Add predictions to ``advice.json``, or replace earlier versions of them."""
    with FileLock(folder.root / "advice.lock"):
        predictions = [*load_predictions(folder), *changed]
        by_key = {(prediction["utc"], prediction["cell"], prediction["rule"]): prediction for prediction in predictions}
        files.write_json(folder.advice, {"schema": SCHEMA, "tests": list(by_key.values())})
