"""`python -m analysis profile FILE…`: the POSIX calls that a profile has; it imports neither pandas nor matplotlib."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from analysis.cli.command import parser_of, run_guarded
from analysis.errors import AnalysisError
from analysis.text import visible

EPILOG = """\
FILE is what Profile.save wrote, the profile-<n>.npz beside a record, the spill of a killed process, or a Darshan log.
Definitions: docs/how-to/profile.md.

exit codes: 0 all was read, 2 wrong usage, or a file that cannot be read or written
"""


def main(words: Sequence[str]) -> int:
    """Print the reports of the profiles in the given command line; return the exit code."""
    parser = parser_of("python -m analysis profile", "Say which POSIX calls a program made, and how long.", EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="profiles, one per process")
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout: the metrics of each file")
    parser.add_argument("--chrome", metavar="FILE", type=Path, help="write a trace for Perfetto and chrome://tracing")
    parser.add_argument("--darshan", metavar="FILE", type=Path, help="write the profile as a Darshan log")
    asked = parser.parse_args(words)
    return run_guarded(lambda: report_profiles(asked))


def report_profiles(asked: argparse.Namespace) -> int:
    """Read the profiles, write the requested files, and print; return the exit code.

    Raises AnalysisError where several profiles, or a profile itself, would be written, JobError on unreadable files.
    """
    from jobs.profiler import report as profile_report  # noqa: PLC0415 - keeps numpy out of --help
    from jobs.profiler import saved_profiles  # noqa: PLC0415
    from jobs.profiler.profile import write_chrome  # noqa: PLC0415
    from jobs.system import files  # noqa: PLC0415

    windows = [saved_profiles.read_profile(file) for file in asked.files]
    written = {asked.chrome: write_chrome, asked.darshan: saved_profiles.write_darshan}
    for path, write in ((path, write) for path, write in written.items() if path):
        if len(windows) > 1:
            raise AnalysisError("what is written is of one profile", "name a single FILE")
        if path.exists() and path.samefile(asked.files[0]):
            raise AnalysisError(f"{path} is the profile itself", "name another file to write")
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
