"""`python -m campaign report | verdicts | compare`: the analysis of records on disk, in a process of its own.

pandas and matplotlib stay out of the front process.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from campaign.cells.folder import existing
from campaign.cells.record import stamp
from campaign.cli import arguments
from campaign.errors import EnvironmentFaultError
from jobs.system.programs import python

_ANSWERS = (0, 1)  # of an analysis that wrote its report: 1 where it left records out


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
    return write_report(folder.root, options.out)


def write_report(campaign: Path, out: Path | None = None, *, quiet: bool = False) -> int:
    """Have the analysis write the report of a campaign folder, there or in `out`; return the exit code of the analysis.

    Where it is `quiet` the analysis prints no table.

    Raises EnvironmentFaultError where it ended without a new report.html and without an error of its own.
    """
    page = (out or campaign) / "report.html"
    before = stamp(page)
    code = analyse(str(campaign), *(["--out", str(out)] if out else []), quiet=quiet)
    if code > max(_ANSWERS) or (code in _ANSWERS and stamp(page) != before):
        return code
    end = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    cure = "fix what it says above, then: python -m campaign report"
    raise EnvironmentFaultError(f"the analysis ended {end} and wrote no report", cure)


def verdicts(argv: list[str]) -> int:
    """Hold the paper's claims against what was measured."""
    return analyse("verdicts", *argv)


def compare(argv: list[str]) -> int:
    """Compare two campaigns cell by cell."""
    return analyse("compare", *argv)


def analyse(*words: str, quiet: bool = False) -> int:
    """Run `python -m analysis` with these words and return its exit code."""
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(python("-m", "analysis", *words), check=False, stdout=output).returncode
