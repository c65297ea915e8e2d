"""What Slurm says of an array task, read from each of the places that may know it.

A task is ours by its *working directory*, the folder of its batch, and its index in the array; never by a job id, which
a controller that lost its state gives to somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.model.codes import JobEnd, WorkerEnd

Key = tuple[str, int]  # working directory, index
SQUEUE_FORMAT = "%F|%K|%T|%r|%N|%Z"
_SQUEUE_HEAD = "ARRAY_JOB_ID|"  # of the line above the jobs, which proves an answer without any to be squeue's
_SQUEUE_LINE = re.compile(r"(\d+)\|(\d+|N/A)\|([A-Z_]+)\|([^|]*)\|([^|]*)\|(/.*)")
SACCT_FORMAT = "JobID,State,ExitCode,NodeList,Reason,WorkDir"
_ENDED = frozenset(JobEnd)  # a state that is none of these, of a Slurm to come, is taken for one of a job that lives
_QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_BEGUN_AGAIN = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED"}
_LESS = "cancel, then ask for less"
# Reasons with which a job waits for ever, and the cure (squeue(1), JOB REASON CODES).
_NEVER = {
    "PartitionTimeLimit": "cancel, then less cluster.timeout_min, or another cluster.partition",
    "PartitionNodeLimit": _LESS,
    "BadConstraints": _LESS,
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
    """One array task in one source's words."""

    folder: str  # with the index its identity (`Key`)
    index: int
    state: str  # Slurm's state, one word: ``PENDING``, ``RUNNING``, ``NODE_FAIL``, …
    reason: str  # Slurm's reason, where it gives one
    node: str  # where it runs or ran; empty where the source does not say, as `exit`
    exit: str  # ``code:signal``
    job_id: str  # ``array_index``, for ``scancel`` and for people

    @property
    def key(self) -> Key:
        """Its identity."""
        return self.folder, self.index

    @property
    def live(self) -> bool:
        """Whether it waits, runs or may run again."""
        return self.state not in _ENDED

    @property
    def final(self) -> bool:
        """Whether it has ended in a way after which Slurm does not begin it again."""
        return not self.live and self.state not in _BEGUN_AGAIN

    @property
    def queued(self) -> bool:
        """Whether it waits."""
        return self.state in _QUEUED

    @property
    def waits_for(self) -> str:
        """Slurm's reason; and where the task will not start as it stands, that and the cure."""
        cure = _NEVER.get(self.reason, _LESS if _OVER_A_LIMIT.fullmatch(self.reason) else "")
        return (
            f"{self.reason}: will not start as it stands; {cure.replace('JOB', self.job_id.partition('_')[0])}"
            if cure
            else self.reason
        )

    def end(self) -> WorkerEnd:
        """Return how it ended: state, exit code or signal where there is one, node."""
        code, _, number = self.exit.partition(":")
        values = {"exit": code, "signal": number}
        numbers = {key: int(value) for key, value in values.items() if value.isdecimal() and int(value)}
        return {"code": JobEnd(self.state), **numbers, **({"node": self.node} if self.node else {})}  # type: ignore[typeddict-item]


def from_squeue(text: str) -> list[Task] | None:
    """Read ``squeue -r -o SQUEUE_FORMAT``; None where it is not what squeue prints, for that is no answer.

    A wrapper may print a notice above squeue's head; below it there is nothing but jobs.
    """
    lines = text.splitlines()
    head = next((place for place, line in enumerate(lines) if line.startswith(_SQUEUE_HEAD)), None)
    matches = [_SQUEUE_LINE.fullmatch(line) for line in lines[head + 1 :]] if head is not None else [None]
    if None in matches:
        return None
    found = [match.groups() for match in matches if match]
    return [
        Task(folder, int(index), state, _plain(reason), _plain(node), "", f"{job}_{index}")
        for job, index, state, reason, node, folder in found
        if index.isdecimal()
    ]


def from_sacct(text: str) -> Iterator[Task]:
    """Read ``sacct -n -P -X -o SACCT_FORMAT``; a line may stand for all pending tasks of an array."""
    for line in text.splitlines():
        job, state, code, node, reason, folder = (*line.split("|", 5), "", "", "", "", "")[:6]
        for index in _indices(job):
            number = f"{job.partition('_')[0]}_{index}"
            # "CANCELLED by 1000"
            yield Task(folder, index, state.partition(" ")[0], _plain(reason), _plain(node), code, number)


def from_completion_log(text: str, user: int) -> Iterator[Task]:
    """Read the log of ``jobcomp/filetxt``, which has everybody's jobs: those of the user with this number."""
    for line in text.splitlines():
        if (owner := _COMPLETION_OWNER.match(line)) and int(owner[1]) != user:
            continue
        pairs = (part.partition("=") for part in _COMPLETION_KEY.split(line.strip()))
        said = {key: value for key, _, value in pairs}
        if said.get("ArrayTaskId", "").isdigit():
            index = int(said["ArrayTaskId"])
            number = f"{said.get('ArrayJobId', '?')}_{index}"
            node = _plain(said.get("NodeList", ""))
            state = said.get("JobState", "UNKNOWN")
            yield Task(said.get("WorkDir", ""), index, state, "", node, said.get("ExitCode", ""), number)


def _indices(job: str) -> Iterator[int]:
    """Expand ``12_3`` and ``12_[0-2,7%1]``; nothing for a job that is no array."""
    match = _ARRAY_ID.fullmatch(job)
    if match is None:
        return
    for part in _RANGE.finditer(match[2] or match[3]):  # sacct cuts a long list short: "1,3,5,4..."
        first, last, step = part.groups()
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _plain(text: str) -> str:
    return "" if text in _NOBODY else text
