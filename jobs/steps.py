"""The steps of a run, told by its benchmark to those who watch them: where each begins and ends, and its parts.

The loop of a benchmark::

    for number in (marked := steps.marked(range(count))):
        with steps.part("input"):
            batch = next(iterator)
        ...
    other_s += marked.spent_s
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

ALL, NONE = "all", "none"
MARK = "campaign step"
"""What a mark of a step is called in TensorFlow's traces."""


class Watcher:
    """Who is told of steps, which count from 1."""

    def begin(self, number: int) -> None:
        """Hear that a step begins."""

    def end(self, number: int) -> None:
        """Hear that it has ended."""

    def part(self, _name: str) -> AbstractContextManager[Any]:
        """Return what goes on as long as the part does: an action of the time log, or ``input``."""
        return _NOTHING


_WINDOW = re.compile("([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
_WATCHERS: list[Watcher] = []  # of this process's run
_NOTHING = nullcontext()


def window(asked: str) -> tuple[int, float]:
    """Return the first and the last step of ``5-15`` or ``all``. Raises ValueError for other words."""
    if asked == ALL:
        return 1, float("inf")
    first, last = map(int, found.groups()) if (found := _WINDOW.fullmatch(asked)) else (1, 0)
    if first > last:
        raise ValueError(f"{asked!r} is no window of steps")
    return first, last


def watch(watcher: Watcher) -> None:
    """Tell this one from now on, too."""
    _WATCHERS.append(watcher)


def unwatch(watcher: Watcher) -> None:
    """Tell this one no more."""
    _WATCHERS[:] = [each for each in _WATCHERS if each is not watcher]


def part(name: str) -> AbstractContextManager[Any]:
    """Return the context of a part of a step."""
    if len(_WATCHERS) < 2:  # noqa: PLR2004 - the usual case costs nothing
        return _WATCHERS[0].part(name) if _WATCHERS else _NOTHING
    parts = ExitStack()
    for watcher in _WATCHERS:
        parts.enter_context(watcher.part(name))
    return parts


class marked:  # noqa: N801 - is used as a function
    """What a loop goes through, each of it a step; `spent_s` is what watchers took between the steps."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers, self.spent_s = numbers, 0.0

    def __iter__(self) -> Iterator[int]:
        if not _WATCHERS:
            yield from self._numbers
            return
        for place, number in enumerate(self._numbers, 1):
            began = time.perf_counter()
            for watcher in _WATCHERS:
                watcher.begin(place)
            self.spent_s += time.perf_counter() - began
            try:
                yield number
            finally:
                began = time.perf_counter()
                for watcher in _WATCHERS:
                    watcher.end(place)
                self.spent_s += time.perf_counter() - began
