"""What a lie is, what the tool must answer to it, and whether it did."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

VALID, INVALID, REFUSED, SET_ASIDE = "valid", "invalid", "refused", "set aside"


class NotStagedError(Exception):
    """The lie did not happen, so nothing was tested."""


class MissingError(Exception):
    """This machine lacks what the lie needs; the message names it."""


@dataclass(frozen=True)
class Answer:
    """What the tool answered."""

    status: str  # `VALID`, `INVALID`, `REFUSED` (nothing was measured or compared), `SET_ASIDE` (earlier runs apart)
    complaints: tuple[str, ...]  # what it found wrong, each as ``rule: message``
    remarks: tuple[str, ...]  # everything that it printed or recorded, complaints included
    passed: frozenset[str] = frozenset()  # rules that passed in at least one measured run

    @property
    def words(self) -> tuple[str, ...]:
        """Where the expected words are looked for: in the complaints, unless nothing is wrong."""
        return self.remarks if self.status == VALID else self.complaints


@dataclass(frozen=True)
class Expected:
    """What the tool must answer."""

    status: tuple[str, ...]  # every status that is right
    words: str = ""  # regular expression, case ignored, that one of `Answer.words` must match; empty: none is needed
    untrue: frozenset[str] = frozenset()  # rules that must not pass, because what they state would be untrue

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
    """One lie: `run` stages it in a workspace and runs the tool, and returns the truth in words, and the answer."""

    name: str
    done: str  # one sentence
    expected: Expected
    run: Callable[..., tuple[str, Answer]]
    unseen: str = ""  # why no check can see the lie; empty where one can


LIES: dict[str, Lie] = {}


def lie(done, expected, *, unseen=""):
    """Register the function below as a lie, under the function's name."""

    def register(run):
        LIES[run.__name__] = Lie(run.__name__, done, expected, run, unseen)
        return run

    return register


def confirmed(happened: object, truth: str) -> str:
    """Return the truth in words; NotStagedError where the instruments show that the lie did not happen."""
    if not happened:
        raise NotStagedError(f"the lie did not happen: {truth}")
    return truth
