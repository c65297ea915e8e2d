"""Records that the paper's claims are held against, and the verdict on one claim."""

from __future__ import annotations

from analysis.verdicts.checklist import verdicts
from tests.analysis.record_factory import id_of, of_benchmark, record, run
from tests.analysis.training_factory import frames


def at(made, site):
    """Return a record as a campaign on this site writes it."""
    made["campaign"]["site"] = site
    return made


def baseline(storage, access, rates, *, limit=0.04, emulated=None, **settings):
    """Return a record of a storage's own rate in MB/s."""
    figure = "write_mb_per_s" if access == "write" else "read_mb_per_s"
    times = [{"wall_s": 57.344 / rate, "read_mb_per_s": None, figure: rate} for rate in rates]
    runs = [run(n, 1.0) | figures for n, figures in enumerate(times, 1)]
    for each in runs:
        del each["images_per_s"]
    benchmark = {"name": "baseline", "access": access, "file_mb": 5000}
    made = record(runs, storage=storage, benchmark=benchmark, **settings)
    of_benchmark(made, "baseline", id_of(made).replace("micro-demo", f"baseline-{access}"))
    made["checks"][0] |= {"limit": limit}
    if emulated is not None:
        made["cell"]["settings"]["storage"]["emulated"] = emulated
    return made


def curve(storage, by_threads, *, limit=0.04, **settings):
    """Return micro records of a storage: images/s of each number of threads, three runs without scatter."""
    made = [record([rate] * 3, threads=n, storage=storage, **settings) for n, rate in by_threads.items()]
    for each in made:
        each["checks"][0] |= {"limit": limit}
    return made


def told(claim, *made):
    """Return the one verdict on a claim over a whole set of cells."""
    rows = verdicts(*frames(*made)[:2])
    (row,) = rows[(rows["claim"] == claim.text) & (rows["pair"] == "")].to_dict("records")
    return row
