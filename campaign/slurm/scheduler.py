"""Ask Slurm for the tasks of this user, and read the output of squeue, sacct and the log of ended jobs.

squeue, which asks the controller, lists the tasks that wait or run. If squeue no longer lists a task, the task has
ended. Then the accounting (``sacct``) or the log of ended jobs says how the task ended. If no source lists the task,
the task counts as lost: the controller has lost its state, for example after a crash. The state RUNNING from sacct is
ignored, because sacct shows RUNNING for ever if the controller has lost the task. If a record on disk and these sources
disagree, the record is right (`campaign.cluster.progress`).

A task is identified by its index in the array and its *working directory*, which is the folder of its batch. A job id
would not identify a task, because a controller that has lost its state gives the same id to another job.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from campaign.slurm import client
from jobs.model.codes import JobEnd, WorkerEnd

TaskKey = tuple[str, int]  # working directory, index
SQUEUE_FORMAT = "%F|%K|%T|%r|%N|%Z"
_SQUEUE_HEAD = "ARRAY_JOB_ID|"  # start of squeue's headline, which proves that an output without jobs is from squeue
_SQUEUE_LINE = re.compile(r"(\d+)\|(\d+|N/A)\|([A-Z_]+)\|([^|]*)\|([^|]*)\|(/.*)")
SACCT_FORMAT = "JobID,State,ExitCode,NodeList,Reason,WorkDir"
_ENDED = frozenset(JobEnd)  # a task in any other state, also in a state of a newer Slurm, counts as live
_QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_BEGUN_AGAIN = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED"}
_NEVER = "the job cannot start; "
# Families of reasons, and what they mean for the user (squeue(1), JOB REASON CODES); the first that matches counts.
_REASONS = {
    r"JobHeldAdmin": _NEVER + "an administrator holds the job; ask the administrators",
    r"(?i).*held.*|JobHoldMaxRequeue": _NEVER + "`scontrol release JOB` releases the job",
    r"PartitionTimeLimit": _NEVER + "cancel the job; set a smaller cluster.timeout_min or another cluster.partition",
    r"Partition(Down|Inactive)": _NEVER + "set another cluster.partition, or wait until the partition is up again",
    r"DependencyNeverSatisfied": _NEVER + "cancel the job, then set another cluster.dependency",
    r"ReservationDeleted": _NEVER + "cancel the job, then set another reservation",
    r"InvalidAccount|Account\w*NotAllowed": _NEVER + "cancel the job, then set cluster.account=…",
    r"InvalidQOS|QOS\w*NotAllowed": _NEVER + "cancel the job, then set cluster.qos=…",
    r"\w+NotAllowed": _NEVER + "cancel the job, then set another cluster.partition",
    r"QOSMin\w*": _NEVER + "the QOS wants larger jobs: cancel the job, then set another cluster.qos",
    r"(Assoc|QOS)Grp\w*": "a limit on all jobs of the account or QOS is reached; it starts when other jobs have ended",
    r"(QOS|Assoc)Max\w+Per(Job|Node)\w*|MaxMemPerLimit|PartitionNodeLimit|BadConstraints": (
        _NEVER + "cancel the job, then ask for fewer resources"
    ),
    r"JobArrayTaskLimit": "other cells of this campaign run first; cluster.parallel=… lets more run at once",
    r"BeginTime": "Slurm starts a requeued job after a pause",
}
_NOBODY = ("", "(null)", "None", "none", "None assigned", "n/a", "N/A", "Unknown")
_ARRAY_ID = re.compile(r"(\d+)_(?:(\d+)|\[([^\]%]+)(?:%\d+)?\])")
_RANGE = re.compile(r"(?:^|(?<=,))(\d+)(?:-(\d+)(?::(\d+))?)?(?=,|$)")
# The user id is at the start of a line, before fields with text that users choose, such as the job name.
_COMPLETION_OWNER = re.compile(r"JobId=\d+ UserId=[^ ]*\((\d+)\) ")
_COMPLETION_KEY = re.compile(r" (?=[A-Za-z_]+=)")


@dataclass(frozen=True)
class Task:
    """An array task, as squeue, sacct or the log of ended jobs describes it."""

    folder: str  # working directory of the task
    index: int  # index of the task in the array
    state: str  # Slurm's state, one word: ``PENDING``, ``RUNNING``, ``NODE_FAIL``, …
    reason: str  # Slurm's reason for the state; empty without a reason
    node: str  # the node that runs or ran the task; empty if the source does not name the node
    exit: str  # ``code:signal``; empty if the source does not give the exit code
    job_id: str  # ``array_index``, the id for ``scancel`` and for messages

    @property
    def key(self) -> TaskKey:
        """Return the working directory and the index, which identify the task."""
        return self.folder, self.index

    @property
    def live(self) -> bool:
        """Return whether the task waits, runs or may run again."""
        return self.state not in _ENDED

    @property
    def final(self) -> bool:
        """Return whether the task has ended for good: Slurm will not start it again."""
        return not self.live and self.state not in _BEGUN_AGAIN

    @property
    def queued(self) -> bool:
        """Return whether the task waits in Slurm's queue."""
        return self.state in _QUEUED

    @property
    def suspended(self) -> bool:
        """Return whether somebody or Slurm has stopped the running task until it is resumed."""
        return self.state == "SUSPENDED"

    @property
    def waits_for(self) -> str:
        """Return Slurm's reason why the task waits, and what it means: whether the job can start, and the cure."""
        meaning = next((text for family, text in _REASONS.items() if re.fullmatch(family, self.reason)), "")
        return f"{self.reason}: {meaning.replace('JOB', self.job_id.partition('_')[0])}" if meaning else self.reason

    def end(self) -> WorkerEnd:
        """Return how the task ended: its state, and its exit code, signal and node if the source gives these values."""
        code, _, number = self.exit.partition(":")
        values = {"exit": code, "signal": number}
        numbers = {key: int(value) for key, value in values.items() if value.isdecimal() and int(value)}
        return {"code": JobEnd(self.state), **numbers, **({"node": self.node} if self.node else {})}  # type: ignore[typeddict-item]


