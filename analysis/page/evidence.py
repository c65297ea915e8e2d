"""Parts of the report page with evidence: checks, verdicts on claims, and commands."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from analysis.claims.judge_claim import NOT_MEASURED
from analysis.output import tables
from analysis.output.text_table import TextTable
from analysis.page.part import MOST_LINES, MOST_ROWS, Results, count_sentence, paragraphs_and_tables, render_template
from analysis.records.frame import Row, rows_of
from analysis.records.read_records import CAMPAIGN, AbsentError, UnreadableError, load_json
from analysis.text import NONE, percentage
from jobs.model.record import Manifest

# What each check proves (README, "What is measured, and what proves it").
PROVES = {
    "cold": "the files were not in the page cache just before the start; with an object store, the servers read the"
    " objects from their disks",
    "device_bytes": "the kernel read from the device all bytes that the pipeline read",
    "warm": "the files were in the page cache just before the start",
    "from_memory": "almost no bytes were read from the device",
    "reads_data": "the program read a noticeable part of its data",
    "complete": "all images that the run should deliver were delivered",
    "same_data": "the files did not differ from the list of the dataset's files, and the run read the expected number"
    " of bytes",
    "time_adds_up": "the parts of the wall time, which are measured separately, add up to the wall time",
    "quiet": "other processes used the device (share of the run) and the processors (cores) no more than the limit",
    "unthrottled": "the share of the time in which a CPU quota throttled the run was at most the limit; a control"
    " group's limit on reads and writes that the run came close to is named, and is part of the machine",
    "on_time": "emulated accelerators ended their steps at most a hundredth of a step late, and their times add up",
    "undelayed": "the share of the time in which threads with work could not run was at most the limit",
    "unstolen": "the hypervisor took no more processor time (cores) than the limit",
    "same_conditions": "all other conditions that can change the speed were the same as in the first run that counts",
    "checkpoints_durable": "every snapshot could be read back without a difference, and its bytes reached the devices",
    "below_peak": "the throughput was not above the speed of the storage alone",
    "reached_device": "the written bytes reached the device during the run",
    "finite_loss": "the loss of every training step was a finite number",
    "profile_complete": "the profile lost no call, and has all reads that the kernel and the run counted",
    "counts_as_predicted": "the number of read files or images follows from the parameters and the seed",
    "bytes_as_predicted": "the number of read bytes is the size of the predicted files",
    "cold_as_predicted": "the first load of each file on a node found none of the file in memory",
    "staged_cold": "the files were not in the page cache before their copies on the faster storage were made",
    "ahead_as_predicted": "no more images were read ahead than the parameters allow",
    "every_sample_once": "all ranks together read every sample once in each epoch",
    "equal_steps": "all ranks made the same number of steps",
    "equal_weights": "all ranks ended with the same weights",
    "began_together": "the delay between the first and the last start of a rank was at most the limit (share of the"
    " wall time)",
    "unspoiled": "no fault was injected into a request to an emulated storage",
    "until_spread": "the interval of the median is not wider than `until_spread`",
    "spread": "the measured runs of the cell agree: (max - min) / median is at most the limit",
}
# Checks whose threshold is not a limit of the site but follows from the settings of the run.
OF_THE_RUN = ("complete", "same_data", "checkpoints_durable", "finite_loss", "profile_complete")
# The possible values of `Check.passed`: passed, failed, unverifiable.
ENDS = (True, False, None)


def check_table(results: Results) -> Markup:
    """Return a table of the checks: what a check proves, its limits, and how often it passed or failed."""
    counts: Counter[tuple[str, bool | None]] = Counter()
    limits: dict[str, dict[str, set[float]]] = {}
    records = results.found.records
    made = Counter(record.checks for record in records)
    for kinds, count in Counter(record.runs.kinds for record in records).items():
        for kind in kinds:
            if kind.role == "measured":
                made[kind.checks] += count
    for checks, count in made.items():
        for check in checks:
            counts[check.rule, check.passed] += count
            for name, limit in check.limits if check.rule not in OF_THE_RUN else ():
                limits.setdefault(check.rule, {}).setdefault(name, set()).add(limit)
    rules = sorted({rule for rule, _ in counts}, key=lambda rule: ([*PROVES, rule].index(rule), rule))
    rows = [
        [rule, *(f"{counts[rule, end]:,}" for end in ENDS), _thresholds(limits.get(rule, {})), PROVES.get(rule, NONE)]
        for rule in rules
    ]
    if not rows:
        return paragraphs_and_tables("No run was checked.")
    note = (
        "The table has the numbers of measured runs, and for the check spread the numbers of cells. A run that failed a"
        " check is not used for a median."
    )
    headings = ("check", "proved", "failed", "unverifiable", "limit", "claim")
    return paragraphs_and_tables(TextTable(headings, rows, [True, False, False, False, False, True]), note)


def _thresholds(limits: Mapping[str, set[float]]) -> str:
    """Return the thresholds of a check as text. A threshold with several values is a range from minimum to maximum."""
    ends = ((f"{min(each):.3g}", f"{max(each):.3g}") for each in limits.values())
    return ", ".join(least if least == most else f"{least} to {most}" for least, most in ends) or NONE


CLAIM_HEADINGS = ("claim", "published", "ours", "verdict", "tolerance")
TOLERANCE = (
    "A claim about a number holds if our value agrees with the paper's number within the tolerance. The tolerance is"
    " twice the limit of the check spread, plus half a unit of the last digit that the paper prints. A claim about an"
    " order has no tolerance: the whole 95 % interval must agree with the order. A claim about a bound has no tolerance"
    " either. tables/verdicts.md has the tolerance of each claim, and its source."
)


def claim_tables(results: Results) -> Markup:
    """Return the tables of claims, grouped by paper: the published value, the measured value and the verdict."""
    rows = [row for _, of_claim in results.verdicts.groupby("claim", sort=False) for row in rows_of(of_claim)]
    pairs = [row for row in rows if row["pair"]]
    measured = [row for row in rows if not row["pair"] and row["verdict"] != NOT_MEASURED]
    left = [row for row in rows if not row["pair"] and row["verdict"] == NOT_MEASURED]
    papers: dict[str, list[Row]] = {}
    for row in measured:
        papers.setdefault(row["source"].partition(",")[0], []).append(row)
    return render_template(
        "claims.html",
        headings=CLAIM_HEADINGS,
        papers=[{"name": paper, **_claims_shown(rows, MOST_ROWS)} for paper, rows in papers.items()],
        tolerance=TOLERANCE if measured else "None of the paper's claims was measured here.",
        left=[f"{_about(row)}: {tables.reason_of_verdict(row)}" for row in left[:MOST_LINES]],
        left_count=len(left),
        pairs=_claims_shown(pairs, MOST_LINES),
        pair_count=len(pairs),
    )


def _claims_shown(rows: Sequence[Row], most: int) -> dict[str, Any]:
    return {
        "rows": [_claim_row(row) for row in rows[:most]],
        "more": count_sentence(most, len(rows), "verdicts", "tables/verdicts.md"),
    }


def _claim_row(row: Row) -> dict[str, str]:
    ours, interval, _ = tables.evidence_text(row)
    return {
        "claim": row["claim"],
        "about": ", ".join(filter(None, (row["source"], row["pair"], row["about"]))),
        "published": row["published"],
        "ours": ours,
        "interval": "" if ours == NONE else interval,
        "kind": row["verdict"].split()[0],
        "verdict": tables.verdict_in_words(row),
        "why": row["why"],
        "tolerance": percentage(row["tolerance"], 1) if (row["tolerance"] or 0) > 0 else "none",
    }


def _about(row: Row) -> str:
    return f"{row['claim']} ({row['about'] or row['source']})"


def repeat_commands(folder: Path) -> Markup:
    """Return the distinct commands in `campaign.json`, with the time when each command was first given."""
    asked, why = _requests(folder / CAMPAIGN)
    if why:
        return paragraphs_and_tables(why)
    shown = list(asked.items())[:MOST_LINES]
    return render_template(
        "commands.html", commands=shown, more=count_sentence(len(shown), len(asked), "commands", CAMPAIGN)
    )


def _requests(path: Path) -> tuple[dict[str, str], str]:
    """Return the commands with remarks. If the commands are unknown, return the reason as second value."""
    asked: dict[str, str] = {}
    try:
        requests = load_json(path, Manifest)["requests"]
    except AbsentError:
        return {}, f"The commands are unknown, because the campaign folder has no file {CAMPAIGN}."
    except UnreadableError as error:
        return {}, f"{CAMPAIGN} cannot be read: it {error}."
    for request in requests:
        command = shlex.join(["python", "-m", "campaign", *request.get("words", ())])
        cells, utc = request.get("cells", ()), request.get("utc", NONE)
        asked.setdefault(command, f"({len(cells):,} cells, first given {utc})")
    return asked, "" if asked else f"{CAMPAIGN} holds no commands."
