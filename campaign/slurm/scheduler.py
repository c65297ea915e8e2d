"""Ask the scheduler for our tasks, and read the answers of squeue, sacct and the log of ended jobs.

The controller (``squeue``) is asked first: its list is the present. A task that it no longer lists has ended, and the
accounting (``sacct``), or the log of ended jobs, says how. A task that neither of them knows is lost: the controller
came back without its state. The accounting is never believed about a task that lives, because it goes on saying RUNNING
of a task that such a controller forgot. The record on disk is believed before all of them
(`campaign.cluster.progress`).

A task is identified by its *working directory*, the folder of its batch, and its index in the array; never by a job id,
which a controller that lost its state gives to somebody else.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from campaign.slurm import client
from jobs.model.codes import JobEnd, WorkerEnd

Key = tuple[str, int]  # working directory, index
SQUEUE_FORMAT = "%F|%K|%T|%r|%N|%Z"
_SQUEUE_HEAD = "ARRAY_JOB_ID|"  # of the line above the jobs, which proves an answer without any to be squeue's
_SQUEUE_LINE = re.compile(r"(\d+)\|(\d+|N/A)\|([A-Z_]+)\|([^|]*)\|([^|]*)\|(/.*)")
SACCT_FORMAT = "JobID,State,ExitCode,NodeList,Reason,WorkDir"
_ENDED = frozenset(JobEnd)  # a state that is none of these, of a Slurm to come, is taken for one of a job that lives
_QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_BEGUN_AGAIN = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED"}
_ASK_FOR_LESS = "cancel, then ask for less"
# Reasons with which a job waits for ever, and the cure (squeue(1), JOB REASON CODES).
_REASONS_FOR_EVER = {
    "PartitionTimeLimit": "cancel, then less cluster.timeout_min, or another cluster.partition",
    "PartitionNodeLimit": _ASK_FOR_LESS,
    "BadConstraints": _ASK_FOR_LESS,
    "JobHeldUser": "`scontrol release JOB` lets it go",
    "JobHoldMaxRequeue": "`scontrol release JOB` lets it go; first see why it was begun so often",
    "JobHeldAdmin": "an administrator holds it; ask them",
    "DependencyNeverSatisfied": "cancel, then another cluster.dependency",
    "InvalidAccount": "cancel, then cluster.account=…",
    "InvalidQOS": "cancel, then cluster.qos=…",
    "PartitionDown": "cancel, then another cluster.partition; or wait until it is up again",
    "PartitionInactive": "cancel, then another cluster.partition; or wait until it is up again",
    "ReservationDeleted": "cancel, then another reservation",
}
_OVER_A_LIMIT = re.compile(r"(QOS|Assoc)Max\w+Per(Job|Node)\w*|MaxMemPerLimit")
_NOBODY = ("", "(null)", "None", "none", "None assigned", "n/a", "N/A", "Unknown")
_ARRAY_ID = re.compile(r"(\d+)_(?:(\d+)|\[([^\]%]+)(?:%\d+)?\])")
_RANGE = re.compile(r"(?:^|(?<=,))(\d+)(?:-(\d+)(?::(\d+))?)?(?=,|$)")
_COMPLETION_OWNER = re.compile(r"JobId=\d+ UserId=[^ ]*\((\d+)\) ")  # before any word that its user has chosen
_COMPLETION_KEY = re.compile(r" (?=[A-Za-z_]+=)")


@dataclass(frozen=True)
class Task:
    """An array task, as one of the sources describes it."""

    folder: str  # with the index its identity (`Key`)
    index: int
    state: str  # Slurm's state, one word: ``PENDING``, ``RUNNING``, ``NODE_FAIL``, …
    reason: str  # Slurm's reason, where it gives one
    node: str  # where it runs or ran; empty where the source does not say, as `exit`
    exit: str  # ``code:signal``
    job_id: str  # ``array_index``, for ``scancel`` and for people

    @property
    def key(self) -> Key:
        """Return the identity of the task."""
        return self.folder, self.index

    @property
    def live(self) -> bool:
        """Return whether the task waits, runs or may run again."""
        return self.state not in _ENDED

    @property
    def final(self) -> bool:
        """Return whether the task has ended in a way after which Slurm does not begin it again."""
        return not self.live and self.state not in _BEGUN_AGAIN

    @property
    def queued(self) -> bool:
        """Return whether the task waits."""
        return self.state in _QUEUED

    @property
    def waits_for(self) -> str:
        """Return Slurm's reason for the wait; if the task can never start, also that and the cure."""
        cure = _REASONS_FOR_EVER.get(self.reason, _ASK_FOR_LESS if _OVER_A_LIMIT.fullmatch(self.reason) else "")
        return (
            f"{self.reason}: will not start as it stands; {cure.replace('JOB', self.job_id.partition('_')[0])}"
            if cure
            else self.reason
        )

    def end(self) -> WorkerEnd:
        """Return how the task ended: its state, its exit code or signal if there is one, its node."""
        code, _, number = self.exit.partition(":")
        values = {"exit": code, "signal": number}
        numbers = {key: int(value) for key, value in values.items() if value.isdecimal() and int(value)}
        return {"code": JobEnd(self.state), **numbers, **({"node": self.node} if self.node else {})}  # type: ignore[typeddict-item]


