"""`python -m analysis RECORDS_DIR [--out DIR]`: tables and figures from records on disk; other verbs: `VERBS`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.cli.command import campaign_folder, installed_version, parser_of, run_guarded
from jobs.parser import ProgramParser, exit_code_of, put_verb_first

VERBS = {
    "compare": "analysis.cli.compare",
    "mlperf": "analysis.cli.mlperf",
    "profile": "analysis.cli.profile",
    "timelog": "analysis.cli.timelog",
    "trace": "analysis.cli.trace",
    "verdicts": "analysis.cli.claims",
}
EPILOG = """\
python -m analysis compare A B        two campaigns cell by cell
python -m analysis verdicts [FOLDER]  each claim of a paper and what was measured
python -m analysis profile FILE…      which POSIX calls a program made, by profiles and Darshan logs
python -m analysis timelog FILE…      what took how long in a run, by its time logs
python -m analysis trace FILE…        where the time of steps went, by TensorFlow's own traces
python -m analysis mlperf DIR…        is a published run of MLPerf Storage what its ranks' steps say
Each has --help. A folder of one of these names is written ./compare.

exit codes: 0 all records read, 1 some record was skipped, 2 wrong usage

Only valid measured runs enter a median; everything else is listed with its reason.
"""


def parser() -> ProgramParser:
    """Return the parser of the command line."""
    about = "Make the tables, the figures and the report of a campaign from its records."
    made = parser_of("python -m analysis", about, EPILOG)
    made.add_argument(
        "folder",
        metavar="RECORDS_DIR",
        type=campaign_folder,
        help="a campaign folder (results/), its records folder, or the folder of one record",
    )
    made.add_argument("--out", metavar="DIR", type=Path, help="put report.html, figures/ and tables/ here")
    made.add_argument(
        "--junit", metavar="FILE", type=Path, help="write the verdicts on the paper's claims as JUnit's XML"
    )
    made.add_argument(
        "--version", action="version", version=f"%(prog)s {installed_version()}", help="print the version"
    )
    made.add_argument("--quiet", action="store_true", help="print only the paths of what was written")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Run the analysis for the given command line; return the exit code."""
    words = put_verb_first(sys.argv[1:] if words is None else words, VERBS, ("--out", "--junit"))
    if words and words[0] in VERBS:
        return int(importlib.import_module(VERBS[words[0]]).main(words[1:]))
    asked = parser().parse_args(words)

    def work() -> int:
        from analysis.processes import Helpers  # noqa: PLC0415 - not for --help
        from analysis.records.read_records import read_records  # noqa: PLC0415

        with Helpers() as artists:

            def prepare() -> None:
                """Import pandas and matplotlib, as slow as reading 2,000 records, while other processes read.

                The processes that draw are forked afterwards: they inherit the imports, but no records.
                """
                importlib.import_module("analysis.cli.report")
                artists.start()

            found = read_records(asked.folder, prepare)
            from analysis.cli.report import report_records  # noqa: PLC0415

            return report_records(asked.folder, found, artists, asked.out, asked.junit, quiet=asked.quiet)

    return run_guarded(work)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
