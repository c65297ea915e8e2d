"""The verdict on a cell, computed from the raw metrics of its runs and the terms of the campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import asdict

from jobs import checks
from jobs.judging import paired, stopping
from jobs.model.codes import sentence
from jobs.model.limits import Limits
from jobs.model.record import Asked, Record
from jobs.model.results import Conditions, Peak, Run
from jobs.model.terms import Terms

ODD_FIGURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors of a record that was written by hand, whose metrics are missing or are no numbers."""


def judged(record: Record, terms: Terms, peak: Peak | None = None) -> Record:
    """Return a copy of a record with the verdicts on its runs and on the cell.

    `peak` is the speed of the storage alone (`jobs.judging.peaks`); None: unknown.

    A run that ended becomes valid or invalid and gets its ``checks``. A cell becomes done, invalid or failed, with the
    ``reason``, or unfinished, where runs are missing and nothing went wrong; it stays running while its worker has not
    finished and runs are missing. Raises one of `ODD_FIGURES` if metrics are missing or are no numbers.
    """
    runs: list[Run] = []
    limits, first = Limits(**terms["checks"]), None
    for run in record["runs"]:
        runs.append(judged_run(run, record["cell"]["page_cache"], limits, peak, first))
        first = first or _conditions(runs[-1])
    found: Record = {**record, "runs": runs, "checks": [], "reason": None, "cause": None}
    found.pop("looser_checks", None)
    found.pop("profile_cost", None)
    if record["status"] != "running" or not stopping.missing_runs(found, terms):
        _judge_cell(found, terms)
    return found


def judged_run(
    run: Run, page_cache: str, limits: Limits, peak: Peak | None = None, first: Conditions | None = None
) -> Run:
    """Return a run with its verdict; that of a run that failed is why it has no metrics.

    `page_cache` is the state of the page cache that the cell asks for; `first` are the conditions of the first valid
    measured run.
    """
    if run["status"] == "running":
        return {**run, "reason": None, "cause": None}
    if run["status"] == "failed":
        return {**run, "reason": sentence(run["end"]), "cause": run["end"]["code"]}
    found, reason = checks.judge(run, page_cache, limits, peak, first)
    if reason is None:
        return {**run, "checks": found, "reason": None, "cause": None, "status": "valid"}
    broken = next((check["rule"] for check in found if check["passed"] is False), found[0]["rule"])
    return {**run, "checks": found, "reason": reason, "cause": broken, "status": "invalid"}


def first_conditions(record: Record) -> Conditions | None:
    """Return the conditions of the first valid measured run of a judged record; None if there is no such run."""
    return next(filter(None, map(_conditions, record["runs"])), None)


def _conditions(run: Run) -> Conditions | None:
    return run.get("conditions") if (run["role"], run["status"]) == ("measured", "valid") else None


def _judge_cell(record: Record, terms: Terms) -> None:
    """Set the checks and the status of a cell whose runs are judged."""
    runs, valid = stopping.measured(record), stopping.measured(record, "valid")
    rates = stopping.rates(record)
    narrow = stopping.check(rates, terms)
    record["checks"] = [checks.spread(rates, Limits(**terms["checks"])), *([narrow] if narrow else [])]
    if looser := looser_checks(terms):
        record["looser_checks"] = looser
    if cost := paired.cost(record):
        record["profile_cost"] = cost
    needed = max(1, min(terms["min_valid_runs"], terms["runs"] - terms["warmup_runs"]))
    if len(valid) >= needed:
        given_up = narrow and not narrow["passed"] and len(valid) >= stopping.most_runs(terms)
        record["status"], record["reason"] = "done", narrow["message"] if narrow and given_up else None
        return
    odd = [run for run in record["runs"] if run["status"] in ("invalid", "failed")]
    bad = [run for run in odd if run["role"] == "measured"] or odd  # the reason of a warm-up where there is no other
    missing = max(0, terms["runs"] - terms["warmup_runs"] - len(runs))
    if not bad or (missing and runs and runs[-1]["status"] == "valid"):  # after a bad one its worker may have given up
        record["status"], why = "unfinished", f"{max(missing, needed - len(valid))} more to be measured"
    else:
        record["status"] = "invalid" if any(run["status"] == "invalid" for run in bad) else "failed"
        record["cause"] = Counter(run["cause"] for run in bad).most_common(1)[0][0]
        why = next(str(run["reason"]) for run in bad if run["cause"] == record["cause"])
    record["reason"] = f"{len(valid)} of {len(runs)} measured runs valid, {needed} needed; {why}"


def looser_checks(terms: Terms) -> list[str]:
    """Return the limits that are looser than those of the site, each with both values, in words.

    A claim of a paper cannot be tested with such a cell, because a run may be valid only due to the looser limit.
    """
    limits, own = asdict(Limits(**terms["checks"])), {**asdict(Limits()), **terms["of_site"]}
    looser = [name for name in own if (limits[name] < own[name] if name.endswith("_min") else limits[name] > own[name])]
    return [f"checks.{name}={limits[name]:g} (the site's: {own[name]:g})" for name in looser]


def last_terms(requests: Iterable[Asked]) -> dict[str, Terms]:
    """Return the terms of the last request that names a cell, by the id of the cell."""
    with_terms = [request for request in requests if "terms" in request]
    return {cell: request["terms"] for request in with_terms for cell in request.get("cells", ())}