def parse_squeue(text: str) -> list[Task] | None:
    """Return the tasks in the output of ``squeue -r -o SQUEUE_FORMAT``; None if it is no output of squeue.

    A wrapper may print a notice above squeue's head; below it there is nothing but jobs.
    """
    lines = text.splitlines()
    head = next((index for index, line in enumerate(lines) if line.startswith(_SQUEUE_HEAD)), None)
    matches = [_SQUEUE_LINE.fullmatch(line) for line in lines[head + 1 :]] if head is not None else [None]
    if None in matches:
        return None
    fields = [match.groups() for match in matches if match]
    return [
        Task(folder, int(index), state, _known_text(reason), _known_text(node), "", f"{job}_{index}")
        for job, index, state, reason, node, folder in fields
        if index.isdecimal()
    ]


def parse_sacct(text: str) -> Iterator[Task]:
    """Yield the tasks in the output of ``sacct -n -P -X -o SACCT_FORMAT``; a line may stand for several."""
    for line in text.splitlines():
        job, state, code, node, reason, folder = (*line.split("|", 5), "", "", "", "", "")[:6]
        for index in _expand_indices(job):
            number = f"{job.partition('_')[0]}_{index}"
            # "CANCELLED by 1000"
            yield Task(folder, index, state.partition(" ")[0], _known_text(reason), _known_text(node), code, number)


def parse_completion_log(text: str, user: int) -> Iterator[Task]:
    """Yield the tasks of the user with this number in the log of ``jobcomp/filetxt``."""
    for line in text.splitlines():
        if (owner := _COMPLETION_OWNER.match(line)) and int(owner[1]) != user:
            continue
        pairs = (part.partition("=") for part in _COMPLETION_KEY.split(line.strip()))
        values = {key: value for key, _, value in pairs}
        if values.get("ArrayTaskId", "").isdigit():
            index = int(values["ArrayTaskId"])
            number = f"{values.get('ArrayJobId', '?')}_{index}"
            node = _known_text(values.get("NodeList", ""))
            state = values.get("JobState", "UNKNOWN")
            yield Task(values.get("WorkDir", ""), index, state, "", node, values.get("ExitCode", ""), number)


def _expand_indices(job: str) -> Iterator[int]:
    """Yield the indices in ``12_3`` or ``12_[0-2,7%1]``; none for a job that is no array."""
    match = _ARRAY_ID.fullmatch(job)
    if match is None:
        return
    for part in _RANGE.finditer(match[2] or match[3]):  # sacct cuts a long list short: "1,3,5,4..."
        first, last, step = part.groups()
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _known_text(text: str) -> str:
    return "" if text in _NOBODY else text


_LOST_AFTER_S = 4.0  # the controller's answers lack the task: the first may come before sbatch has returned
_LOG_TAIL_BYTES = 8 << 20


