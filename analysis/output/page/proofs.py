"""What was claimed of the runs and the cells, by which limits, and how often it was proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from analysis.output.page.results import Results
from analysis.text.html import Markup, joined, table, tag
from analysis.text.plain import NONE

# What each check claims (README, "What is measured, and what proves it").
CLAIMS = {
    "cold": "the files were not in memory just before the start; of an object store: its servers fetched what was read"
    " from their disk, by each account of it",
    "device_bytes": "the kernel fetched from the device what the pipeline read",
    "warm": "the files were in memory just before the start",
    "from_memory": "next to nothing was fetched from the device",
    "complete": "every image asked for was delivered",
    "same_data": "the files were what their list says, and as many bytes were read",
    "time_adds_up": "the parts, each measured by itself, make up the wall time",
    "quiet": "others used the device (share of the run) and the processors (cores) no more than the limit",
    "unthrottled": "no CPU quota held the run back for a larger share of its time than the limit, and it came no"
    " nearer to a control group's limit on reads and writes",
    "undelayed": "threads with work were asleep, held by other programs or stopped for no larger share of the time",
    "unstolen": "the hypervisor took no more of the processors than the limit (cores)",
    "same_conditions": "nothing else that can change the speed was otherwise than in the first run that counts",
    "checkpoints_durable": "every snapshot was read back as it was written, and its bytes came to its devices",
    "below_peak": "the throughput is not above what the storage gives by itself",
    "reached_device": "what was written came to the device in the time of the run",
    "finite_loss": "every step of a training has a loss that is a finite number",
    "profile_complete": "the profile dropped nothing, saw all reads that the kernel counted and has what the run read",
    "counts_as_predicted": "as many files or images were read as follow from the parameters and the seed",
    "bytes_as_predicted": "as many bytes were read as these have",
    "cold_as_predicted": "those loads found nothing in memory that are the first of their file on this node",
    "ahead_as_predicted": "no more was read ahead than the parameters let",
    "every_sample_once": "over all ranks every sample came once in each epoch",
    "equal_steps": "all ranks made as many steps",
    "equal_weights": "all ranks ended with the same weights",
    "began_together": "no rank began later than the first one by a larger share of the wall time than the limit",
    "unspoiled": "no request of an emulated storage was given a fault",
    "until_spread": "the interval of the median is no wider than was asked for",
    "spread": "the measured runs of the cell agree: (max - min) / median",
}
# Their limit is what was asked of the run.
OF_THE_RUN = ("complete", "same_data", "checkpoints_durable", "finite_loss", "profile_complete")
# How a check ends: proved, failed, unverifiable.
ENDS = (True, False, None)


def proofs(results: Results) -> Markup:
    """Return a table of what was claimed of the runs and the cells, by which limits, and how often it was proved."""
    told: Counter[tuple[str, bool | None]] = Counter()
    limits: dict[str, dict[str, set[float]]] = {}
    records = results.found.records
    of_runs = Counter(run.checks for record in records for run in record.runs if run.role == "measured")
    for checks, count in (of_runs + Counter(record.checks for record in records)).items():
        for check in checks:
            told[check.rule, check.passed] += count
            for name, limit in check.limits if check.rule not in OF_THE_RUN else ():
                limits.setdefault(check.rule, {}).setdefault(name, set()).add(limit)
    rules = sorted({rule for rule, _ in told}, key=lambda rule: ([*CLAIMS, rule].index(rule), rule))
    rows = [
        [rule, *(f"{told[rule, end]:,}" for end in ENDS), _told(limits.get(rule, {})), CLAIMS.get(rule, NONE)]
        for rule in rules
    ]
    if not rows:
        return tag("p", "No checks.")
    note = tag("p", "Of measured runs; spread: of cells. A run that failed a check counts in no median.")
    headings = ("check", "proved", "failed", "unverifiable", "limit", "claim")
    return joined([table(headings, rows, [True, False, False, False, False, True]), note])


def _told(limits: Mapping[str, set[float]]) -> str:
    """Return the thresholds that were in force, each from the least to the most."""
    ends = ((f"{min(each):.3g}", f"{max(each):.3g}") for each in limits.values())
    return ", ".join(least if least == most else f"{least} to {most}" for least, most in ends) or NONE
