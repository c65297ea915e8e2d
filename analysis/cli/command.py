"""What the command lines of the analysis share: parser, campaign folder, version, and the handling of errors."""

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
    """Return the parser of a verb."""
    return ProgramParser(program, usage, about, epilog)


def campaign_folder(text: str) -> Path:
    """Return the campaign folder of an argument: a path, or ``campaign_dir=PATH`` as in `python -m campaign`."""
    return Path(text.removeprefix("campaign_dir="))


def installed_version() -> str:
    """Return the installed version, or a note that the source is not installed."""
    try:
        return importlib.metadata.version("tfio-campaign")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def run_guarded(work: Callable[[], int]) -> int:
    """Return the exit code of `work`; print errors that the user can cure without a traceback."""
    try:
        code = work()
        sys.stdout.flush()
    except (AnalysisError, JobError) as error:
        complain(error.message if isinstance(error, JobError) else error.args[0], error.hint)
        return ExitCode.USAGE
    except BrokenPipeError:  # all files were written before the first line was printed
        raise
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        complain(
            str(error), "name a file that is there" if gone else "repair what is named here; the inputs are unchanged"
        )
        return ExitCode.USAGE
    return code
