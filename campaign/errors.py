"""Define the errors that a user can cure, each with its exit code, and print them at the end of the program."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterable

from jobs.model.codes import ExitCode
from jobs.parser import exit_code_of
from jobs.system import files

_AGAIN = "then run the same command again: recorded runs are kept"
_PRIVATE = "choose a folder that you may use: campaign_dir=…; campaign folders are private to their owner"
_CURES = {
    errno.ENOSPC: f"the disk is full: free some space, {_AGAIN}",
    errno.EDQUOT: f"your quota is used up: free some space, {_AGAIN}",
    errno.ELOOP: "remove the link that leads back to itself, or name another path",
}


class CampaignError(Exception):
    """An error that the user can cure: `message` says what is wrong, `hint` says how to cure it.

    ::

        CampaignError
        ├── UsageError
        │   └── RefusalsError      several usage errors at once
        ├── EnvironmentFaultError
        └── SchedulerError
    """

    exit_code = ExitCode.NOT_DONE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CampaignError):
    """Raised for a wrong command line or wrong settings, before any run starts."""

    exit_code = ExitCode.USAGE


class RefusalsError(UsageError):
    """Raised if several settings are refused at once; a cure that is the same for several refusals is printed once."""

    def __init__(self, refusals: Iterable[tuple[str, str]]) -> None:
        self.refusals = tuple(dict.fromkeys(refusals))
        cures = dict.fromkeys(cure for _, cure in self.refusals if cure)
        super().__init__("; ".join(why for why, _ in self.refusals), "; ".join(cures))


def raise_if_refused(refusals: Iterable[tuple[str, str]]) -> None:
    """Raise a RefusalsError if there is at least one refusal; a refusal is a pair of error message and cure."""
    if collected := [*refusals]:
        raise RefusalsError(collected)


class EnvironmentFaultError(CampaignError):
    """Raised if the machine, a folder or a file system does not allow a campaign."""

    exit_code = ExitCode.ENVIRONMENT


def environment_fault(error: OSError, problem: str = "", cure: str = "") -> EnvironmentFaultError:
    """Return an EnvironmentFaultError that explains an OSError.

    `problem` comes before the reason; without it, the path of the error does. `cure` is the hint, unless the disk
    is full or the path is a loop of links.
    """
    usual = _PRIVATE if error.errno == errno.EACCES else f"fix the problem, {_AGAIN}"
    hint = _CURES.get(error.errno or 0) or cure or usual
    return EnvironmentFaultError(f"{problem}: {error.strerror or error}" if problem else files.error_text(error), hint)


class NotQuietError(EnvironmentFaultError):
    """Raised if other programs disturbed the runs for too long; the same command may succeed later."""

    exit_code = ExitCode.NOT_DONE


class SchedulerError(CampaignError):
    """Raised if Slurm refuses a submission or does not answer."""

    exit_code = ExitCode.SCHEDULER


def run_to_exit_code(argv: list[str], act: Callable[[list[str]], int]) -> int:
    """Call `act` with the arguments, print a CampaignError or OSError that it raises, and return the exit code."""

    def act_and_explain() -> int:
        try:
            code = act(argv)
            sys.stdout.flush()
        except CampaignError as error:
            return _print_error(error)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
        except OSError as error:  # for example a full disk, or a folder that was removed
            return _print_error(environment_fault(error))
        return code

    return exit_code_of(act_and_explain)


def _print_error(error: CampaignError) -> int:
    from campaign import console  # noqa: PLC0415 - imported only to print an error

    console.print_error(error.message, error.hint)
    return error.exit_code
