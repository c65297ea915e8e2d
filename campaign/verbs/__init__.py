"""The verbs of the command line, one file each; every one has ``main(argv) -> exit code``."""

VERBS = (
    "cancel", "compare", "doctor", "report", "reproduce", "status", "testbed", "verdicts", "watch", "why",
)  # fmt: skip
