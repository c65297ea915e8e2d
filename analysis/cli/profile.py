"""Run `python -m analysis profile`: print a report on the POSIX calls of a program, without pandas and matplotlib."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from analysis.cli.command import parser_of, run_guarded
from analysis.errors import AnalysisError
from analysis.text import visible

EPILOG = """\
FILE is a file of Profile.save, the file profile-<n>.npz in the folder of a record, the spill file of a killed process,
or a Darshan log. Definitions: docs/how-to/profile.md.

exit codes: 0 all files were read, 2 wrong usage, or a file that cannot be read or written
"""


def main(words: Sequence[str]) -> int:
    """Print a report on each profile that the command line names; return the exit code."""
    about = "List the POSIX calls of a program and their durations."
    parser = parser_of("python -m analysis profile", about, EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="profiles, one per process")
    parser.add_argument("--json", action="store_true", help="print the metrics of each file as JSON")
    parser.add_argument("--chrome", metavar="FILE", type=Path, help="write a trace for Perfetto and chrome://tracing")
    parser.add_argument("--darshan", metavar="FILE", type=Path, help="write the profile as a Darshan log")
    asked = parser.parse_args(words)
    return run_guarded(lambda: report_profiles(asked))


def report_profiles(asked: argparse.Namespace) -> int:
    """Read the profiles, write the requested files, and print the reports; return the exit code.

    Raises AnalysisError if a file is to be written for several profiles, or would overwrite the profile. Raises
    JobError if a profile cannot be read.
    """
    from jobs.profiler import report as profile_report  # noqa: PLC0415 - keeps numpy out of --help
    from jobs.profiler import saved_profiles  # noqa: PLC0415
    from jobs.profiler.profile import write_chrome  # noqa: PLC0415
    from jobs.system import files  # noqa: PLC0415

    windows = [saved_profiles.read_profile(file) for file in asked.files]
    written = {asked.chrome: write_chrome, asked.darshan: saved_profiles.write_darshan}
    for path, write in ((path, write) for path, write in written.items() if path):
        if len(windows) > 1:
            raise AnalysisError("--chrome and --darshan write the calls of one profile", "name a single FILE")
        if path.exists() and path.samefile(asked.files[0]):
            raise AnalysisError(f"the output file {path} is the profile itself", "name another output file")
        write(files.resolve_user_path(path), windows[0])
    if asked.json:
        metrics = [profile_report.window_metrics(window) for window in windows]
        print(
            json.dumps([{"file": str(file), **each} for file, each in zip(asked.files, metrics, strict=True)], indent=1)
        )
        return 0
    for file, window in zip(asked.files, windows, strict=True):
        if len(windows) > 1:
            print(f"{visible(str(file))}:")
        print("\n".join(profile_report.report_lines(window)))
    for path in filter(None, written):
        print(visible(str(path)))
    return 0
