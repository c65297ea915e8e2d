"""Start the drainer process of a burst buffer, notify the drainer of new snapshots, and read the drainer's journal.

The trainer starts the drainer and leaves it running when the training ends. A drainer writes a journal with one line of
JSON per event. The journal is only information for people and records; the manifests decide which snapshots exist.
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

_LONGEST_LOG_END = 300  # characters at the end of the log that a message shows: the last lines of a traceback
_ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "jobs.burst_buffer", "drain", "--follow")
# Processes of drainers that may still run. The list keeps the Popen objects alive, because Python prints a warning when
# the Popen object of a running process is deleted. The next start of a drainer removes ended processes from the list.
left_running: list[subprocess.Popen[bytes]] = []


@atexit.register
def _forget() -> None:
    """Prevent Python's warnings about drainers that still run, because drainers outlive their trainer by design."""
    for process in left_running:
        process.returncode = process.poll() or 0


class Drainer:
    """The trainer's handle of the drainer, a process that drains `fast` to `slow` and outlives the trainer."""

    def __init__(self, fast: Folder, slow: Folder | Bucket) -> None:
        self._fast, self._slow = fast, slow
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: list[str] = []

    def poke(self) -> None:
        """Notify the drainer of a new snapshot; start the drainer if it is not running.

        If the drainer cannot be started, no error is raised, but `complaints` returns a message. The snapshot is
        durable, and a later drainer can drain the snapshot.
        """
        try:
            if self.ended():
                self._start()
            self._wake()
        except OSError as error:
            self._complaints.append(f"the drainer cannot be started: {error}")

    def ended(self) -> bool:
        """Return whether no drainer of this trainer is running."""
        if self._process is None:
            return True
        code = self._process.poll()
        if code is None:
            return False
        self._complaints.append(f"the drainer ended with exit code {code}: {self._end_of_log()}")
        self.close_pipe()
        return True

    def _end_of_log(self) -> str:
        """Return the end of the drainer's log.

        A message shows this text, because the log may be deleted before anybody reads the log.
        """
        log = self._fast.root / LOG_NAME
        with suppress(OSError):
            return (
                " ".join(files.read_file(log).decode(errors="replace").split())[-_LONGEST_LOG_END:] or f"{log} is empty"
            )
        return f"{log} cannot be read"

    def pids(self) -> list[int]:
        """Return the drainer's process id in a list, which is empty if no drainer was running at the last check."""
        return [] if self._process is None else [self._process.pid]

    def complaints(self) -> list[str]:
        """Return the messages about failures of the drainer's process since the last call."""
        self.ended()
        complaints, self._complaints = self._complaints, []
        return complaints

    def close_pipe(self) -> None:
        """Close the pipe to the drainer, which then ends by itself after its work."""
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
                start_new_session=True,  # Ctrl-C and the end of the terminal must not end the drainer
            )
        left_running.append(self._process)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def _wake(self) -> None:
        # If the pipe is full, its bytes wake the drainer, too. If the pipe is broken, `ended` finds the drainer's end.
        if self._process is not None and self._process.stdin is not None:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._process.stdin.fileno(), b"\n")


class DrainEvent(TypedDict):
    """An event in the journal of a drainer: the kind of the event, and its time; subclasses have further keys."""

    event: str  # kind of the event, such as ``committed`` or ``failed``
    at: float  # seconds since 1970, for people only


class DrainFailure(DrainEvent):
    """A failure of the drain in the journal, with its reason."""

    reason: str


class Drain(TypedDict):
    """The drain of one snapshot to the slow storage: the begin, the end, and the number of earlier failures."""

    started: Moment
    ended: Moment
    retries: int


class DrainedSnapshot(DrainEvent, Drain):
    """The event in the journal that a snapshot is complete on the slow storage."""

    name: str


class _DrainFacts(TypedDict):
    """The facts about the drain that a manifest on the slow storage has."""

    drain_started: Moment
    drain_retries: int
    drain_ended: Moment


_Kind = TypeVar("_Kind", bound=DrainEvent)


class DrainJournal:
    """The journal file to which the drainers of a fast folder append their events."""

    def __init__(self, fast: Path) -> None:
        self.path = fast / JOURNAL_NAME

    def append(self, event: str, **facts: Any) -> None:
        """Append an event to the journal and flush the file; if the storage is full, the event is lost."""
        line = json.dumps({"event": event, "at": time.time(), **facts}) + "\n"
        with suppress(OSError), files.open_to_append(self.path) as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self, kind: type[_Kind], offset: int = 0) -> tuple[list[_Kind], int]:
        """Return the events of a kind after a byte offset of the journal, and the offset of the journal's end.

        Lines that are no events of this kind are skipped.
        """
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
    """Return the reason for the last failed attempt to drain a fast folder, or ``unknown`` without such a reason."""
    reasons = [event["reason"] for event in DrainJournal(fast).read(DrainFailure)[0] if event["event"] == "failed"]
    return reasons[-1] if reasons else "unknown"


def drain_of_manifest(manifest: Manifest | None) -> Drain | None:
    """Return the times of a snapshot's drain from the snapshot's manifest on the slow storage.

    The result is None if there is no manifest, or if the manifest has no such times.
    """
    if manifest is None or reading.type_fault(manifest.facts, _DrainFacts):
        return None
    facts = manifest.facts
    return {"started": facts["drain_started"], "ended": facts[ENDED], "retries": facts["drain_retries"]}
