"""Run `report`, `verdicts` and `compare`: the analysis of records on disk, in a process of its own.

pandas and matplotlib stay out of the front process.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from campaign.cells.folder import open_existing
from campaign.cells.record import record_stamp
from campaign.cli import arguments
from campaign.errors import EnvironmentFaultError
from jobs.model.codes import ExitCode
from jobs.system.programs import python_command

_ANSWERS = (0, 1)  # of an analysis that wrote its report: 1 where it left records out


def make_report(argv: list[str]) -> int:
    """Make tables, figures and the page again; return the exit code of the analysis."""
    parser = arguments.make_parser(
        "report", "Make tables, figures and report.html again, from the records on disk.", json=False
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="folder for report.html, figures/ and tables/ (default: the campaign's)",
    )
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, _ = open_existing(options.campaign_dir)
    return write_report(folder.root, options.out)


def write_report(campaign: Path, out: Path | None = None, *, quiet: bool = False) -> int:
    """Let the analysis write the report of a campaign folder, there or in `out`; return its exit code.

    `quiet`: nothing of it is printed but warnings of records that are left out, and errors.

    Raises EnvironmentFaultError where it ended without a new report.html and without an error of its own,
    BrokenPipeError where the reader of what it prints has ended: the report is written by then.
    """
    page = (out or campaign) / "report.html"
    before = record_stamp(page)
    words = [str(campaign), *(["--out", str(out)] if out else []), *(["--quiet"] if quiet else [])]
    code = run_analysis(*words, stdout=subprocess.DEVNULL if quiet else None)
    if code == ExitCode.READER_ENDED:
        raise BrokenPipeError
    if code > max(_ANSWERS) or (code in _ANSWERS and record_stamp(page) != before):
        return code
    end = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    cure = "fix what it says above, then: python -m campaign report"
    raise EnvironmentFaultError(f"the analysis ended {end} and wrote no report", cure)


def read_verdicts(campaign: Path) -> list[dict[str, Any]]:
    """Return the verdicts on the papers' claims by the records of a campaign folder, as ``verdicts --json`` has them.

    Raises EnvironmentFaultError where the analysis gives none.
    """
    words = python_command("-m", "analysis", "verdicts", str(campaign), "--json")
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in _ANSWERS:
        raise EnvironmentFaultError("the claims could not be judged", "fix what it says above, then: verdicts")
    verdicts: list[dict[str, Any]] = msgspec.json.decode(done.stdout)
    return verdicts


def judge_claims(argv: list[str]) -> int:
    """Judge the claims of the papers by the measured values; return the exit code of the analysis."""
    return run_analysis("verdicts", *argv)


def compare_campaigns(argv: list[str]) -> int:
    """Compare two campaigns cell by cell; return the exit code of the analysis."""
    return run_analysis("compare", *argv)


def run_analysis(*words: str, stdout: int | None = None) -> int:
    """Run `python -m analysis` with these words and return its exit code; `stdout` as of `subprocess.run`."""
    return subprocess.run(python_command("-m", "analysis", *words), stdout=stdout, check=False).returncode
