"""What drainers have to say, a line of JSON for each event: it tells, the manifests alone decide."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from jobs.burst_buffer.marker import JOURNAL_NAME
from jobs.burst_buffer.snapshots import Manifest
from jobs.model import reading
from jobs.system import files, untrusted


class Event(TypedDict):
    """A line of the journal: what happened, and when in seconds since 1970; more by the kind of event."""

    event: str
    at: float


class Failure(Event):
    """Something went wrong."""

    reason: str


class Committed(Event):
    """A snapshot reached the slow storage: when its drain began, and how often that had failed before."""

    name: str
    started_at: float
    retries: int


class _DrainFacts(TypedDict):
    """What a manifest on the slow storage says of its drain."""

    drain_started_at: float
    drain_retries: int


_Kind = TypeVar("_Kind", bound=Event)


class Journal:
    """The journal of a fast folder."""

    def __init__(self, fast: Path) -> None:
        self.path = fast / JOURNAL_NAME

    def tell(self, event: str, **facts: Any) -> None:
        """Append an event, durably where there is room for it."""
        line = json.dumps({"event": event, "at": time.time(), **facts}) + "\n"
        with suppress(OSError), files.append(self.path) as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self, kind: type[_Kind], offset: int = 0) -> tuple[list[_Kind], int]:
        """Return the events of a kind behind a byte offset and the offset behind them all; other lines are skipped."""
        try:
            data = files.read(self.path)[offset:]
        except OSError:
            return [], offset
        whole = data[: data.rfind(b"\n") + 1]
        events = []
        for line in whole.splitlines():
            with suppress(ValueError):
                events.append(untrusted.json_value(line))
        return [event for event in events if not reading.fault(event, kind)], offset + len(whole)


def last_reason(fast: Path) -> str:
    """Return why the last attempt to drain a folder failed."""
    reasons = [each["reason"] for each in Journal(fast).read(Failure)[0] if each["event"] == "failed"]
    return reasons[-1] if reasons else "unknown"


def committed(manifest: Manifest, at: object) -> Committed | None:
    """Return what the manifest of a snapshot that became visible `at` that time says of its drain."""
    if not isinstance(at, float) or reading.fault(manifest.facts, _DrainFacts):
        return None
    began, retries = manifest.facts["drain_started_at"], manifest.facts["drain_retries"]
    return {"event": "committed", "name": manifest.name, "at": at, "started_at": began, "retries": retries}
