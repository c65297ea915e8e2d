"""`python -m campaign` as a user speaks it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TINY = (
    "dataset.files=24",
    "dataset.median_bytes=3000",
    "dataset.width=64",
    "dataset.height=64",
    "dataset.classes=3",
    "batch_size=8",
    "runs=3",
    "storage.exclusive=none",  # else they would wait for the runs of whoever else tests on this disk
    # The tests share the machine with whatever else runs on it; the rule itself has tests of its own.
    "checks.other_cpu_max=1000",
    "checks.other_device_max=1",
    "checks.stolen_max=1000",
    "checks.delayed_max=1",
    "checks.time_error_max=0.1",
)


@dataclass
class CommandLine:
    """`python -m campaign` as a user speaks it, from a folder of its own."""

    cwd: Path
    timeout_s: float = 580  # a long test may take 600

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "campaign", *words],
            cwd=self.cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=self.timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "campaign", *words],
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
