"""How the program ends: its exit code, and an error that the user can cure without a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

from campaign.errors import CampaignError, EnvironmentFaultError
from jobs.model.codes import ExitCode
from jobs.terminal import open_streams

_BROKEN_PIPE = 141  # as a shell reports SIGPIPE


def ended(argv: list[str], act: Callable[[list[str]], int]) -> int:
    """Do what the words are for and return the exit code; an error that the user can cure is printed."""
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
        return ExitCode.INTERRUPTED
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
