"""Name the verbs of the command line, each with its line of ``--help``; `campaign.__main__` finds their functions."""

from __future__ import annotations

TASKS = {
    "measure": {
        "stall": "measures how long a program waits for storage",
        "measure": "measures a storage alone and under TensorFlow",
        "feed": "finds how many accelerators a storage supplies",
        "reproduce": "measures all figures of a paper, with a report",
        "stage": "copies chosen files to a faster storage",
    },
    "see": {
        "status": "lists which cells are done, which not, and why",
        "show": "prints runs and checks of a cell, what bounds it",
        "report": "writes tables, figures and report.html again",
        "verdicts": "judges the claims of the papers by the records",
        "compare": "compares two campaigns, cell by cell",
    },
    "prepare and end": {
        "doctor": "checks whether a campaign can run here",
        "testbed": "makes emulated storages for rehearsals",
        "cancel": "ends the jobs or the worker of a campaign",
        "clean": "lists and removes data that campaigns made",
        "help": "explains a KEY, GROUP or VERB; help recipes|keys",
    },
}
"""The verbs of the command line, grouped by the task of the user, each with its line of ``--help``."""
VERBS = {verb: does for verbs in TASKS.values() for verb, does in verbs.items()}
"""The line of ``--help`` of each verb."""
