"""The verdict on a cell, computed from the raw metrics of its runs and the terms of the campaign.

`CampaignJudge` judges the records of one campaign, for the campaign and for the analysis. For runs that other
programs disturbed (check `quiet`), `settings_allowing` returns the limits with which they would be valid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, cast

from msgspec.structs import asdict

from jobs import checks
from jobs.judging import stopping
from jobs.judging.bound import Bound, bound_of_cell
from jobs.judging.peaks import Peaks
from jobs.model.codes import run_end_sentence
from jobs.model.conduct import Limits
from jobs.model.record import ODD_FIGURES, Record, RecordedCall, Terms, contradictions
from jobs.model.results import Check, Conditions, Peak, Run


def judge_record(record: Record, terms: Terms, peak: Peak | None = None) -> Record:
    """Return a copy of a record with the verdicts on its runs and on the cell.

    `peak` is the speed of the storage alone (`jobs.judging.peaks`); None if unknown.

    A run that ended becomes valid or invalid, and gets its ``checks``. A cell becomes done, invalid or failed, with the
    ``reason``, or unfinished if runs are missing although nothing went wrong. It stays running while its worker runs
    and runs are missing. Raises one of `ODD_FIGURES` if metrics are missing or are no numbers.
    """
    runs: list[Run] = []
    limits, first = Limits(**terms["checks"]), None
    for run in record["runs"]:
        runs.append(judged_run(run, record["cell"]["page_cache"], limits, peak, first))
        first = first or _conditions(runs[-1])
    with_verdicts: Record = {**record, "runs": runs, "checks": [], "reason": None, "cause": None}
    with_verdicts.pop("looser_checks", None)
    with_verdicts.pop("profile_cost", None)
    if record["status"] != "running" or not stopping.missing_runs(with_verdicts, terms):
        _judge_cell(with_verdicts, terms)
    return with_verdicts


def judged_run(
    run: Run, page_cache: str, limits: Limits, peak: Peak | None = None, first: Conditions | None = None
) -> Run:
    """Return a run with its verdict; a failed run gets the reason why it has no metrics.

    `page_cache` is the state of the page cache that the cell requires; `first` has the conditions of the first valid
    measured run.
    """
    if run["status"] == "running":
        return {**run, "reason": None, "cause": None}
    if run["status"] == "failed":
        return {**run, "reason": run_end_sentence(run["end"]), "cause": run["end"]["code"]}
    outcomes, reason = checks.judge(run, page_cache, limits, peak, first)
    if reason is None:
        return {**run, "checks": outcomes, "reason": None, "cause": None, "status": "valid"}
    failed_rule = next((check["rule"] for check in outcomes if check["passed"] is False), outcomes[0]["rule"])
    return {**run, "checks": outcomes, "reason": reason, "cause": failed_rule, "status": "invalid"}


def first_conditions(record: Record) -> Conditions | None:
    """Return the conditions of the first valid measured run of a judged record; None if there is no such run."""
    return next(filter(None, map(_conditions, record["runs"])), None)


def _conditions(run: Run) -> Conditions | None:
    return run.get("conditions") if (run["role"], run["status"]) == ("measured", "valid") else None


def _judge_cell(record: Record, terms: Terms) -> None:
    """Set the checks and the status of a cell after its runs are judged."""
    runs, valid = stopping.measured_runs(record), stopping.measured_runs(record, "valid")
    rates = stopping.rates_of_valid_runs(record)
    width_check = stopping.check_spread(rates, terms)
    record["checks"] = [checks.spread(rates, Limits(**terms["checks"])), *([width_check] if width_check else [])]
    if looser := looser_checks(terms):
        record["looser_checks"] = looser
    if cost := stopping.profile_cost(record):
        record["profile_cost"] = cost
    needed = max(1, min(terms["min_valid_runs"], terms["runs"] - terms["warmup_runs"]))
    if len(valid) >= needed:
        is_given_up = width_check and not width_check["passed"] and len(valid) >= stopping.most_runs(terms)
        record["status"], record["reason"] = "done", width_check["message"] if width_check and is_given_up else None
        return
    failed = [run for run in record["runs"] if run["status"] in ("invalid", "failed")]
    bad = [run for run in failed if run["role"] == "measured"] or failed  # if only warm-ups failed: these
    missing = max(0, terms["runs"] - terms["warmup_runs"] - len(runs))
    if not bad or (missing and runs and runs[-1]["status"] == "valid"):  # after a bad run the worker may have given up
        record["status"], why = "unfinished", f"{max(missing, needed - len(valid))} more to be measured"
    else:
        record["status"] = "invalid" if any(run["status"] == "invalid" for run in bad) else "failed"
        record["cause"] = Counter(run["cause"] for run in bad).most_common(1)[0][0]
        why = next(str(run["reason"]) for run in bad if run["cause"] == record["cause"])
    record["reason"] = f"{len(valid)} of {len(runs)} measured runs valid, {needed} needed; {why}"


def looser_checks(terms: Terms) -> list[str]:
    """Return the limits that are looser than those of the site, each with both values, as texts.

    A claim of a paper cannot be tested with such a cell, because a run may be valid only due to the looser limit.
    """
    return list(_looser_limits(tuple(terms["checks"].items()), tuple(terms["of_site"].items())))


@lru_cache
def _looser_limits(
    limits_of_cell: tuple[tuple[str, float], ...], of_site: tuple[tuple[str, float], ...]
) -> Sequence[str]:
    limits, site_limits = asdict(Limits(**dict(limits_of_cell))), {**asdict(Limits()), **dict(of_site)}
    looser = [
        name
        for name, site_limit in site_limits.items()
        if (limits[name] < site_limit if name.endswith("_min") else limits[name] > site_limit)
    ]
    return [f"checks.{name}={limits[name]:g} (the site's: {site_limits[name]:g})" for name in looser]


def last_terms(requests: Iterable[RecordedCall]) -> dict[str, Terms]:
    """Return the terms of the last request that names a cell, by the id of the cell."""
    with_terms = [request for request in requests if "terms" in request]
    return {cell: request["terms"] for request in with_terms for cell in request.get("cells", ())}


class UnusableRecordError(ValueError):
    """A record that contradicts itself, or lacks metrics that its verdict needs; the message names them."""


class CampaignJudge:
    """The judge of a campaign's records, with the terms of each request and the baselines of the storages.

    Parameters
    ----------
    requests
        The requests of ``campaign.json``. The last one that names a cell gives its terms; a cell without a request is
        judged by the terms of its last worker, which are in its record.
    baselines
        The stored records of baselines.
    terms, cells
        The terms of a front process or a worker. They hold for each record that it needs, but for a baseline only if it
        is one of its `cells`, so that all processes use the same speeds of the storages.

    Both iterables are read at the first judgement that needs them.
    """

    def __init__(
        self,
        requests: Iterable[RecordedCall] = (),
        baselines: Iterable[Record] = (),
        terms: Terms | None = None,
        cells: Collection[str] = (),
    ) -> None:
        self._requests, self._baselines, self._terms, self._cells = requests, baselines, terms, cells

    def judged(self, record: Record) -> Record:
        """Return a record with its verdicts; raise UnusableRecordError if it cannot be judged."""
        terms = self._terms or self._terms_of(record)
        try:
            return _judged_consistently(record, terms, self.peaks.of(record))
        except UnusableRecordError:
            raise
        except ODD_FIGURES as error:
            raise UnusableRecordError(f"cannot be judged: {type(error).__name__} {error}") from error

    def bound(self, record: Record) -> Bound | None:
        """Return the limit of the speed of a judged record; None for a baseline, or if its runs do not show it."""
        with suppress(*ODD_FIGURES):
            return bound_of_cell(record, self.peaks)
        return None

    @cached_property
    def peaks(self) -> Peaks:
        """The speeds of the campaign's storages, from the finished baselines."""
        baselines = []
        for record in self._baselines:
            with suppress(*ODD_FIGURES):  # reported when all records are read
                baselines.append(_judged_consistently(record, self._terms_of(record)))
        self._baselines = ()
        return Peaks(baselines)

    def _terms_of(self, record: Record) -> Terms:
        cell = record["cell"]["id"]
        return self._terms if self._terms and cell in self._cells else self._terms_by_cell.get(cell, record["terms"])

    @cached_property
    def _terms_by_cell(self) -> dict[str, Terms]:
        terms = last_terms(self._requests)
        self._requests = ()
        return terms


