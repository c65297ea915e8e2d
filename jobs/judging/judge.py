"""Judge a cell from the raw metrics of its runs and the terms of the campaign.

`CampaignJudge` judges the records of one campaign; the campaign and the analysis use this class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache

from msgspec.structs import asdict

from jobs import checks
from jobs.judging import stopping
from jobs.judging.bound import Bound, bound_of_cell
from jobs.judging.peaks import Peaks
from jobs.model.codes import run_end_sentence
from jobs.model.conduct import Limits
from jobs.model.record import ODD_FIGURES, Record, RecordedCall, Terms, contradictions
from jobs.model.results import Check, Conditions, Peak, Run

# The largest spread of runs on the machines of the paper (Section IV.B). With a larger tolerance any claim would hold.
WIDEST_SPREAD = 0.06
CURE_OF_LOOSER = "cure: measure without them, or put the tolerance into the site's file (conf/site)"


def judge_record(record: Record, terms: Terms, peak: Peak | None = None) -> Record:
    """Return a copy of a record with the verdicts on its runs and on the cell.

    `peak` is the peak speed of the storage (`jobs.judging.peaks`), or None if the peak is unknown.

    A run that ended becomes valid or invalid, and gets its ``checks``. A cell becomes done, invalid or failed, and gets
    the ``reason``. A cell becomes unfinished if runs are missing although no run failed. A cell stays running while its
    worker runs and runs are missing. Raises one of `ODD_FIGURES` if metrics are missing or are not numbers.
    """
    runs: list[Run] = []
    limits, first = Limits(**terms["checks"]), None
    for run in record["runs"]:
        runs.append(judged_run(run, record["cell"]["page_cache"], limits, peak, first))
        first = first or _conditions(runs[-1])
    with_verdicts: Record = {**record, "runs": runs, "checks": [], "reason": None, "cause": None}
    with_verdicts.pop("looser_checks", None)
    if record["status"] != "running" or not stopping.missing_runs(with_verdicts, terms):
        _judge_cell(with_verdicts, terms)
    return with_verdicts


def judged_run(
    run: Run, page_cache: str, limits: Limits, peak: Peak | None = None, first: Conditions | None = None
) -> Run:
    """Return a copy of a run with its verdict. For a failed run, the verdict says why the run has no metrics.

    `page_cache` is the state of the page cache that the cell requires. `first` contains the conditions of the first
    valid measured run of the cell.
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
    """Return the conditions of the first valid measured run of a judged record, or None if there is no such run."""
    return next(filter(None, map(_conditions, record["runs"])), None)


def _conditions(run: Run) -> Conditions | None:
    is_judged = "conditions" in run and (run["role"], run["status"]) == ("measured", "valid")
    return checks.conditions_of(run) if is_judged else None


def _judge_cell(record: Record, terms: Terms) -> None:
    """Set the checks and the status of a cell in a record whose runs are already judged."""
    runs, valid = stopping.measured_runs(record), stopping.measured_runs(record, "valid")
    rates = stopping.rates_of_valid_runs(record)
    width_check = stopping.check_spread(rates, terms)
    record["checks"] = [checks.spread(rates, Limits(**terms["checks"])), *([width_check] if width_check else [])]
    if looser := looser_checks(terms):
        record["looser_checks"] = looser
    needed = max(1, min(terms["min_valid_runs"], terms["runs"] - terms["warmup_runs"]))
    missing = max(0, terms["runs"] - terms["warmup_runs"] - len(runs))
    is_cut = missing and runs and runs[-1]["status"] != "valid"  # a worker gives up after bad runs
    if len(valid) >= needed and not is_cut:
        is_given_up = width_check and not width_check["passed"] and len(valid) >= stopping.max_valid_runs(terms)
        record["status"], record["reason"] = "done", width_check["message"] if width_check and is_given_up else None
        return
    failed = [run for run in record["runs"] if run["status"] in ("invalid", "failed")]
    bad = [run for run in failed if run["role"] == "measured"] or failed  # warm-up runs count if only they failed
    if not bad or (missing and runs and not is_cut):
        record["status"], why = "unfinished", f"{max(missing, needed - len(valid))} more to be measured"
    else:
        record["status"] = "invalid" if any(run["status"] == "invalid" for run in bad) else "failed"
        record["cause"] = Counter(run["cause"] for run in bad).most_common(1)[0][0]
        why = next(str(run["reason"]) for run in bad if run["cause"] == record["cause"])
    lack = f"{stopping.required_runs_missing(record, terms)} missing" if len(valid) >= needed else f"{needed} needed"
    record["reason"] = f"{len(valid)} of {len(runs)} measured runs valid, {lack}; {why}"


