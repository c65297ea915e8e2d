"""Name the verbs of the command line, each with its line of ``--help``; `campaign.__main__` finds their functions."""

from __future__ import annotations

TASKS = {
    "measure": {
        "stall": "whether any program waits for its storage",
        "measure": "what a storage gives, and TensorFlow gets of it",
        "feed": "how many accelerators a storage feeds",
        "reproduce": "a whole paper: baselines, recipes, report",
        "stage": "copies of some files on a faster storage",
    },
    "see": {
        "status": "what is done, what is not, and why; --watch",
        "show": "every run and check of a cell, what bounds it",
        "report": "tables, figures and report.html again",
        "verdicts": "each claim of a paper and what was measured",
        "compare": "two campaigns, cell by cell",
        "tensorboard": "the cells in TensorBoard",
    },
    "prepare and end": {
        "doctor": "whether this machine or cluster can measure",
        "testbed": "emulated storages to rehearse with",
        "cancel": "ends the Slurm jobs of a campaign",
        "clean": "lists and removes the data that were made",
        "help": "what a KEY, GROUP or VERB is; help recipes|keys",
    },
}
"""The verbs by the task of the user, each with its line of ``--help``."""
VERBS = {verb: does for verbs in TASKS.values() for verb, does in verbs.items()}
"""The lines of all verbs."""
