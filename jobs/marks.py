"""Where the timed part of a program begins: ``jobs.mark()`` in it, read by the benchmark that runs it."""

from __future__ import annotations

import os
import time
from pathlib import Path

VARIABLE = "TFIO_MARK"
"""The variable of the environment that names the file of the marks."""


def mark() -> None:
    """Say that the timed part begins now; the first mark of a run counts. Does nothing where nobody measures."""
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a", encoding="ascii") as file:
            file.write(f"{time.perf_counter_ns()}\n")


def first(path: Path) -> float | None:
    """Return when the first mark was made, by `time.perf_counter`; None where there is none."""
    try:
        words = path.read_text(encoding="ascii").split()
    except (FileNotFoundError, ValueError):
        return None
    return int(words[0]) / 1e9 if words and words[0].isdecimal() else None
