"""`python -m analysis RECORDS_DIR [--out DIR]`: tables and figures from records on disk."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

EPILOG = """\
exit codes: 0 all records read, 1 some record was skipped, 2 wrong usage

Only valid measured runs enter a median; everything else is listed with its reason.
"""


def version() -> str:
    """Return the installed version, or say that this is a bare copy of the source."""
    try:
        return importlib.metadata.version("tfio-campaign")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Make the tables and the figures of a campaign from its records.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "folder",
        metavar="RECORDS_DIR",
        type=Path,
        help="a campaign folder (results/), its records folder, or the folder of one record",
    )
    made.add_argument("--out", metavar="DIR", type=Path, help="put figures/ and tables/ here")
    made.add_argument("--quiet", action="store_true", help="print only the paths of what was written")
    made.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Analyse what the command line asks for; return the exit code."""
    asked = parser().parse_args(words)
    try:
        from analysis.report import report  # noqa: PLC0415 - keeps pandas and matplotlib out of --help

        return report(asked.folder, asked.out, quiet=asked.quiet)
    except AnalysisError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USAGE
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; all files were written before the first word.
        # https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        sys.stderr.write(f"error: {error}\n\nhint: mend what is named here; the records are untouched\n")
        return EXIT_USAGE


if __name__ == "__main__":
    raise SystemExit(main())