def refusal_by_limits(looser: str, spread_max: float) -> tuple[str, str]:
    """Return why the limits of a cell forbid to compare the cell with others, and the cure; two empty texts if not.

    `looser` has the cell's `looser_checks` as text, and `spread_max` is its limit of the spread.
    """
    wide = spread_max > WIDEST_SPREAD
    if looser:
        cure = "cure: measure without them" if wide else CURE_OF_LOOSER  # no site's file allows a wide spread
        return f"judged by looser checks than the site's: {looser}", cure
    if wide:
        why = f"judged by checks.spread_max={spread_max:g}, too wide to compare anything (at most {WIDEST_SPREAD:g})"
        return why, f"cure: measure with checks.spread_max={WIDEST_SPREAD:g} or less"
    return "", ""


def refusal_of_comparison(record: Record) -> tuple[str, str]:
    """Return the refusal (`refusal_by_limits`) to compare the cell of a judged record with others."""
    spread = spread_of_cell(record)
    return refusal_by_limits(", ".join(record.get("looser_checks", ())), spread["limit"] if spread else 0.0)


def spread_of_cell(record: Record) -> Check | None:
    """Return the check `spread` of the cell of a judged record, or None if the cell has no such check."""
    return next((check for check in record.get("checks", ()) if check["rule"] == "spread"), None)


def looser_checks(terms: Terms) -> list[str]:
    """Return a text for each limit that is looser than the site's limit; the text has the two values of the limit.

    A cell with a looser limit cannot test a claim of a paper, because a run may be valid only due to this limit.
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
    """Return for each cell id the terms of the last request that names the cell."""
    with_terms = [request for request in requests if "terms" in request]
    return {cell: request["terms"] for request in with_terms for cell in request.get("cells", ())}


class UnusableRecordError(ValueError):
    """Raised for a record that contradicts itself, or that lacks metrics that the verdict needs.

    The message names the contradiction or the missing metric.
    """


class CampaignJudge:
    """Judges the records of a campaign by the terms of its requests and by the baselines of the storages.

    Parameters
    ----------
    requests
        The requests in ``campaign.json``. A cell is judged by the terms of the last request that names the cell. A cell
        without a request is judged by the terms in its record, which its last worker used.
    baselines
        The stored records of baselines.
    terms, cells
        The terms of the running command or worker, and the ids of the cells that it measures. If `terms` is given, all
        records are judged by these terms. Only a baseline that is not in `cells` is still judged by the terms of its
        request, so that all processes calculate the same speeds of the storages.

    The iterables `requests` and `baselines` are read when the first judgement needs them.
    """

    def __init__(
        self,
        requests: Iterable[RecordedCall] = (),
        baselines: Iterable[Record] = (),
        terms: Terms | None = None,
        cells: Collection[str] = (),
    ) -> None:
        self._requests, self._baselines, self._terms, self._cells = requests, baselines, terms, cells

    def judge(self, record: Record) -> Record:
        """Return a copy of a record with its verdicts; raise UnusableRecordError if the record cannot be judged."""
        terms = self._terms or self._terms_of(record)
        try:
            return _judged_consistently(record, terms, self.peaks.peak_of(record))
        except UnusableRecordError:
            raise
        except ODD_FIGURES as error:
            raise UnusableRecordError(f"cannot be judged: {type(error).__name__} {error}") from error

    def bound(self, record: Record) -> Bound | None:
        """Return the bottleneck of the cell of a judged record.

        Return None for a baseline, or if the runs lack the metrics that show the bottleneck.
        """
        with suppress(*ODD_FIGURES):
            return bound_of_cell({**record, "terms": self._terms_of(record)}, self.peaks)
        return None

    @cached_property
    def peaks(self) -> Peaks:
        """The peak speeds of the campaign's storages, from the finished baselines."""
        baselines = []
        for record in self._baselines:
            with suppress(*ODD_FIGURES):  # other code reports a damaged baseline when it reads all records
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
    """Return a copy of a record with its verdicts, after a search for contradictions.

    Raises UnusableRecordError for a contradiction, or one of `ODD_FIGURES` for missing metrics.
    """
    with_verdicts = judge_record(record, terms, peak)
    for contradiction in contradictions(with_verdicts):
        raise UnusableRecordError(f"contradicts itself: {contradiction}")
    return with_verdicts


def failed_quiet_checks(runs: Iterable[Run]) -> list[Check]:
    """Return the failed checks named `quiet` of all runs."""
    checks_of_runs = (check for run in runs for check in run.get("checks") or ())
    return [check for check in checks_of_runs if check["rule"] == "quiet" and check["passed"] is False]
