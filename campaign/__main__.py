"""`python -m campaign`: the first word is a verb, or else the words describe a grid."""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import os
import sys
from collections.abc import Callable

from campaign.config.command_line import VERBS
from campaign.errors import CampaignError, EnvironmentFaultError
from jobs.terminal import open_streams

_BROKEN_PIPE, _INTERRUPTED = 141, 130  # as a shell reports SIGPIPE and SIGINT


def main(argv: list[str]) -> int:
    """Do what the command line asks and return the exit code (0 to 4 and 130, see the README)."""
    if argv[:1] == ["--version"]:
        print(f"tfio-campaign {_version()}")
        return 0
    if argv and argv[0] in VERBS:
        module, _, function = VERBS[argv[0]].partition(":")
        return int(getattr(importlib.import_module(module), function)(argv[1:]))
    if {"-h", "--help"}.intersection(argv):
        from campaign.cli import help as usage  # noqa: PLC0415 - as fast as can be

        return usage.main()
    from campaign.cli import run  # noqa: PLC0415 - Hydra is not on the way to the other verbs

    return run.main(argv)


def _version() -> str:
    try:
        return importlib.metadata.version("tfio-campaign")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"


def entry() -> int:
    """Be `tfio-campaign`, which does what `python -m campaign` does wherever one stands."""
    os.environ["PYTHONSAFEPATH"] = "1"  # of the processes that this one starts
    return guarded(sys.argv[1:])


def guarded(argv: list[str], act: Callable[[list[str]], int] = main) -> int:
    """Run `main`, or what else the words are for; an error that the user can cure is printed without a traceback."""
    _prepare_streams()
    try:
        code = act(argv)
        sys.stdout.flush()
    except CampaignError as error:
        return _report(error)
    except BrokenPipeError:  # `| head` has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:  # a full disk, a folder that is gone: the environment's fault, whichever call met it
        cure = "fix what is named here, then repeat the same command: what is recorded is kept"
        return _report(EnvironmentFaultError(str(error), cure))
    return code


def _prepare_streams() -> None:
    open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be text


def _report(error: CampaignError) -> int:
    from campaign import console  # noqa: PLC0415 - only where there is an error

    console.complain(error.message, error.hint)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(guarded(sys.argv[1:]))
