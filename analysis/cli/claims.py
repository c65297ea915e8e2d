"""`python -m analysis verdicts FOLDER`: what the paper claims, held against what was measured here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from analysis.cli.command import guarded, parser_of

USAGE = """\
python -m campaign verdicts [FOLDER] [--json] [--junit FILE] [--strict]
       python -m analysis verdicts [FOLDER] ...      the same without TensorFlow
"""
EPILOG = """\
exit codes: 0 no claim differs, 1 some claim differs (with --strict also: is not measured, not
comparable, or emulated), 2 wrong usage, or a record that cannot be read
"""
EXIT_DIFFERS, EXIT_UNREAD = 1, 2


def main(words: Sequence[str]) -> int:
    """Print the verdicts that the command line asks for; return the exit code."""
    about = "Compare each claim in the paper's text with what was measured here."
    made = parser_of("python -m campaign verdicts", about, EPILOG, USAGE)
    made.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=lambda text: Path(text.removeprefix("campaign_dir=")),  # as the campaign's own words spell it, too
        default=Path("results"),
        help="a campaign folder (./results)",
    )
    made.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    made.add_argument(
        "--junit", metavar="FILE", type=Path, help="write them as JUnit's XML, for Jenkins or GitLab, too"
    )
    made.add_argument(
        "--strict",
        action="store_true",
        help="each claim must be measured, comparable, and hold; not on what is emulated",
    )
    asked = made.parse_args(words)
    return guarded(lambda: report(asked.folder, asked.junit, as_json=asked.json, strict=asked.strict))


def report(folder: Path, junit: Path | None, *, as_json: bool, strict: bool) -> int:
    """Print the verdicts on a folder of records and write them where asked; return the exit code.

    Raises AnalysisError: there is nothing to read, or no place to write.
    """
    from analysis.records.read_records import read  # noqa: PLC0415 - these keep pandas out of --help

    found = read(folder, lambda: import_module("analysis.cli.measured"))
    from analysis.cli.measured import measured  # noqa: PLC0415
    from analysis.figures.kit import save  # noqa: PLC0415
    from analysis.output import junit as xml  # noqa: PLC0415
    from analysis.output import terminal  # noqa: PLC0415
    from analysis.verdicts import checklist  # noqa: PLC0415

    tested = checklist.verdicts(*measured(folder, found))
    if junit:
        save.write(junit, xml.document(tested))
    if as_json:
        print(json.dumps(checklist.as_json(tested), indent=1))
    else:
        terminal.put(*terminal.verdicts(tested, whole=True))
    if not checklist.well(tested, strict=strict):
        return EXIT_DIFFERS
    return EXIT_UNREAD if found.skipped else 0
