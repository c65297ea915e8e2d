"""A template that forks nothing: it answers with the figures it was given."""

import json
import math
from pathlib import Path

from jobs.model.record import RATES, ROUNDED

# What the worker itself writes; the rest of a run are figures.
_OF_THE_WORKER = (
    "run", "role", "started_utc", "status", "checks", "token", "log", "exclusive", "host", "node", "job",
    "cpus",
)  # fmt: skip
EXAMPLE = json.loads((Path(__file__).parents[1] / "acceptance" / "stored" / "record.json").read_text(encoding="utf-8"))
TERMS = EXAMPLE["terms"]
# What changes with the amount of a rate: what was asked for, and what the device moved.
_ASKED = {"images": ["images_asked"], "bytes_read": ["bytes_asked", "listed_bytes"], "bytes_written": ["bytes_asked"]}
_MOVED = {"images": [], "bytes_read": ["device_bytes"], "bytes_written": ["reached_bytes"]}
_READ_BYTES = EXAMPLE["runs"][0]["bytes_read"]
PROFILED = {
    "seen_read_bytes": _READ_BYTES, "kernel_read_bytes": _READ_BYTES, "bytes_read": _READ_BYTES, "blind_spot": None,
    "dropped": 0, "mode": "trace",
}  # fmt: skip


def figures(rate=400.0, **changed):
    """The figures of a run that is valid by the default terms."""
    run = {key: value for key, value in EXAMPLE["runs"][0].items() if key not in _OF_THE_WORKER}
    wall_s = run["images"] / rate
    times = {"wall_s": wall_s, "load_s": wall_s - run["other_s"], "elapsed_s": wall_s + 0.01}
    rates = {"images_per_s": rate, "read_mb_per_s": run["bytes_read"] / wall_s / 1e6}
    return with_amounts({**run, **times, **rates, "status": "ended", **changed})


def with_amounts(run):
    """A run whose amounts are its rates times its wall time, for a record that contradicts itself counts for nothing.

    What was asked for and what the device gave change with the amount.
    """
    wall_s = run.get("wall_s")
    for name, (amount, unit) in RATES.items():
        rate, before = run.get(name), run.get(amount)
        if not all(isinstance(number, int | float) for number in (wall_s, rate, before)):
            continue
        if not math.isclose(rate * wall_s * unit, before, rel_tol=ROUNDED):
            after = round(rate * wall_s * unit)
            run = {**run, amount: after}
            run |= {key: after for key in _ASKED[amount] if run.get(key) == before}
            run |= {key: run[key] * after // before for key in _MOVED[amount] if run.get(key) and before}
            if not math.isclose(rate * wall_s * unit, after, rel_tol=ROUNDED):  # of few images
                run[name] = after / wall_s / unit
    return run


COLD = "cold: 100.00% of the pages were in memory before the start (100%, at most 1%)"


def invalid():
    """The figures of a run that is invalid by the default terms, for `COLD`."""
    return figures(resident_fraction=1.0)


def failed(words=""):
    """A run that was killed or, with words, that failed as they say."""
    end = {"code": "not_exclusive", "words": words} if words else {"code": "killed", "number": 9}
    return {"status": "failed", "end": end, "log_tail": "the last words"}


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
