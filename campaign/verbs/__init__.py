"""The verbs of the command line, one file each; every one has ``main(argv) -> exit code``."""

VERBS = ("cancel", "compare", "doctor", "report", "status", "testbed", "watch", "why")
