"""Records that the paper's claims are held against, and the verdict on one claim."""

import copy
import itertools

import pandas as pd

from analysis.claims import judge_claim
from analysis.claims.cell_sets import Evidence
from tests.analysis import baseline_records
from tests.analysis.record_factory import record, scattered
from tests.analysis.training_factory import frames


def at(made, site):
    """Return a record as a campaign on this site writes it."""
    made["campaign"]["site"] = site
    return made


def baseline(storage, access, rates, *, limit=0.04, emulated=None, **settings):
    """Return a record of a storage's own rate in MB/s."""
    made = baseline_records.baseline(rates, access, storage=storage, limit=limit, **settings)
    if emulated is not None:
        made["cell"]["settings"]["storage"]["emulated"] = emulated
    return made


def curve(storage, by_threads, **settings):
    """Return micro records of a storage: images/s of each number of threads, the median of three runs."""
    return [record(scattered(rate), threads=n, storage=storage, **settings) for n, rate in by_threads.items()]


def checklist(*made):
    """Return all verdicts on these records."""
    return judge_claim.judge_all_claims(*frames(*made)[:2])


def rows_of(claims, *made):
    """Return what the checklist has of some claims on these records; to judge all takes as long as to read them."""
    evidence = Evidence(*frames(*made)[:2])
    rows = [row for claim in claims for row in judge_claim._of_claim(claim, evidence)]  # noqa: SLF001
    return pd.DataFrame(rows)[judge_claim.COLUMNS]


def of_single_runs(claim, *made):
    """Return between what a claim's figure is where each record has its second, or its third run alone, three times."""

    def alone(each, number):
        runs = [copy.deepcopy(each["runs"][number]) | {"run": n} for n in (1, 2, 3)]
        return each | {"runs": [each["runs"][0], *runs]}

    chosen = itertools.product(*([alone(each, n) for n in (2, 3)] for each in made))
    ours = [told(claim, *one)["ours"] for one in chosen]
    return [min(ours), max(ours)]


def told(claim, *made):
    """Return the one verdict on a claim over a whole set of cells."""
    rows = rows_of([claim], *made)
    (row,) = rows[rows["pair"] == ""].to_dict("records")
    return row
