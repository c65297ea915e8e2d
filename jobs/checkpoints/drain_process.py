"""The drainer as its trainer sees it: a process that is started, notified of new snapshots, and left running.

Drainers write a journal, one line of JSON per event. It is information only: the manifests decide.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from jobs.checkpoints.lease import JOURNAL_NAME, LOG_NAME
from jobs.checkpoints.snapshots import ENDED, Manifest
from jobs.model import reading
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.system import files, untrusted
from jobs.system.clock import Moment

_LONGEST_LOG_END = 300  # characters: the last lines of a traceback
_ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "jobs.burst_buffer", "drain", "--follow")
# A deleted Popen warns if its process still runs. Drainers do so by design; ended ones are removed at the next start.
left_running: list[subprocess.Popen[bytes]] = []


@atexit.register
def _forget() -> None:
    """Prevent warnings about drainers that still run: they outlive their trainer by design."""
    for process in left_running:
        process.returncode = process.poll() or 0


class Drainer:
    """The handle of one process that drains `fast` to `slow`; the process outlives the trainer."""

    def __init__(self, fast: Folder, slow: Folder | Bucket) -> None:
        self._fast, self._slow = fast, slow
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: list[str] = []

    def poke(self) -> None:
        """Notify the drainer of a new snapshot; start the drainer if it is not running.

        A failed start is a complaint, not an error: the snapshot is durable, and a later process can drain it.
        """
        try:
            if self.ended():
                self._start()
            self._wake()
        except OSError as error:
            self._complaints.append(f"the drainer does not start: {error}")

    def ended(self) -> bool:
        """Return whether no drainer of this trainer is running."""
        if self._process is None:
            return True
        code = self._process.poll()
        if code is None:
            return False
        self._complaints.append(f"the drainer ended with code {code}: {self._end_of_log()}")
        self.leave()
        return True

    def _end_of_log(self) -> str:
        """Return the end of the drainer's log, because log and folder may be deleted before anybody reads it."""
        log = self._fast.root / LOG_NAME
        with suppress(OSError):
            return (
                " ".join(files.read_file(log).decode(errors="replace").split())[-_LONGEST_LOG_END:] or f"{log} is empty"
            )
        return f"{log} cannot be read"

    def pids(self) -> list[int]:
        """Return the process id as a list; empty if no drainer was running at the last check."""
        return [] if self._process is None else [self._process.pid]

    def complaints(self) -> list[str]:
        """Return the complaints about the process since the last call."""
        self.ended()
        complaints, self._complaints = self._complaints, []
        return complaints

    def leave(self) -> None:
        """Close the pipe: the process then ends by itself after its work."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _start(self) -> None:
        left_running[:] = [process for process in left_running if process.poll() is None]
        with files.open_to_append(self._fast.root / LOG_NAME) as log:
            self._process = subprocess.Popen(
                [*COMMAND, str(self._fast), str(self._slow)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                start_new_session=True,  # Ctrl-C and the end of the terminal must not end it
            )
        left_running.append(self._process)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def _wake(self) -> None:
        # A full pipe wakes the drainer just as well; `ended` finds a broken one.
        if self._process is not None and self._process.stdin is not None:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._process.stdin.fileno(), b"\n")


class DrainEvent(TypedDict):
    """An event of the journal: its kind, its time (seconds since 1970, for people), and keys of its kind."""

    event: str
    at: float


class DrainFailure(DrainEvent):
    """A failure, with its reason."""

    reason: str


class Drain(TypedDict):
    """The drain of a snapshot that has reached the slow storage: its begin, its end, and earlier failures."""

    started: Moment
    ended: Moment
    retries: int


class DrainedSnapshot(DrainEvent, Drain):
    """A snapshot that has reached the slow storage."""

    name: str


class _DrainFacts(TypedDict):
    """The facts of the drain in a manifest on the slow storage."""

    drain_started: Moment
    drain_retries: int
    drain_ended: Moment


_Kind = TypeVar("_Kind", bound=DrainEvent)


class DrainJournal:
    """The journal of the drainers of a fast folder."""

    def __init__(self, fast: Path) -> None:
        self.path = fast / JOURNAL_NAME

    def tell(self, event: str, **facts: Any) -> None:
        """Append an event, durably; the event is lost if the storage is full."""
        line = json.dumps({"event": event, "at": time.time(), **facts}) + "\n"
        with suppress(OSError), files.open_to_append(self.path) as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self, kind: type[_Kind], offset: int = 0) -> tuple[list[_Kind], int]:
        """Return the events of a kind after a byte offset, and the offset of the end; other lines are skipped."""
        try:
            data = files.read_file(self.path)[offset:]
        except OSError:
            return [], offset
        lines = data[: data.rfind(b"\n") + 1]
        events = []
        for line in lines.splitlines():
            with suppress(ValueError):
                events.append(untrusted.json_value(line))
        return [event for event in events if not reading.type_fault(event, kind)], offset + len(lines)


def last_reason(fast: Path) -> str:
    """Return the reason why the last attempt to drain a folder failed."""
    reasons = [event["reason"] for event in DrainJournal(fast).read(DrainFailure)[0] if event["event"] == "failed"]
    return reasons[-1] if reasons else "unknown"


def drain_of_manifest(manifest: Manifest | None) -> Drain | None:
    """Return the drain of a snapshot from its manifest on the slow storage; None if the manifest lacks it."""
    if manifest is None or reading.type_fault(manifest.facts, _DrainFacts):
        return None
    facts = manifest.facts
    return {"started": facts["drain_started"], "ended": facts[ENDED], "retries": facts["drain_retries"]}
