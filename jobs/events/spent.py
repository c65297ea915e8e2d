"""Where the time of a run goes: each moment to one action, the innermost, and each action into the time log."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from jobs import steps
from jobs.events.time_log import ACTIONS, Event, File, TimeLog
from jobs.model.request import Request
from jobs.system import files


@contextmanager
def logged(request: Request, rank: int = 0, ranks: int = 1) -> Iterator[TimeLog | None]:
    """Open the time log of a rank where one is asked for; those that a killed run left there are in nobody's record."""
    asked = request.get("timelog")
    if not asked:
        yield None
        return
    first = Path(asked)
    path = first.with_name(f"{first.stem}-rank{rank}{first.suffix}") if rank else first
    beside = [each for each in files.names(path.parent) if fnmatchcase(each, f"{escape(path.name)}.*.timelog")]
    for name in (path.name, *beside):
        files.remove(path.parent / name, missing_ok=True)
    with TimeLog(path, rank=rank, ranks=ranks, run=first.stem) as log:
        yield log


class Spent:
    """The seconds of one thread by action, also as parts of steps; inside another action it is the inner one's alone.

    An action that the time log does not know, or that is logged by whoever does it (`logged=False`), is in no log.
    """

    def __init__(self, log: TimeLog | None = None) -> None:
        self.log = log
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inside = 0.0
        self._action = ""
        self._part = ExitStack()

    @contextmanager
    def during(
        self, action: str, file: File | None = None, at: int | None = None, *, logged: bool = True
    ) -> Iterator[Event | None]:
        """Count what goes on in the block; in the log it is of a file, `at` a place."""
        known = self.log if logged and action in ACTIONS else None
        outer, self._inside = self._inside, 0.0
        around = self._action
        began = time.perf_counter()
        self._tell(action)
        try:
            with known.event(action, file, at=at) if known else nullcontext() as event:
                yield event
        finally:
            self._tell(around)
            took = time.perf_counter() - began
            self.seconds[action] += took - self._inside
            self._inside = outer + took

    def _tell(self, action: str) -> None:
        """End the part that goes on, and begin this one."""
        self._part.close()
        self._action = action
        if action:
            self._part.enter_context(steps.part(action))
