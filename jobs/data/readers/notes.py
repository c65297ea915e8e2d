"""What a reader notes in a time log, where there is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

from jobs.data.readers.part import At
from jobs.events.time_log import TimeLog

Note = Callable[[str, At | None, str], AbstractContextManager[Any]]
"""Gives the event of a file, a place and an action; its ``size_bytes`` may be set."""


def notes(log: TimeLog | None) -> Note:
    """Return what makes events in this log; in none, nothing happens."""
    if log is None:
        return lambda *_: nullcontext(SimpleNamespace())
    return lambda path, at, action: log.event(action, path, at=log.place(*at) if at else None)
