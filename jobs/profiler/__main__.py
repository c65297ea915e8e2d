"""Reads what the profiler has saved, and Darshan logs.

python -m jobs.profiler report FILE           the summary of a profile (Profile.save, a spill, a Darshan log), as text
python -m jobs.profiler report FILE --json    the same figures as JSON
python -m jobs.profiler chrome FILE OUT       its calls as a trace for chrome://tracing or Perfetto
python -m jobs.profiler darshan FILE OUT      the profile as a Darshan log
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.profiler import ProfilerError, chrome, darshan_log, report, saved
from jobs.system import files
from jobs.terminal import complain, open_streams

_WRITERS = {"chrome": chrome.write, "darshan": darshan_log.write}
_FILE = "a profile that was saved, a campaign's profile-N.npz, a spill, or a Darshan log"


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words say; returns the exit code: 2 for a file that cannot be read or written."""
    open_streams()
    asked = _parsed(words)
    try:
        window = saved.read(asked.file)
        if asked.verb in _WRITERS:
            if asked.out.exists() and asked.out.samefile(asked.file):
                raise ProfilerError(f"{asked.out} is the profile itself", "name another file to write")  # noqa: TRY301
            _WRITERS[asked.verb](files.named(asked.out), window)
        elif asked.json:
            print(json.dumps(report.figures(window), indent=1))
        else:
            print("\n".join(report.lines(window)))
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ProfilerError as error:
        complain(error.message, error.hint)
        return 2
    except OSError as error:
        complain(str(error), "name a file in a folder that is there, where you may write and there is room")
        return 2
    return 0


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m jobs.profiler", description=__doc__, formatter_class=about)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    shown = verbs.add_parser("report", help="print the summary of a profile")
    shown.add_argument("file", type=Path, help=_FILE)
    shown.add_argument("--json", action="store_true", help="print its figures as JSON")
    for name, about_it in (("chrome", "write its calls as a Chrome trace"), ("darshan", "write it as a Darshan log")):
        written = verbs.add_parser(name, help=about_it)
        written.add_argument("file", type=Path, help=_FILE)
        written.add_argument("out", type=Path, help="the file to write")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
