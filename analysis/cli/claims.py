"""Run `python -m analysis verdicts`: compare the claims of a paper with the measurements of a campaign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from analysis.cli.command import campaign_folder, parser_of, run_guarded

USAGE = """\
python -m campaign verdicts [campaign_dir] [--json] [--junit FILE] [--strict]
       python -m analysis verdicts [campaign_dir] ...      the same without TensorFlow
"""
EPILOG = """\
exit codes: 0 no claim differs, 1 some claim differs (with --strict also if a claim is not measured, is not
comparable, or was measured on emulated storage), 2 wrong usage, or a record that cannot be read
"""
EXIT_DIFFERS, EXIT_UNREAD = 1, 2


def main(words: Sequence[str]) -> int:
    """Print the verdicts on the claims for the campaign that the command line names; return the exit code."""
    about = "Compare each claim in the text of a paper with the measurements of a campaign."
    parser = parser_of("python -m campaign verdicts", about, EPILOG, USAGE)
    parser.add_argument(
        "folder",
        metavar="campaign_dir",
        nargs="?",
        type=campaign_folder,
        default=Path("results"),
        help="the campaign's folder (default: results)",
    )
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.add_argument(
        "--junit", metavar="FILE", type=Path, help="also write the verdicts as a JUnit XML file for Jenkins or GitLab"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 unless every claim holds on storage that is not emulated",
    )
    asked = parser.parse_args(words)
    return run_guarded(lambda: report_claims(asked.folder, asked.junit, as_json=asked.json, strict=asked.strict))


def report_claims(folder: Path, junit: Path | None, *, as_json: bool, strict: bool) -> int:
    """Print the verdicts on the claims for a folder of records; return the exit code.

    If `junit` is given, also write the verdicts to this file. Raises AnalysisError if no record can be read, or if the
    file cannot be written.
    """
    from analysis.records.read_records import read_records  # noqa: PLC0415 - keeps pandas out of --help

    found = read_records(folder, lambda: import_module("analysis.frames"))
    from analysis.claims import judge_claim  # noqa: PLC0415
    from analysis.figures.kit import save  # noqa: PLC0415
    from analysis.frames import medians_and_runs  # noqa: PLC0415
    from analysis.output import junit as xml  # noqa: PLC0415
    from analysis.output import terminal  # noqa: PLC0415

    tested = judge_claim.judge_all_claims(*medians_and_runs(folder, found))
    if junit:
        save.write_file(junit, xml.junit_xml(tested))
    if as_json:
        print(json.dumps(judge_claim.verdicts_as_json(tested), indent=1))
    else:
        terminal.print_text(*terminal.verdict_texts(tested, whole=True))
    if not judge_claim.no_claim_differs(tested, strict=strict):
        return EXIT_DIFFERS
    return EXIT_UNREAD if found.skipped else 0
