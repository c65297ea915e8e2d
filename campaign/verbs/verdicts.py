"""`python -m campaign verdicts`: the paper's claims, held against what was measured here."""

from __future__ import annotations

import subprocess
import sys


def main(argv: list[str]) -> int:
    """Hand the words to the analysis, in a process of its own as `report` does; its exit code is ours."""
    return subprocess.run([sys.executable, "-m", "analysis.verdicts", *argv], check=False).returncode
