"""Run `python -m analysis compare A B`: tell for each cell whether campaign B is faster or slower than campaign A."""

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

A cell of A is compared with the cell of B that has the same id, or else with the cell of B that has equal settings.
The paths of storage and data may differ. If each campaign has only one storage, the names of these two storages may
differ. If a campaign has several storages, use --match for each storage whose name differs.
"""


def _names(text: str) -> tuple[str, str]:
    before, colon, after = text.partition(":")
    if not (before and colon and after):
        message = f"'{text}' does not have the form A_STORAGE:B_STORAGE, for example hdd:disk"
        raise argparse.ArgumentTypeError(message)
    return before, after


def main(words: Sequence[str]) -> int:
    """Compare the two campaigns that the command line names; return the exit code."""
    about = "Compare two campaigns: before and after a change, or at two sites."
    parser = parser_of("python -m campaign compare", about, EPILOG, USAGE)
    parser.add_argument("before", metavar="A", type=campaign_folder, help="folder of the first campaign")
    parser.add_argument("after", metavar="B", type=campaign_folder, help="folder of the second campaign")
    parser.add_argument(
        "--match",
        metavar="A_STORAGE:B_STORAGE",
        type=_names,
        action="append",
        default=[],
        help="compare this storage of A with this storage of B, for example --match hdd:disk; can be repeated",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="write tables and figures into DIR (default: A/comparison)"
    )
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the comparison as JSON")
    printed.add_argument("--quiet", action="store_true", help="print only the paths of the written files")
    asked = parser.parse_args(words)

    def work() -> int:
        from analysis.compare.comparison_report import compare  # noqa: PLC0415 - keeps pandas and matplotlib out of --help

        return compare(asked.before, asked.after, dict(asked.match), asked.out, as_json=asked.json, quiet=asked.quiet)

    return run_guarded(work)
