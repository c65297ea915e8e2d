"""The verdict on a cell: a function of the raw figures of its runs and of the terms that are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import asdict

from jobs import checks
from jobs.judging import paired, stopping
from jobs.model.limits import Limits
from jobs.model.record import Asked, Record
from jobs.model.results import Conditions, Peak, Run
from jobs.model.terms import Terms

ODD_FIGURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a record raises that was written by hand: figures are missing, or no numbers."""


def judged(record: Record, terms: Terms, peak: Peak | None = None) -> Record:
    """Return a record with the verdicts on its runs and on the cell; the record that is given stays as it is.

    `peak` is what the storage gives by itself (`jobs.judging.peaks`), None where that is unknown.

    A run that ended is valid or invalid and has its ``checks``; a cell is done, invalid or failed, with the ``reason``,
    or running where its worker is not over with it and it lacks runs. A record without figures, or with figures that
    are no numbers, raises one of `ODD_FIGURES`.
    """
    runs: list[Run] = []
    limits, first = Limits(**terms["checks"]), None
    for run in record["runs"]:
        runs.append(judged_run(run, record["cell"]["claim"], limits, peak, first))
        first = first or _conditions(runs[-1])
    found: Record = {**record, "runs": runs, "checks": []}
    found.pop("looser_checks", None)
    found.pop("profile_cost", None)
    if record["status"] != "running" or not stopping.missing_runs(found, terms):
        _judge_cell(found, terms)
    return found


def judged_run(run: Run, claim: str, limits: Limits, peak: Peak | None = None, first: Conditions | None = None) -> Run:
    """Return a run with its verdict; one that has not ended, or failed, as it is.

    `claim` is the state of the page cache that the cell claims, `first` the conditions of the first run that counts.
    """
    if run["status"] in ("running", "failed"):
        return run
    found, reason = checks.judge(run, claim, limits, peak, first)
    return {**run, "checks": found, "reason": reason, "status": "invalid" if reason else "valid"}


def first_conditions(record: Record) -> Conditions | None:
    """Return the conditions of the first run of a judged record that counts; None where none counts."""
    return next(filter(None, map(_conditions, record["runs"])), None)


def _conditions(run: Run) -> Conditions | None:
    return run.get("conditions") if (run["role"], run["status"]) == ("measured", "valid") else None


def _judge_cell(record: Record, terms: Terms) -> None:
    """Give a cell whose runs are judged its checks and its status."""
    runs, valid = stopping.measured(record), stopping.measured(record, "valid")
    rates = stopping.rates(record)
    narrow = stopping.check(rates, terms)
    record["checks"] = [checks.spread(rates, Limits(**terms["checks"])), *([narrow] if narrow else [])]
    if looser := looser_checks(terms):
        record["looser_checks"] = looser
    if cost := paired.cost(record):
        record["profile_cost"] = cost
    needed = min(terms["min_valid_runs"], terms["runs"] - terms["warmup_runs"])
    if len(valid) >= needed:
        given_up = narrow and not narrow["passed"] and len(valid) >= stopping.most_runs(terms)
        record["status"], record["reason"] = "done", narrow["message"] if narrow and given_up else None
        return
    odd = [run for run in record["runs"] if run["status"] in ("invalid", "failed")]
    bad = [run for run in odd if run["role"] == "measured"] or odd  # the reason of a warm-up where there is no other
    record["status"] = "invalid" if any(run["status"] == "invalid" for run in bad) else "failed"
    worst = Counter(run["reason"] for run in bad).most_common(1)[0][0] if bad else "no run was measured"
    record["reason"] = f"{len(valid)} of {len(runs)} measured runs valid, {needed} needed; {worst}"


def looser_checks(terms: Terms) -> list[str]:
    """Return the thresholds that let more pass than the site's own, each with both.

    A claim that rests on such a cell cannot be tested: what passed may have passed because of them.
    """
    limits, own = terms["checks"], {**asdict(Limits()), **terms["of_site"]}
    looser = [name for name in own if (limits[name] < own[name] if name.endswith("_min") else limits[name] > own[name])]
    return [f"checks.{name}={limits[name]:g} (the site's: {own[name]:g})" for name in looser]


def last_terms(requests: Iterable[Asked]) -> dict[str, Terms]:
    """Return the terms of the last request that names a cell, by the id of the cell."""
    with_terms = [request for request in requests if "terms" in request]
    return {cell: request["terms"] for request in with_terms for cell in request.get("cells", ())}
