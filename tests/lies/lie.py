"""What a lie is, what the tool must answer to it, and whether it did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lies.workspace import Workspace

VALID, INVALID, REFUSED, SET_ASIDE = "valid", "invalid", "refused", "set aside"


class FooledError(AssertionError):
    """The tool did not answer as expected."""


class NotStagedError(Exception):
    """The lie did not happen, so nothing was tested."""


class MissingError(Exception):
    """This machine lacks what the lie needs; the message names it."""


@dataclass(frozen=True)
class Answer:
    """What the tool answered.

    Attributes
    ----------
    status
        `VALID`, `INVALID`, `REFUSED` (nothing was measured or compared), `SET_ASIDE` (earlier runs were kept apart).
    complaints
        What it found wrong, each as ``rule: message``.
    remarks
        Everything that it printed or recorded, complaints included.
    passed
        Rules that passed in at least one measured run.
    """

    status: str
    complaints: tuple[str, ...]
    remarks: tuple[str, ...]
    passed: frozenset[str] = frozenset()

    @property
    def words(self) -> tuple[str, ...]:
        """Where the expected words are looked for: in the complaints, unless nothing is wrong."""
        return self.remarks if self.status == VALID else self.complaints


@dataclass(frozen=True)
class Expected:
    """What the tool must answer.

    Attributes
    ----------
    status
        Every status that is right.
    words
        Regular expression, case ignored, that one of `Answer.words` must match; empty: none is needed.
    untrue
        Rules that must not pass, because what they state would be untrue.
    """

    status: tuple[str, ...]
    words: str = ""
    untrue: frozenset[str] = frozenset()

    def problem(self, answer: Answer) -> str | None:
        """Describe what is wrong with an answer; None where it is right."""
        if answer.status not in self.status:
            return f"the status is {answer.status} and must be {' or '.join(self.status)}"
        if answer.passed & self.untrue:
            return f"these checks passed and must not: {', '.join(sorted(answer.passed & self.untrue))}"
        return None if self.match(answer) is not None else f"nothing in the answer matches /{self.words}/"

    def match(self, answer: Answer) -> str | None:
        """Return the first text that has the expected words; where none are expected, the first complaint or ""."""
        if not self.words:
            return next(iter(answer.complaints), "")
        return next((text for text in answer.words if re.search(self.words, text, re.IGNORECASE)), None)


@dataclass(frozen=True)
class Lie:
    """One lie.

    Attributes
    ----------
    name, done
        Its name, and one sentence that says what is done.
    expected
        What the tool must answer.
    run
        Stages the lie in a workspace and runs the tool; returns the truth in words, and the answer.
    today
        How the tool is fooled today; empty where it is not. Whoever mends the check removes it.
    unseen
        Why no check can see the lie; empty where one can.
    """

    name: str
    done: str
    expected: Expected
    run: Callable[[Workspace], tuple[str, Answer]]
    today: str = ""
    unseen: str = ""


LIES: dict[str, Lie] = {}


def lie(
    done: str, expected: Expected, *, today: str = "", unseen: str = ""
) -> Callable[..., Callable[..., tuple[str, Answer]]]:
    """Register the function below as a lie, under the function's name."""

    def register(run: Callable[[Workspace], tuple[str, Answer]]) -> Callable[[Workspace], tuple[str, Answer]]:
        LIES[run.__name__] = Lie(run.__name__, done, expected, run, today, unseen)
        return run

    return register


def confirmed(happened: object, truth: str) -> str:
    """Return the truth in words.

    Raises
    ------
    NotStagedError
        The instruments show that the lie did not happen.
    """
    if not happened:
        raise NotStagedError(f"the lie did not happen: {truth}")
    return truth
