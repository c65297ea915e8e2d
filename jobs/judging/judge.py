"""The verdict on a cell: a function of the raw figures of its runs, and of the thresholds asked for now."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from msgspec.structs import asdict

from jobs import checks
from jobs.benchmarks import registry
from jobs.judging import paired, stopping
from jobs.model.conduct import Conduct
from jobs.model.limits import Tolerances
from jobs.model.record import Record
from jobs.model.results import Conditions, Peak, Run

ODD_FIGURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a record raises that was written by hand: figures are missing, or no numbers."""

OF_SITE = Tolerances.__struct_fields__  # of the other limits the defaults are everybody's


def rejudge(record: Record, conduct: Conduct, peak: Peak | None = None) -> bool:
    """Judge a record by the thresholds and the numbers of runs asked for now; returns whether anything changed.

    `peak` is what the storage gives by itself, which may have been measured after the record was
    (`campaign.cells.peaks`).

    A verdict is a function of the raw figures and the conduct, so one that was stored under other thresholds, or not
    stored because its worker was killed first, never stands for the present one.
    """
    before = _verdicts(record)
    limits, first = checks.Limits(**conduct["checks"]), None
    for run in record["runs"]:
        if run["status"] in ("valid", "invalid"):
            claim = registry.of(record["cell"]["settings"]).claim(record["cell"]["settings"])
            run["checks"], run["reason"] = checks.judge(run, claim, limits, peak, first)
            run["status"] = "valid" if run["reason"] is None else "invalid"
            first = first or _conditions(run)
    if record["status"] != "running" or not stopping.missing_runs(record, conduct):
        settle(record, conduct, limits)
    return _verdicts(record) != before


def first_conditions(record: Record) -> Conditions | None:
    """Return the conditions of the first run that counts, which those after it must have; None where none counts."""
    return next(filter(None, map(_conditions, record["runs"])), None)


def _conditions(run: Run) -> Conditions | None:
    return run.get("conditions") if (run["role"], run["status"]) == ("measured", "valid") else None


def _verdicts(record: Record) -> list[object]:
    return [
        record["status"],
        record["reason"],
        record["checks"],
        record.get("looser_checks"),
        *((run["status"], run.get("checks")) for run in record["runs"]),
    ]


def settle(record: Record, conduct: Conduct, limits: checks.Limits) -> None:
    """Give a cell whose runs are over its checks and its status."""
    runs, valid = stopping.measured(record), stopping.measured(record, "valid")
    rates = stopping.rates(record)
    narrow = stopping.check(rates, conduct)
    record["checks"] = [checks.spread(rates, limits), *([narrow] if narrow else [])]
    record.pop("looser_checks", None)
    if found := looser_checks(conduct):
        record["looser_checks"] = found
    record.pop("profile_cost", None)
    if cost := paired.cost(record):
        record["profile_cost"] = cost
    needed = min(int(conduct["min_valid_runs"]), int(conduct["runs"]) - int(conduct["warmup_runs"]))
    if len(valid) >= needed:
        given_up = narrow and not narrow["passed"] and len(valid) >= stopping.most_runs(conduct)
        record["status"], record["reason"] = "done", narrow["message"] if narrow and given_up else None
        return
    odd = [run for run in record["runs"] if run["status"] in ("invalid", "failed")]
    bad = [run for run in odd if run["role"] == "measured"] or odd  # the reason of a warm-up where there is no other
    record["status"] = "invalid" if any(run["status"] == "invalid" for run in bad) else "failed"
    worst = Counter(run["reason"] for run in bad).most_common(1)[0][0] if bad else "no run was measured"
    record["reason"] = f"{len(valid)} of {len(runs)} measured runs valid, {needed} needed; {worst}"


def looser_checks(conduct: Conduct) -> list[str]:
    """Return the thresholds that let more pass than the site's own, each with both.

    A claim that rests on such a cell cannot be tested: what passed may have passed because of them.
    """
    site, asked = cast("dict[str, Any]", conduct["site"]), conduct["checks"]
    own = {name: site.get(name, value) if name in OF_SITE else value for name, value in asdict(checks.Limits()).items()}
    looser = [name for name in own if (asked[name] < own[name] if name.endswith("_min") else asked[name] > own[name])]
    return [f"checks.{name}={asked[name]:g} (the site's: {own[name]:g})" for name in looser]
