"""Records that the paper's claims are held against, and the verdict on one claim."""

from analysis.verdicts.checklist import verdicts
from tests.analysis import baseline_records
from tests.analysis.record_factory import record
from tests.analysis.training_factory import frames


def at(made, site):
    """Return a record as a campaign on this site writes it."""
    made["campaign"]["site"] = site
    return made


def baseline(storage, access, rates, *, limit=0.04, emulated=None, **settings):
    """Return a record of a storage's own rate in MB/s."""
    made = baseline_records.baseline(rates, access, storage=storage, **settings)
    made["checks"][0] |= {"limit": limit}
    if emulated is not None:
        made["cell"]["settings"]["storage"]["emulated"] = emulated
    return made


def curve(storage, by_threads, **settings):
    """Return micro records of a storage: images/s of each number of threads, three runs without scatter."""
    made = [record([rate] * 3, threads=n, storage=storage, **settings) for n, rate in by_threads.items()]
    for each in made:
        each["checks"][0] |= {"limit": 0.04}
    return made


def checklist(*made):
    """Return all verdicts on these records."""
    return verdicts(*frames(*made)[:2])


def told(claim, *made):
    """Return the one verdict on a claim over a whole set of cells."""
    rows = checklist(*made)
    (row,) = rows[(rows["claim"] == claim.text) & (rows["pair"] == "")].to_dict("records")
    return row
