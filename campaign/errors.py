"""Define the errors that a user can cure, each with its exit code, and print them at the end of the program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from jobs.model.codes import ExitCode
from jobs.parser import exit_code_of


class CampaignError(Exception):
    """An error that the user can cure: `message` says what is wrong, `hint` the cure.

    ::

        CampaignError
        ├── UsageError
        │   └── RefusalsError      several of them at once
        ├── EnvironmentFaultError
        └── SchedulerError
    """

    exit_code = ExitCode.NOT_DONE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CampaignError):
    """Raised for a wrong command line or wrong values, before anything starts."""

    exit_code = ExitCode.USAGE


class RefusalsError(UsageError):
    """Raised for several refusals at once; a cure that several of them share is printed once."""

    def __init__(self, refusals: Iterable[tuple[str, str]]) -> None:
        self.refusals = tuple(dict.fromkeys(refusals))
        cures = dict.fromkeys(cure for _, cure in self.refusals if cure)
        super().__init__("; ".join(why for why, _ in self.refusals), "; ".join(cures))


def refuse(refusals: Iterable[tuple[str, str]]) -> None:
    """Raise a RefusalsError if there are refusals; each is a pair: what is wrong, and the cure."""
    if collected := [*refusals]:
        raise RefusalsError(collected)


class EnvironmentFaultError(CampaignError):
    """Raised if the machine, a folder or a file system does not allow a campaign."""

    exit_code = ExitCode.ENVIRONMENT


class NotQuietError(EnvironmentFaultError):
    """Raised if others disturbed the runs and did not stop in time: the same command may succeed later."""

    exit_code = ExitCode.NOT_DONE


class SchedulerError(CampaignError):
    """Raised if Slurm refuses a submission or does not answer."""

    exit_code = ExitCode.SCHEDULER


def run_to_exit_code(argv: list[str], act: Callable[[list[str]], int]) -> int:
    """Call `act` with the arguments and return the exit code; an error that the user can cure is printed."""

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
        except OSError as error:  # a full disk, a folder that is gone: the environment's fault, whichever call met it
            cure = "fix what is named here, then repeat the same command: what is recorded is kept"
            return _print_error(EnvironmentFaultError(str(error), cure))
        return code

    return exit_code_of(act_and_explain)


def _print_error(error: CampaignError) -> int:
    from campaign import console  # noqa: PLC0415 - only where there is an error

    console.print_error(error.message, error.hint)
    return error.exit_code