def _judged_consistently(record: Record, terms: Terms, peak: Peak | None = None) -> Record:
    """Return a record with its verdicts; raise UnusableRecordError for a contradiction, or one of `ODD_FIGURES`."""
    with_verdicts = judge_record(record, terms, peak)
    for contradiction in contradictions(with_verdicts):
        raise UnusableRecordError(f"contradicts itself: {contradiction}")
    return with_verdicts


_STEPS = {"other_cpu_max": 10, "other_device_max": 100}  # limits are proposed in tenths of a core, and in percent


def failed_quiet_checks(runs: Iterable[Run]) -> list[Check]:
    """Return the check `quiet` of each run that failed it."""
    checks_of_runs = (check for run in runs for check in run.get("checks") or ())
    return [check for check in checks_of_runs if check["rule"] == "quiet" and check["passed"] is False]


def settings_allowing(failed: Sequence[Check], limits: Mapping[str, float]) -> str:
    """Return the settings with which the failed runs would pass `quiet`; `limits` are their current limits."""
    excesses = [excess for check in failed for excess in _excesses(check)]
    largest = {name: max(amount for key, amount in excesses if key == name) for name, _ in excesses}
    proposed = {
        name: math.ceil((limits[name] + amount) * _STEPS[name]) / _STEPS[name] for name, amount in largest.items()
    }
    return " ".join(f"checks.{name}={value:g}" for name, value in proposed.items())


def _excesses(check: Check) -> Iterator[tuple[str, float]]:
    """Yield the name of each limit that was exceeded, and the amount above it.

    The limit in the check already includes the processes that serve an emulated storage.
    """
    observed, limit = (cast("Mapping[str, Any]", check[side]) for side in ("observed", "limit"))
    for name in ("other_cpu", "other_device"):
        excess = (observed[name] or 0.0) - limit[name]
        if excess > 0:
            yield f"{name}_max", excess
