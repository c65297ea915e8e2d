"""A template that forks nothing: it answers with the figures it was given."""

import json
from pathlib import Path

# What the worker itself writes; the rest of a run are figures.
_OF_THE_WORKER = (
    "run", "role", "started_utc", "status", "reason", "checks", "token", "log", "exclusive", "host", "node", "job",
    "cpus",
)  # fmt: skip
EXAMPLE = json.loads((Path(__file__).parents[1] / "contract" / "record.json").read_text(encoding="utf-8"))
TERMS = EXAMPLE["terms"]
_READ_BYTES = EXAMPLE["runs"][0]["bytes_read"]
PROFILED = {
    "seen_read_bytes": _READ_BYTES, "kernel_read_bytes": _READ_BYTES, "bytes_read": _READ_BYTES, "blind_spot": None,
    "dropped": 0, "mode": "trace",
}  # fmt: skip


def figures(rate=400.0, **changed):
    """The figures of a run that is valid by the default terms."""
    run = {key: value for key, value in EXAMPLE["runs"][0].items() if key not in _OF_THE_WORKER}
    return {**run, "images_per_s": rate, "status": "ended", "reason": None, **changed}


COLD = "cold: 100.00% of the pages were in memory before the start"


def invalid():
    """The figures of a run that is invalid by the default terms, for `COLD`."""
    return figures(resident_fraction=1.0)


def failed(reason="killed by signal 9 (SIGKILL)"):
    return {"status": "failed", "reason": reason, "log_tail": "the last words"}


class FakeTemplate:
    """Answers each run with the next of `answers` (then with valid figures); keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def run(self, argument, log, timeout_s, *job):
        self.asked.append((argument, log, timeout_s, *job))
        answer = self.answers.pop(0) if self.answers else figures()
        if isinstance(answer, BaseException):
            raise answer
        return dict(answer)

    def start(self):
        """Nothing to import."""

    def close(self):
        """Nothing to end."""
