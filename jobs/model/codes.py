"""Codes for states, waits and ends, with their parameters, and the sentence of each code.

They are in records, in the files of workers and in messages between processes. A branch tests a code and never the text
of a sentence. A sentence is made where it is shown, from the text of the code.

Annotations are evaluated in this module, because `jobs.model.reading` checks files against them.
"""

import signal
from enum import IntEnum, StrEnum
from typing import Required, Self, TypedDict

from jobs.model.reading import Amount, Count


class ExitCode(IntEnum):
    """The exit codes of `python -m campaign`; `meaning` is the text in help and documentation."""

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a member with the number as its value, and its meaning."""
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    meaning: str

    DONE = 0, "all cells done and valid"
    NOT_DONE = 1, "some cell failed or invalid"
    USAGE = 2, "wrong configuration or usage"
    ENVIRONMENT = 3, "the environment cannot run it"
    SCHEDULER = 4, "the scheduler refused"
    INTERRUPTED = 130, "interrupted"
    READER_ENDED = 141, "the reader of the output (head) ended"


class _CodeWithText(StrEnum):
    """A code with its sentence, in which braces enclose the names of parameters."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        """Make a member with the code as its value, and its sentence."""
        member = str.__new__(cls, code)
        member._value_, member.text = code, text
        return member


class CellState(StrEnum):
    """The state of a cell, in the order of `status`."""

    RUNNING = "running"
    QUEUED = "queued"  # a job or a worker has it, but has not begun it
    INTERRUPTED = "interrupted"  # its worker was ended from outside
    FAILED = "failed"
    INVALID = "invalid"
    DAMAGED = "damaged"  # its record is damaged
    UNFINISHED = "unfinished"  # runs are missing, although nothing went wrong
    PLANNED = "planned"  # nothing is measured, and no worker has it
    DONE = "done"


class JobEnd(StrEnum):
    """How a worker ended: Slurm's final states of a job, then those of this program."""

    BOOT_FAIL = "BOOT_FAIL"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    DEADLINE = "DEADLINE"
    FAILED = "FAILED"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PREEMPTED = "PREEMPTED"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    REVOKED = "REVOKED"
    TIMEOUT = "TIMEOUT"
    LOST = "LOST"  # no source knows the job
    GONE = "GONE"  # a process of this machine has ended
    ERROR = "ERROR"  # the worker reported an error


class WorkerEnd(TypedDict, total=False):
    """The end of a worker, as Slurm or the worker itself reports it."""

    code: Required[JobEnd]
    exit: Count
    signal: Count
    node: str
    by: str  # the command that cancelled it
    words: str  # the last line of its log with the path, or the message of its error
    cure: str  # the cure of its error


class RunEnd(_CodeWithText):
    """The reason why a run has no metrics; `words` is the text after the colon of a sentence."""

    EXITED = "exited", "ended with exit code {number}"
    KILLED = "killed", "killed by signal {number} ({name})"
    TIMED_OUT = "timed_out", "still running after run_timeout_s={seconds:g}, killed"
    UNKILLABLE = (
        "unkillable",
        "still running after run_timeout_s={seconds:g}, and cannot be killed: the storage does not answer",
    )
    TEMPLATE_KILLED = "template_killed", "the template process was killed"
    TEMPLATE_SILENT = (
        "template_silent",
        "the template process gave no answer for {seconds:g} s beyond run_timeout_s, and was killed",
    )
    RANK_FAILED = "rank_failed", "ended, because another rank had failed"
    RANKS_PARTED = "ranks_parted"
    RANK_LOST = "rank_lost", "interrupted"
    LARGE_RESULT = "large_result", "its result has {number:,} bytes of JSON, and {limit:,} are allowed"
    ODD_METRICS = "odd_metrics", "its metrics are wrong"
    LOG_ELSEWHERE = "log_elsewhere", "refused"
    PROGRAM = "program"  # the user's program failed, or could not be started
    NO_DATA = "no_data"
    TOO_FEW_CPUS = (
        "too_few_cpus",
        (
            "threads={threads} and the job may use {cpus:g} CPUs; cluster.cpus_per_task={threads}, or "
            "cluster.oversubscribe=true to measure it so"
        ),
    )
    STORAGE_MOVED = "storage_moved"
    NOT_EMULATED = "not_emulated"
    NOT_EXCLUSIVE = "not_exclusive"
    STOPPED = "stopped", "interrupted: the campaign was stopped during this run"
    TIME_IS_UP = "time_is_up", "interrupted: the job's time limit was near"
    WORKER_ENDED = "worker_ended", "interrupted: {worker}"


