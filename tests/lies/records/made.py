"""What the tool says of records that are made here, each as a campaign writes it."""

import json

from tests.analysis.record_factory import store
from tests.lies.lie import INVALID, REFUSED, VALID, Answer


def reported(workspace, *records):
    """Make the report of these records: `REFUSED` where some are named and not read, `INVALID` after a traceback."""
    done = workspace.analysis(str(store(workspace.folder / "results", *records)), "--out", "out")
    lines = tuple(line for line in (done.stdout + done.stderr).splitlines() if line)
    if "Traceback" in done.stderr:
        return Answer(INVALID, (f"a traceback: {lines[-1]}",), lines)
    complaints = tuple(line for line in done.stderr.splitlines() if line.startswith("warning: "))
    return Answer(REFUSED if complaints else VALID, complaints, lines)


def judged(workspace, claim, *records):
    """Hold a claim against these records: `VALID` where it holds or differs, `REFUSED` where it cannot be told."""
    done = workspace.analysis("verdicts", str(store(workspace.folder / "results", *records)), "--json")
    found = next(each for each in json.loads(done.stdout) if claim in each["claim"] and not each["pair"])
    words = f"{found['verdict']}: {found['why']}"
    return Answer(VALID if found["verdict"] in {"holds", "differs"} else REFUSED, (words,), (words,))
