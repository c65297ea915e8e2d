"""The common parts of the command lines of the analysis: the version, and the handling of errors."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Callable

from analysis.errors import AnalysisError
from analysis.text import visible
from jobs.errors import JobError
from jobs.model.codes import ExitCode


def parser_of(program: str, about: str, epilog: str, usage: str | None = None) -> argparse.ArgumentParser:
    """Return a parser with `--version` that accepts no abbreviated options."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(program, usage, about, epilog, formatter_class=form, allow_abbrev=False)
    named = program.replace("campaign", "analysis")
    parser.add_argument("--version", action="version", version=f"{named} {version()}")
    return parser


def version() -> str:
    """Return the installed version, or a note that the source is not installed."""
    try:
        return importlib.metadata.version("tfio-campaign")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def guarded(work: Callable[[], int]) -> int:
    """Return the exit code of `work`; print errors that the user can cure without a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as we live
    try:
        return work()
    except (AnalysisError, JobError) as error:
        message = error.message if isinstance(error, JobError) else error.args[0]
        sys.stderr.write(f"error: {visible(message)}\n\nhint: {visible(error.hint)}\n")
        return ExitCode.USAGE
    except BrokenPipeError:
        # The reader (`| head`) has stopped reading; all files were written before the first line was printed.
        # https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        hint = "name a file that is there" if gone else "mend what is named here; what was read is untouched"
        sys.stderr.write(f"error: {visible(str(error))}\n\nhint: {hint}\n")
        return ExitCode.USAGE
