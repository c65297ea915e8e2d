"""How long the command line takes to answer: a fresh interpreter each time, medians."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import Figure, median_process

SIZES = {"smoke": {"repeats": 1}, "full": {"repeats": 5}}


def measure(repeats: int) -> Iterator[Figure]:
    """Ask for help, and for the status of an empty campaign."""
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder, "results", "records")
        records.mkdir(parents=True, mode=0o700)
        records.parent.chmod(0o700)
        (records.parent / "campaign.json").write_text(
            '{"schema": 1, "tool": "tfio-campaign", "requests": []}', encoding="utf-8"
        )
        for word in ("--help", "status"):
            took = median_process(repeats, ["campaign", word], folder)
            yield Figure(f"`python -m campaign {word}`", took.wall_s, "s", "at most 0.6")
