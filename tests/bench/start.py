"""How long the command line takes to answer: help, status, plans of 1,000 and 10,000 cells.

    python tests/bench/start.py [--repeats 5]

Each is a fresh interpreter; the median and the peak memory are printed. Goals: --help and status at most 0.6 s,
--dry-run of 1,000 cells at most 5 s and of 10,000 at most 30 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from tests.bench.bench import medians, options

CASES = {
    "--help": ["--help"],
    "status": ["status"],
    "--dry-run, 1,000 cells": ["--dry-run", "-m", "seed=range(250)", "threads=1,2,4,8"],
    "--dry-run, 10,000 cells": ["--dry-run", "-m", "seed=range(1250)", "threads=1,2,4,8", "prefetch=0,1"],
}


def main() -> None:
    """Print a line for each case."""
    repeats = options(__doc__, repeats=5).repeats
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.makedirs("results/records", mode=0o700)  # noqa: PTH103
        with open("results/campaign.json", "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write('{"schema": 1, "requests": []}')
        for name, words in CASES.items():
            times, memory = zip(*(_measure(words) for _ in range(repeats)), strict=True)
            print(f"{name:24} {medians(list(times))[0]:6.2f} s  {max(memory) / 1e6:6.0f} MB")


def _measure(words: list[str]) -> tuple[float, int]:
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "campaign", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - started, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
