"""Define the errors that a user can cure, each with its exit code, and print them at the end of the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from jobs.model.codes import ExitCode
from jobs.parser import exit_code_of


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
            cure = "fix the problem, then run the same command again: recorded runs are kept"
            return _print_error(EnvironmentFaultError(str(error), cure))
        return code

    return exit_code_of(act_and_explain)


def _print_error(error: CampaignError) -> int:
    from campaign import console  # noqa: PLC0415 - imported only to print an error

    console.print_error(error.message, error.hint)
    return error.exit_code
