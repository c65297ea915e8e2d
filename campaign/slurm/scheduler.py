"""What the scheduler reports of our tasks, one question at a time.

The controller (``squeue``) is asked first: what it lists is the present. What it no longer lists has ended, and the
accounting (``sacct``), or the log of ended jobs, says how; what neither of them knows is lost: a controller that came
back without its state. The accounting is never believed about a task that lives, for it goes on saying RUNNING of what
such a controller forgot. Above all of them stands the record on disk (`campaign.cluster.progress`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from campaign.slurm import client
from campaign.slurm.task import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    Key,
    Task,
    from_completion_log,
    from_sacct,
    from_squeue,
)
from jobs.model.codes import JobEnd

_LOST_AFTER_S = 4.0  # the controller's answers lack the task: the first may come before sbatch has returned
_LOG_TAIL_BYTES = 8 << 20


def listed(names: Iterable[str], ask: Callable[..., str | None] = client.ask) -> list[Task] | None:
    """Ask the controller for all our tasks of these job names, or of any, also those that ended lately.

    None where it is silent, or what comes is no answer of squeue's (a wrapper's words, a line that was cut).

    ``--all``: without it jobs in a hidden partition are not shown, not even to their owner.
    """
    named = [f"--name={each}"] if (each := ",".join(names)) else []
    text = ask("squeue", "-r", "--all", "--states=all", f"--user={os.getuid()}", *named, "-o", SQUEUE_FORMAT)
    return None if text is None else from_squeue(text)


@dataclass
class Scheduler:
    """What is known of the tasks of some jobs."""

    facts: client.Facts
    names: Collection[str]  # job names to ask for
    since: str  # from when the accounting is asked: a date, ISO 8601, or now
    ask: Callable[..., str | None] = client.ask
    silent_since: float | None = None
    asking_since: float | None = None  # a question to the controller that has no answer yet
    _listed: dict[Key, Task] = field(default_factory=dict)
    _ended: dict[Key, Task] = field(default_factory=dict)
    _absent: dict[Key, float] = field(default_factory=dict)  # since which answer of the controller
    _answered: float = 0.0  # when it answered last
    _asked_accounting: bool = False

    def refresh(self, expected: Collection[Key]) -> None:
        """Ask once, for all of the `expected` tasks."""
        unexplained = self.silent_since is not None or any(self.doubtful(key) for key in expected)
        if unexplained and self.facts.accounting and not self._asked_accounting:
            self._asked_accounting = True
            self._ask_accounting(expected)
        else:
            self._asked_accounting = False
            self._ask_controller(expected)

    def task(self, key: Key) -> Task | None:
        """Return the latest report of a task; None where there is none yet."""
        if key in self._listed:
            return self._listed[key]
        ended = self._ended.get(key)
        if ended and (ended.final or self.silent_since is None):  # else it may be in the queue again
            return ended
        lost = key in self._absent and self._answered - self._absent[key] >= _LOST_AFTER_S
        return Task(*key, JobEnd.LOST, "", "", "", "") if lost else None

    def doubtful(self, key: Key) -> bool:
        """Return whether the controller did not list a task whose end nothing explains yet."""
        return key in self._absent and self.task(key) is None

    def _ask_controller(self, expected: Collection[Key]) -> None:
        self.asking_since = asked = time.monotonic()
        try:
            tasks = listed(self.names, self.ask)
        finally:
            self.asking_since = None
        if tasks is None:
            self.silent_since = self.silent_since or asked
            return
        now, self.silent_since = time.monotonic(), None
        self._listed = {task.key: task for task in tasks}
        self._answered = now
        self._absent = {key: self._absent.get(key, now) for key in expected if key not in self._listed}
        if self._absent and self.facts.completion_log:
            self._take_ended(from_completion_log(_tail(self.facts.completion_log), os.getuid()), self._absent)

    def _ask_accounting(self, expected: Collection[Key]) -> None:
        words = (
            "sacct",
            "-n",
            "-P",
            "-X",
            f"--user={os.getuid()}",
            f"--starttime={self.since}",
            f"--name={','.join(self.names)}",
        )
        text = self.ask(*words, "-o", SACCT_FORMAT)
        if text is None:
            return
        self._take_ended(from_sacct(text), expected)
        if self.silent_since is not None:  # else the controller is believed: the job may be in the queue again
            for key in [key for key in self._listed if key in self._ended and self._ended[key].final]:
                del self._listed[key]

    def _take_ended(self, tasks: Iterable[Task], wanted: Collection[Key]) -> None:
        """Keep the last report of each task that has ended; a job that was requeued has several."""
        self._ended.update({task.key: task for task in tasks if task.key in wanted and not task.live})


def _tail(path: os.PathLike[str]) -> str:
    """Read the end of a log that may be large and may not be ours to read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path-like
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
