"""Run `python -m analysis`: make tables and figures from the records of a campaign, or run a verb (`VERBS`)."""

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
python -m analysis compare A B        compare two campaigns cell by cell
python -m analysis verdicts [FOLDER]  compare each claim of a paper with the measurements
python -m analysis profile FILE…      list the POSIX calls of a program, from profiles or Darshan logs
python -m analysis timelog FILE…      list the duration of each action in a run, from time logs
python -m analysis trace FILE…        show how training steps spent their time, from TensorFlow's traces
python -m analysis mlperf DIR…        recompute a published result of MLPerf Storage from its step times
Each verb has --help. To analyse a folder that has the name of a verb, write its path: ./compare

exit codes: 0 all records were read, 1 some record was skipped, 2 wrong usage

A median is made from valid measured runs only. The report lists invalid and failed runs with the reason.
"""


def parser() -> ProgramParser:
    """Return the parser for the arguments of `python -m analysis RECORDS_DIR`."""
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
        "--junit", metavar="FILE", type=Path, help="write the verdicts on the paper's claims as a JUnit XML file"
    )
    made.add_argument(
        "--version", action="version", version=f"%(prog)s {installed_version()}", help="print the version"
    )
    made.add_argument("--quiet", action="store_true", help="print only the paths of the written files")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Run the analysis for the given command line; return the exit code."""
    words = put_verb_first(sys.argv[1:] if words is None else words, VERBS, ("--out", "--junit"))
    if words and words[0] in VERBS:
        return int(importlib.import_module(VERBS[words[0]]).main(words[1:]))
    asked = parser().parse_args(words)

    def work() -> int:
        from analysis.processes import Helpers  # noqa: PLC0415 - keeps --help fast
        from analysis.records.read_records import read_records  # noqa: PLC0415

        with Helpers() as artists:

            def prepare() -> None:
                """Import pandas and matplotlib while other processes read the records.

                These imports take as long as reading 2,000 records. The processes that draw charts are forked after the
                imports, so that these processes inherit the imported modules but no records.
                """
                importlib.import_module("analysis.cli.report")
                artists.start()

            found = read_records(asked.folder, prepare)
            from analysis.cli.report import report_records  # noqa: PLC0415

            return report_records(asked.folder, found, artists, asked.out, asked.junit, quiet=asked.quiet)

    return run_guarded(work)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
