"""Run `python -m analysis mlperf`: recompute a published result of MLPerf Storage from the recorded step times."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from analysis.cli.command import parser_of, run_guarded
from analysis.errors import AnalysisError
from jobs.model.codes import ExitCode
from jobs.terminal import complain

EPILOG = """\
DIR is the output folder of one run of DLIO or MLPerf Storage (version 0.5 to 3.0).
Definitions: docs/reference/mlperf.md.

exit codes: 0 all recomputed numbers are as published, 1 a number differs by more than 0.02 percentage points, or ranks
or epochs are missing, 2 wrong usage, or a folder that cannot be read
"""
EXIT_DIFFERS = 1


def _positive(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) < float("inf"):
            return value
    raise argparse.ArgumentTypeError(f"'{text}' is not a number greater than 0")


def _percentage(text: str) -> float:
    if (value := _positive(text)) <= 100:  # noqa: PLR2004 - percent
        return value
    raise argparse.ArgumentTypeError(f"'{text}' is not a percentage of at most 100")


def main(words: Sequence[str]) -> int:
    """Print the verdict on the runs that the command line names; return the exit code."""
    about = (
        "Recompute the accelerator utilization (AU) of published runs of MLPerf Storage. The output is not an MLPerf "
        "result, and MLCommons has not reviewed it."
    )
    parser = parser_of("python -m analysis mlperf", about, EPILOG)
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path, help="output folders, one per run")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write a chart of the AU per rank and epoch into DIR")
    parser.add_argument("--step", metavar="SECONDS", type=_positive, help="nominal compute time of a step")
    parser.add_argument("--batch", metavar="N", type=_positive, help="number of samples per step and rank")
    parser.add_argument("--minimum", metavar="PERCENT", type=_percentage, help="minimum AU of a run that passes")
    asked = parser.parse_args(words)
    return run_guarded(lambda: report(asked))


def report(asked: argparse.Namespace) -> int:
    """Read the folders of the runs, write the chart and print the verdicts; return the exit code.

    Prints an error for each folder that cannot be read, and continues with the next folder.
    """
    from analysis.mlperf import referee, referee_report  # noqa: PLC0415 - these imports load pandas and matplotlib
    from analysis.mlperf.dlio_folder import read_folder  # noqa: PLC0415
    from analysis.output import terminal  # noqa: PLC0415

    given = referee.Definition(*(getattr(asked, name) or float("nan") for name in ("batch", "step", "minimum")))
    runs, unread = [], 0
    for folder in asked.folders:
        try:
            runs.append(referee.judge(read_folder(folder), given))
        except AnalysisError as error:
            complain(error.args[0], error.hint)
            unread += 1
    written = referee_report.write_chart(runs, asked.out) if asked.out else []
    if asked.out and not written:
        sys.stderr.write("warning: no chart was written, because no folder has step times of a rank\n")
    if asked.json:
        print(referee_report.document(runs))
    elif runs:
        terminal.print_text(*referee_report.tables(runs))
        terminal.print_paths(written) if written else None
    is_as_published = all(referee.is_complete(run) and not run["differences"] for run in runs)
    return ExitCode.USAGE if unread else 0 if is_as_published else EXIT_DIFFERS
