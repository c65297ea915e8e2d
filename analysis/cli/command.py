"""Functions that all verbs of the analysis use: parser, campaign folder, version and error handling."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path

from analysis.errors import AnalysisError
from jobs.errors import JobError
from jobs.model.codes import ExitCode
from jobs.parser import ProgramParser
from jobs.terminal import complain


def parser_of(program: str, about: str, epilog: str, usage: str | None = None) -> ProgramParser:
    """Return a command-line parser for a verb of `python -m analysis`."""
    return ProgramParser(program, usage, about, epilog)


def campaign_folder(text: str) -> Path:
    """Return the campaign folder that an argument names.

    The argument is a path, or ``campaign_dir=PATH`` as in `python -m campaign`.
    """
    return Path(text.removeprefix("campaign_dir="))


def installed_version() -> str:
    """Return the installed version of the package, or a note that the package is not installed."""
    try:
        return importlib.metadata.version("tfio-campaign")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def run_guarded(work: Callable[[], int]) -> int:
    """Run `work` and return its exit code.

    An error that the user can cure is printed without a traceback.
    """
    try:
        code = work()
        sys.stdout.flush()
    except (AnalysisError, JobError) as error:
        complain(error.message if isinstance(error, JobError) else error.args[0], error.hint)
        return ExitCode.USAGE
    except BrokenPipeError:  # no file is missing: all files were written before the first line was printed
        raise
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        complain(
            str(error),
            "name a file that exists" if gone else "correct the cause of this error; no input file was changed",
        )
        return ExitCode.USAGE
    return code
