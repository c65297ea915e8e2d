"""`python -m campaign compare A B`: two campaigns, cell by cell."""

from __future__ import annotations

import subprocess
import sys


def main(argv: list[str]) -> int:
    """Hand the words to the analysis, in a process of its own as `report` does; its exit code is ours."""
    return subprocess.run([sys.executable, "-m", "analysis.compare", *argv], check=False).returncode