def parse_squeue(text: str) -> list[Task] | None:
    """Return the tasks in the output of ``squeue -r -o SQUEUE_FORMAT``, or None if the text is not such an output.

    A site's wrapper of squeue may print a notice above the headline. All lines below the headline must describe jobs.
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
    """Yield the tasks in the output of ``sacct -n -P -X -o SACCT_FORMAT``; one line may describe several tasks."""
    for line in text.splitlines():
        job, state, code, node, reason, folder = (*line.split("|", 5), "", "", "", "", "")[:6]
        for index in _expand_indices(job):
            number = f"{job.partition('_')[0]}_{index}"
            # sacct may add words to the state, for example "CANCELLED by 1000".
            yield Task(folder, index, state.partition(" ")[0], _known_text(reason), _known_text(node), code, number)


def parse_completion_log(text: str, user: int) -> Iterator[Task]:
    """Yield the tasks of the user with the id `user` in the text log of ended jobs (``jobcomp/filetxt``)."""
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
    """Yield the array indices in a job id such as ``12_3`` or ``12_[0-2,7%1]``; yield nothing for other job ids."""
    match = _ARRAY_ID.fullmatch(job)
    if match is None:
        return
    for part in _RANGE.finditer(match[2] or match[3]):  # sacct truncates a long list: "1,3,5,4..."
        first, last, step = part.groups()
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _known_text(text: str) -> str:
    return "" if text in _NOBODY else text


# A task counts as lost if squeue does not list it for this time. A first answer may be older than the submission.
_LOST_AFTER_S = 4.0
_LOG_TAIL_BYTES = 8 << 20


def list_tasks(names: Iterable[str], ask: Callable[..., str | None] = client.ask_slurm) -> list[Task] | None:
    """Return this user's tasks with the job names `names`, also recently ended tasks; without names, all tasks.

    Return None if the controller does not answer, or if the text is not squeue's output, for example a truncated line.
    """
    name_option = [f"--name={joined}"] if (joined := ",".join(names)) else []
    # Without --all, squeue hides the jobs in hidden partitions even from the owner of the jobs.
    text = ask("squeue", "-r", "--all", "--states=all", f"--user={os.getuid()}", *name_option, "-o", SQUEUE_FORMAT)
    return None if text is None else parse_squeue(text)


@dataclass
class Scheduler:
    """The tasks of some jobs, with the latest report of each task from the scheduler."""

    facts: client.SlurmConfig
    names: Collection[str]  # job names of the tasks
    since: str  # start of the period for sacct: a date (ISO 8601) or ``now``
    ask: Callable[..., str | None] = client.ask_slurm
    silent_since: float | None = None  # time of the first unanswered question; None if the controller answers
    asking_since: float | None = None  # start of a question to the controller that has no answer yet
    _listed: dict[TaskKey, Task] = field(default_factory=dict)  # tasks in the last output of squeue
    _ended: dict[TaskKey, Task] = field(default_factory=dict)  # ended tasks from sacct and the log of ended jobs
    _absent_since: dict[TaskKey, float] = field(default_factory=dict)  # time of squeue's first answer without the task
    _answered_at: float = 0.0  # time of the controller's last answer
    _asked_accounting: bool = False

    def refresh(self, expected: Collection[TaskKey]) -> None:
        """Ask the controller (squeue) or the accounting (sacct) once about all `expected` tasks."""
        unexplained = self.silent_since is not None or any(self.is_unexplained(key) for key in expected)
        if unexplained and self.facts.accounting and not self._asked_accounting:
            self._asked_accounting = True
            self._ask_accounting(expected)
        else:
            self._asked_accounting = False
            self._ask_controller(expected)

    def task(self, key: TaskKey) -> Task | None:
        """Return the latest report of a task, or None without a report."""
        if key in self._listed:
            return self._listed[key]
        ended = self._ended.get(key)
        # While the controller is silent, a task whose end is not final may be in the queue again.
        if ended and (ended.final or self.silent_since is None):
            return ended
        is_lost = key in self._absent_since and self._answered_at - self._absent_since[key] >= _LOST_AFTER_S
        return Task(*key, JobEnd.LOST, "", "", "", "") if is_lost else None

    def is_unexplained(self, key: TaskKey) -> bool:
        """Return whether squeue does not list the task and no other source has reported yet how the task ended."""
        return key in self._absent_since and self.task(key) is None

    def _ask_controller(self, expected: Collection[TaskKey]) -> None:
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
        self._answered_at = now
        self._absent_since = {key: self._absent_since.get(key, now) for key in expected if key not in self._listed}
        if self._absent_since and self.facts.completion_log:
            self._take_ended(
                parse_completion_log(_read_log_tail(self.facts.completion_log), os.getuid()), self._absent_since
            )

    def _ask_accounting(self, expected: Collection[TaskKey]) -> None:
        words = (f"--user={os.getuid()}", f"--starttime={self.since}", f"--name={','.join(self.names)}")
        text = self.ask("sacct", "-n", "-P", "-X", *words, "-o", SACCT_FORMAT)
        if text is None:
            return
        self._take_ended(parse_sacct(text), expected)
        # If the controller is silent, the accounting replaces squeue's old report. If the controller answers, squeue's
        # report is right, because the job may be in the queue again.
        if self.silent_since is not None:
            for key in [key for key in self._listed if key in self._ended and self._ended[key].final]:
                del self._listed[key]

    def _take_ended(self, tasks: Iterable[Task], wanted: Collection[TaskKey]) -> None:
        """Store the last report of each ended task in `wanted`; a requeued task has several reports."""
        self._ended.update({task.key: task for task in tasks if task.key in wanted and not task.live})


def _read_log_tail(path: os.PathLike[str]) -> str:
    """Return the last 8 MiB of a log, or an empty text if this user may not read the log."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path-like
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
