"""What can go wrong, each with its cure and its exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from jobs.model.codes import ExitCode


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
    """Wrong words or values: nothing was started."""

    exit_code = ExitCode.USAGE


class RefusalsError(UsageError):
    """Several things that cannot be meant, each with its cure: all are said at once, the same cure once."""

    def __init__(self, refusals: Iterable[tuple[str, str]]) -> None:
        self.refusals = tuple(dict.fromkeys(refusals))
        cures = dict.fromkeys(cure for _, cure in self.refusals if cure)
        super().__init__("; ".join(why for why, _ in self.refusals), "; ".join(cures))


def refuse(refusals: Iterable[tuple[str, str]]) -> None:
    """Raise a `RefusalsError` of what is wrong, and the cure of each, if there is anything."""
    if found := [*refusals]:
        raise RefusalsError(found)


class EnvironmentFaultError(CampaignError):
    """The machine, a folder or a file system does not allow it."""

    exit_code = ExitCode.ENVIRONMENT


class NotQuietError(EnvironmentFaultError):
    """Others disturbed the runs, and did not stop in time: they do not count, and the same command goes on later."""

    exit_code = ExitCode.NOT_DONE


class SchedulerError(CampaignError):
    """Slurm did not take what was submitted, or does not answer."""

    exit_code = ExitCode.SCHEDULER


def nearest(word: str, legal: Iterable[str], prefix: str = "", otherwise: str = "") -> str:
    """Return which legal word is meant: the body of a hint; `prefix` stands before each.

    Where none is near it is `otherwise`, or the list of all legal words.
    """
    words = sorted(legal)
    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"did you mean '{prefix}{close[0]}'?"
    return otherwise or f"legal here: {', '.join(prefix + word for word in words)}"
