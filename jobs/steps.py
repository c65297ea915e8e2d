"""Notify watchers when a step of a run, or a part of a step, begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

ALL, NONE = "all", "none"
MARK = "campaign step"
"""The name of the event that marks a step in TensorFlow's traces."""


class Watcher:
    """An object that is notified when steps begin and end; the first step has the number 1."""

    def begin(self, number: int) -> None:
        """Handle the beginning of a step."""

    def end(self, number: int) -> None:
        """Handle the end of a step."""

    def part(self, _name: str) -> AbstractContextManager[Any]:
        """Return the context in which a part of a step runs.

        The name of a part is an action of the time log, ``startup`` or ``other``.
        """
        return _NOTHING


_WINDOW = re.compile("([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
_WATCHERS: list[Watcher] = []  # the watchers of the run in this process
_NOTHING = nullcontext()


def step_window(text: str) -> tuple[int, float]:
    """Return the first and the last step of a range (``5-15`` or ``all``); raise ValueError for any other text."""
    if text == ALL:
        return 1, float("inf")
    first, last = map(int, match.groups()) if (match := _WINDOW.fullmatch(text)) else (1, 0)
    if first > last:
        raise ValueError(f"{text!r} is not a range of steps such as 5-15")
    return first, last


def watch_steps(watcher: Watcher) -> None:
    """Add a watcher, which is notified of all later steps."""
    _WATCHERS.append(watcher)


def unwatch_steps(removed: Watcher) -> None:
    """Remove a watcher, which is not notified any more."""
    _WATCHERS[:] = [other for other in _WATCHERS if other is not removed]


def step_part(name: str) -> AbstractContextManager[Any]:
    """Return a context that notifies all watchers when a part of a step begins and ends."""
    if len(_WATCHERS) < 2:  # noqa: PLR2004 - the usual case needs no ExitStack
        return _WATCHERS[0].part(name) if _WATCHERS else _NOTHING
    parts = ExitStack()
    for watcher in _WATCHERS:
        parts.enter_context(watcher.part(name))
    return parts


def marked_steps(numbers: Iterable[int]) -> Iterator[int]:
    """Yield one of the numbers per step, and notify all watchers when each step begins and ends."""
    for step, number in enumerate(numbers, 1):
        for watcher in _WATCHERS:
            watcher.begin(step)
        try:
            yield number
        finally:
            for watcher in _WATCHERS:
                watcher.end(step)
