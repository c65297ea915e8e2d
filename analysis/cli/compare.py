"""`python -m analysis compare A B`: whether B is faster or slower than A, cell by cell, or why there is no verdict."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.cli.command import campaign_folder, parser_of, run_guarded

USAGE = """\
python -m campaign compare A B [--match A_STORAGE:B_STORAGE] [--out DIR] [--json | --quiet]
       python -m analysis compare A B ...      the same without TensorFlow
"""
EPILOG = """\
exit codes: 0 no cell is slower, 1 some cell is slower, 2 wrong usage, a record that cannot be read, or no pair of cells
that can be compared

Cells are matched by id, else by equal settings wherever storage and data lie. If each campaign has one storage,
its name may differ; if there are several, --match says which name stands for which.
"""


def _names(text: str) -> tuple[str, str]:
    before, colon, after = text.partition(":")
    if not (before and colon and after):
        message = f"'{text}' is not A_STORAGE:B_STORAGE, as in hdd:disk"
        raise argparse.ArgumentTypeError(message)
    return before, after


def main(words: Sequence[str]) -> int:
    """Compare the campaigns of the given command line; return the exit code."""
    about = "Compare two campaigns: before and after a change, or one site with another."
    parser = parser_of("python -m campaign compare", about, EPILOG, USAGE)
    parser.add_argument("before", metavar="A", type=campaign_folder, help="a campaign's folder: before, or here")
    parser.add_argument("after", metavar="B", type=campaign_folder, help="another one: after, or there")
    parser.add_argument(
        "--match",
        metavar="A_STORAGE:B_STORAGE",
        type=_names,
        action="append",
        default=[],
        help="a storage of A and its name in B, as in --match hdd:disk; may be given again",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="put tables and figures here (default: comparison/ in A's folder)"
    )
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    printed.add_argument("--quiet", action="store_true", help="print only the paths of what was written")
    asked = parser.parse_args(words)

    def work() -> int:
        from analysis.compare.comparison_report import compare  # noqa: PLC0415 - keeps pandas and matplotlib out of --help

        return compare(asked.before, asked.after, dict(asked.match), asked.out, as_json=asked.json, quiet=asked.quiet)

    return run_guarded(work)