class End(TypedDict, total=False):
    """The reason why a run has no metrics, with the parameters of its sentence."""

    code: Required[RunEnd]
    rank: Count  # the first rank that ended so
    number: Count  # exit code, signal, or bytes
    limit: Count  # of the number of bytes
    seconds: Amount
    threads: Count
    cpus: Amount
    words: str  # text of a log or an error
    late: str  # the rank for which the others waited
    worker: WorkerEnd  # if its end is known


REFUSALS = frozenset({RunEnd.NO_DATA, RunEnd.TOO_FEW_CPUS, RunEnd.STORAGE_MOVED, RunEnd.NOT_EMULATED})
"""Ends of a run that did not begin and would end in the same way again."""
OF_OTHERS = frozenset({RunEnd.RANK_FAILED, RunEnd.RANKS_PARTED})
"""Ends of a rank after another rank has failed."""
OUT_OF_TIME = frozenset({RunEnd.TIMED_OUT, RunEnd.UNKILLABLE})
INTERRUPTING = frozenset({JobEnd.CANCELLED, JobEnd.LOST, JobEnd.PREEMPTED, JobEnd.REVOKED, JobEnd.GONE})
"""Ends of a worker by an external cause; its cells are interrupted. After other ends they are failed."""


def run_end_sentence(end: End) -> str:
    """Return why a run has no metrics; raise LookupError or ValueError if a parameter is missing or invalid."""
    worker_text = worker_sentence(end["worker"]) if "worker" in end else "the worker ended during this run"
    name = signal.Signals(end["number"]).name if end["code"] == RunEnd.KILLED else ""
    text = RunEnd(end["code"]).text.format_map({**end, "worker": worker_text, "name": name})
    rank_text = f"rank {end['rank']}: " if "rank" in end else ""
    return (
        rank_text + ": ".join(filter(None, (text, end.get("words")))) + (f"; {end['late']}" if end.get("late") else "")
    )


def worker_sentence(end: WorkerEnd) -> str:
    """Return how a worker ended: its own message if there is one, else Slurm's state with the last line of its log."""
    code, words = end["code"], end.get("words", "")
    if code == JobEnd.ERROR:
        return f"{words} ({end['cure']})" if end.get("cure") else words
    parts = {"by": " by `{}`", "exit": ", exit code {}", "signal": ", signal {}", "node": " on {}"}
    details = "".join(text.format(end[key]) for key, text in parts.items() if end.get(key))  # type: ignore[literal-required]
    text = "its worker ended before it was over" if code == JobEnd.GONE else f"Slurm: {code}{details}"
    if code == JobEnd.LOST:
        text += ": Slurm no longer knows the job (cancelled while it waited, or the controller lost its state)"
    return f"{text}; {words}" if words else text


class Waiting(_CodeWithText):
    """What a worker, or a job before its start, waits for."""

    LOCK = "lock", "{words}, held by {holder}"
    DEVICE = "device", "the device {words}, held by {holder}"
    QUIET = (
        "quiet",
        (
            "the machine to become quiet, {seconds:g} s at most (wait_quiet_s): {words}; {allowing} lets such runs "
            "count here"
        ),
    )
    SCHEDULER = "scheduler", "{words}"
    SILENT = "silent", "the scheduler does not answer"


class Wait(TypedDict, total=False):
    """A wait, with the parameters of its sentence."""

    code: Required[Waiting]
    words: str  # path of a lock, name of a device, the scheduler's reason, or what disturbed the runs
    holder: str
    seconds: Amount  # longest duration
    allowing: str  # settings that would let disturbed runs count
    now: str  # the part that changes all the time


def wait_sentence(wait: Wait, *, lasting: bool = False) -> str:
    """Return what is waited for; with `lasting`, without the part that changes all the time."""
    text = Waiting(wait["code"]).text.format_map(wait)
    return text if lasting or not wait.get("now") else f"{text}; now {wait['now']}"
