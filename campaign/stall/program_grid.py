"""The words of the campaign that `python -m campaign stall` is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.config.command_line import quoted

COLD, WARM = "cold", "warm"
_BEFORE_VALUE = re.compile(r"(\\*)\$\{")


def literal(text: str) -> str:
    """Return a text as the configuration reads it: itself, whatever it holds, an interpolation (``${``) included."""
    return quoted(_BEFORE_VALUE.sub(lambda found: rf"{found[1] * 2}\${{", text))


@dataclass(frozen=True)
class Program:
    """What is to be measured."""

    argv: Sequence[str]
    data: Path  # a folder or a file
    listed: Path | None  # the list of those of its files that count; None: all
    begins: str | None  # regular expression of the line that marks where the timed part begins
    cold: bool  # cold runs alone

    def grid(self, runs: int, own: Sequence[str]) -> list[str]:
        """Return the words of its campaign: so many measured runs in each state of the cache; `own` words win."""
        words = {
            "benchmark": "command",
            "benchmark.argv": f"[{','.join(map(literal, self.argv))}]",
            **({"benchmark.begins": literal(self.begins)} if self.begins else {}),
            "dataset": "folder",
            "dataset.path": literal(str(self.data)),
            **({"dataset.list": literal(str(self.listed))} if self.listed else {}),
            "cache": COLD if self.cold else f"{COLD},{WARM}",
            "in_turn": "true",
            "warmup_runs": "1",
            "runs": str(runs + 1),
            "campaign_dir": "stall",
        }
        keys = {word.partition("=")[0] for word in own}
        return [*(f"{key}={value}" for key, value in words.items() if key not in keys), *own]
