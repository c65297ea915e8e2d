"""The drainer as its trainer sees it: a process that is started, notified of new snapshots, and left running."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from jobs.burst_buffer.marker import LOG_NAME
from jobs.burst_buffer.slow_storage import Place
from jobs.system import files

_WORDS = 300  # characters: the last line of a traceback, or of a few
_ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "jobs.burst_buffer", "drain", "--follow")
# A Popen that is forgotten while its process runs warns; these run on by design, and are reaped at the next start.
left_running: list[subprocess.Popen[bytes]] = []


@atexit.register
def _forget() -> None:
    """Do not warn of drainers that still run: they outlive their trainer by design."""
    for process in left_running:
        process.returncode = process.poll() or 0


class Drainer:
    """Keeps one process at work that drains `fast` to `slow`; it outlives the trainer."""

    def __init__(self, fast: Path, slow: Place) -> None:
        self._fast, self._slow = fast, slow
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: list[str] = []

    def poke(self) -> None:
        """Notify the drainer of a new snapshot; start it where it is not running.

        What keeps it from starting is a complaint, not an error: the snapshot is durable, a later process drains it.
        """
        try:
            if self.ended():
                self._start()
            self._tell()
        except OSError as error:
            self._complaints.append(f"the drainer does not start: {error}")

    def ended(self) -> bool:
        """Return whether no drainer of this trainer is running."""
        if self._process is None:
            return True
        code = self._process.poll()
        if code is None:
            return False
        self._complaints.append(f"the drainer ended with code {code}: {self._last_words()}")
        self._close_pipe()
        self._process = None
        return True

    def _last_words(self) -> str:
        """Return the end of its log, which may be gone with its folder before anybody can read it there."""
        log = self._fast / LOG_NAME
        with suppress(OSError):
            return " ".join(files.read(log).decode(errors="replace").split())[-_WORDS:] or f"{log} is empty"
        return f"{log} cannot be read"

    def pids(self) -> list[int]:
        """Return the number of the process, where one was running when it was last looked at."""
        return [] if self._process is None else [self._process.pid]

    def complaints(self) -> list[str]:
        """Return what went wrong with the process since the last time."""
        self.ended()
        told, self._complaints = self._complaints, []
        return told

    def leave(self) -> None:
        """Close the pipe: the process then finishes by itself."""
        if self._process is not None:
            self._close_pipe()
            self._process = None

    def _start(self) -> None:
        left_running[:] = [process for process in left_running if process.poll() is None]
        with files.append(self._fast / LOG_NAME) as log:
            self._process = subprocess.Popen(
                [*COMMAND, str(self._fast), str(self._slow)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                start_new_session=True,  # Ctrl-C and the end of the terminal are the trainer's
            )
        left_running.append(self._process)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def _tell(self) -> None:
        # A full pipe wakes it just as well; one that is broken is found by `ended`.
        if self._process is not None and self._process.stdin is not None:
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._process.stdin.fileno(), b"\n")

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
