"""How long the command line takes to answer: a fresh interpreter each time, medians."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import Figure, median_s

SIZES = {"smoke": {"repeats": 1}, "full": {"repeats": 5}}


def measure(repeats: int) -> Iterator[Figure]:
    """Ask for help, and for the status of an empty campaign."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "results", "records").mkdir(parents=True, mode=0o700)
        manifest = '{"schema": 1, "tool": "tfio-campaign", "requests": []}'
        Path(folder, "results", "campaign.json").write_text(manifest, encoding="utf-8")
        for word in ("--help", "status"):
            seconds = median_s(repeats, ["campaign", word], folder)
            yield Figure(f"`python -m campaign {word}`", seconds, "s", "at most 0.6")
