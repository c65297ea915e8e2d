"""`python -m campaign report | verdicts | compare`: the analysis of records on disk, in a process of its own.

pandas and matplotlib stay out of the front process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from campaign.cells.folder import existing
from campaign.cli import arguments


def report(argv: list[str]) -> int:
    """Make tables, figures and the page again; the exit code is that of the analysis."""
    parser = arguments.parser(
        "report", "Make tables, figures and report.html again, from the records on disk.", json=False
    )
    parser.add_argument(
        "--out", type=Path, help="folder for report.html, figures/ and tables/ (default: the campaign's own)"
    )
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, _ = existing(options.campaign_dir)
    return analyse(str(folder.root), *(["--out", str(options.out)] if options.out else []))


def verdicts(argv: list[str]) -> int:
    """Hold the paper's claims against what was measured."""
    return analyse("verdicts", *argv)


def compare(argv: list[str]) -> int:
    """Compare two campaigns cell by cell."""
    return analyse("compare", *argv)


def analyse(*words: str) -> int:
    """Run `python -m analysis` with these words and return its exit code."""
    return subprocess.run([sys.executable, "-m", "analysis", *words], check=False).returncode