def list_tasks(names: Iterable[str], ask: Callable[..., str | None] = client.ask_slurm) -> list[Task] | None:
    """Return all our tasks with these job names, or with any, also those that ended lately; None without an answer.

    None where it is silent, or what comes is no answer of squeue's (a wrapper's words, a line that was cut).

    ``--all``: without it jobs in a hidden partition are not shown, not even to their owner.
    """
    named = [f"--name={each}"] if (each := ",".join(names)) else []
    text = ask("squeue", "-r", "--all", "--states=all", f"--user={os.getuid()}", *named, "-o", SQUEUE_FORMAT)
    return None if text is None else parse_squeue(text)


@dataclass
class Scheduler:
    """The tasks of some jobs, as the scheduler has last described them."""

    facts: client.Facts
    names: Collection[str]  # job names to ask for
    since: str  # from when the accounting is asked: a date, ISO 8601, or now
    ask: Callable[..., str | None] = client.ask_slurm
    silent_since: float | None = None
    asking_since: float | None = None  # a question to the controller that has no answer yet
    _listed: dict[Key, Task] = field(default_factory=dict)
    _ended: dict[Key, Task] = field(default_factory=dict)
    _absent: dict[Key, float] = field(default_factory=dict)  # since which answer of the controller
    _answered: float = 0.0  # when it answered last
    _asked_accounting: bool = False

    def refresh(self, expected: Collection[Key]) -> None:
        """Ask one question for all of the `expected` tasks: the controller, or the accounting."""
        unexplained = self.silent_since is not None or any(self.is_unexplained(key) for key in expected)
        if unexplained and self.facts.accounting and not self._asked_accounting:
            self._asked_accounting = True
            self._ask_accounting(expected)
        else:
            self._asked_accounting = False
            self._ask_controller(expected)

    def task(self, key: Key) -> Task | None:
        """Return the latest report of a task; None if there is none yet."""
        if key in self._listed:
            return self._listed[key]
        ended = self._ended.get(key)
        if ended and (ended.final or self.silent_since is None):  # else it may be in the queue again
            return ended
        is_lost = key in self._absent and self._answered - self._absent[key] >= _LOST_AFTER_S
        return Task(*key, JobEnd.LOST, "", "", "", "") if is_lost else None

    def is_unexplained(self, key: Key) -> bool:
        """Return whether the controller did not list a task, and no source says yet how it ended."""
        return key in self._absent and self.task(key) is None

    def _ask_controller(self, expected: Collection[Key]) -> None:
        self.asking_since = asked_at = time.monotonic()
        try:
            tasks = list_tasks(self.names, self.ask)
        finally:
            self.asking_since = None
        if tasks is None:
            self.silent_since = self.silent_since or asked_at
            return
        now, self.silent_since = time.monotonic(), None
        self._listed = {task.key: task for task in tasks}
        self._answered = now
        self._absent = {key: self._absent.get(key, now) for key in expected if key not in self._listed}
        if self._absent and self.facts.completion_log:
            self._take_ended(parse_completion_log(_read_log_tail(self.facts.completion_log), os.getuid()), self._absent)

    def _ask_accounting(self, expected: Collection[Key]) -> None:
        words = (f"--user={os.getuid()}", f"--starttime={self.since}", f"--name={','.join(self.names)}")
        text = self.ask("sacct", "-n", "-P", "-X", *words, "-o", SACCT_FORMAT)
        if text is None:
            return
        self._take_ended(parse_sacct(text), expected)
        if self.silent_since is not None:  # else the controller is believed: the job may be in the queue again
            for key in [key for key in self._listed if key in self._ended and self._ended[key].final]:
                del self._listed[key]

    def _take_ended(self, tasks: Iterable[Task], wanted: Collection[Key]) -> None:
        """Keep the last report of each task that has ended; a job that was requeued has several."""
        self._ended.update({task.key: task for task in tasks if task.key in wanted and not task.live})


def _read_log_tail(path: os.PathLike[str]) -> str:
    """Return the end of a log that may be large; empty if this user may not read it."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path-like
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
