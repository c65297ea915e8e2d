"""`python -m analysis verdicts FOLDER`: what the paper claims, held against what was measured here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.cli.command import guarded, version

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = """\
python -m campaign verdicts [FOLDER] [--json] [--junit FILE] [--strict]
       python -m analysis verdicts [FOLDER] ...      the same without TensorFlow
"""
EPILOG = """\
exit codes: 0 no claim differs, 1 some claim differs (with --strict also: is not measured or not comparable),
2 wrong usage, or a record that cannot be read
"""


def _folder(text: str) -> Path:
    """Read a folder, as a path or as the campaign's own words spell it."""
    return Path(text.removeprefix("campaign_dir="))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m campaign verdicts",
        usage=USAGE,
        description="Hold each claim that the paper's text states against what was measured here.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=_folder,
        default=Path("results"),
        help="a campaign folder (./results)",
    )
    made.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    made.add_argument(
        "--junit", metavar="FILE", type=Path, help="write them as JUnit's XML, for Jenkins or GitLab, too"
    )
    made.add_argument("--strict", action="store_true", help="each claim must be measured, comparable, and hold")
    made.add_argument("--version", action="version", version=f"python -m analysis verdicts {version()}")
    return made


def main(words: Sequence[str]) -> int:
    """Tell the verdicts that the command line asks for; return the exit code."""
    asked = parser().parse_args(words)

    def work() -> int:
        from analysis.cli.telling import tell  # noqa: PLC0415 - keeps pandas out of --help

        return tell(asked.folder, asked.junit, as_json=asked.json, strict=asked.strict)

    return guarded(work)
