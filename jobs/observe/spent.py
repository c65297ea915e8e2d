"""Where the time of a run goes: each moment to one action, the innermost, and each action into the time log."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from jobs import steps
from jobs.observe.time_log import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.observe.time_log import Event, File, TimeLog


class Spent:
    """The seconds of one thread by action; what goes on inside another action is the inner one's alone.

    An action that the time log does not know, or that is logged by whoever does it (`logged=False`), is in no log.
    """

    def __init__(self, log: TimeLog | None = None) -> None:
        self.log = log
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inside = 0.0

    @contextmanager
    def during(
        self, action: str, file: File | None = None, at: int | None = None, *, logged: bool = True
    ) -> Iterator[Event | None]:
        """Count what goes on in the block; in the log it is of a file, `at` a place."""
        known = self.log if logged and action in ACTIONS else None
        outer, self._inside = self._inside, 0.0
        began = time.perf_counter()
        try:
            with steps.part(action), known.event(action, file, at=at) if known else nullcontext() as event:
                yield event
        finally:
            took = time.perf_counter() - began
            self.seconds[action] += took - self._inside
            self._inside = outer + took
