"""Run the verbs `report`, `verdicts` and `compare` as `python -m analysis`, in a child process.

So the process that controls the campaign need not import pandas and matplotlib.
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

_ANSWERS = (0, 1)  # exit codes of an analysis that wrote its report; 1 means that it left out some records


def make_report(argv: list[str]) -> int:
    """Write tables, figures and report.html again from the records; return the exit code of the analysis."""
    parser = arguments.make_parser(
        "report", "Make tables, figures and report.html again, from the records on disk.", json=False
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="folder for report.html, figures/ and tables/ (default: the campaign folder)",
    )
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, _ = open_existing(options.campaign_dir)
    return write_report(folder.root, options.out)


def write_report(campaign: Path, out: Path | None = None, *, quiet: bool = False) -> int:
    """Write the report of a campaign folder, into that folder or into `out`; return the exit code of the analysis.

    With `quiet`, the analysis prints only errors, and warnings about records that it left out.

    Raises EnvironmentFaultError if the analysis ended without a new report.html and without an error message.
    Raises BrokenPipeError if the program that reads the output of the analysis has ended; the report is complete then.
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
    cure = "fix the error that the analysis printed above, then run: python -m campaign report"
    raise EnvironmentFaultError(f"the analysis ended {end} and wrote no report", cure)


def read_verdicts(campaign: Path) -> list[dict[str, Any]]:
    """Judge the papers' claims by the records of a campaign folder; return the verdicts as ``verdicts --json`` does.

    Raises EnvironmentFaultError if the analysis could not judge the claims.
    """
    words = python_command("-m", "analysis", "verdicts", str(campaign), "--json")
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in _ANSWERS:
        cure = "fix the error that the analysis printed above, then run: python -m campaign verdicts"
        raise EnvironmentFaultError("the claims could not be judged", cure)
    verdicts: list[dict[str, Any]] = msgspec.json.decode(done.stdout)
    return verdicts


def judge_claims(argv: list[str]) -> int:
    """Judge the claims of the papers by the measured values; return the exit code of the analysis."""
    return run_analysis("verdicts", *argv)


def compare_campaigns(argv: list[str]) -> int:
    """Compare two campaigns cell by cell; return the exit code of the analysis."""
    return run_analysis("compare", *argv)


def run_analysis(*words: str, stdout: int | None = None) -> int:
    """Run `python -m analysis` with these arguments; return its exit code. `stdout` is passed to `subprocess.run`."""
    return subprocess.run(python_command("-m", "analysis", *words), stdout=stdout, check=False).returncode
