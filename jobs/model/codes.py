"""Define the codes for states, waits and ends, with their parameters, and the sentence of each.

They stand in records, in the files of workers and between processes. A branch asks for a code and never for what a
sentence says; the sentence is made where it is shown, of the text beside the code.

Annotations are evaluated here: `jobs.model.reading` holds what was read against them.
"""

import signal
from enum import IntEnum, StrEnum
from typing import Required, Self, TypedDict

from jobs.model.reading import Amount, Count


class ExitCode(IntEnum):
    """The exit codes of `python -m campaign`; `meaning` is the text in help and documentation."""

    def __new__(cls, code: int, meaning: str) -> Self:
        """Take the number for the value, and its meaning beside it."""
        made = int.__new__(cls, code)
        made._value_, made.meaning = code, meaning
        return made

    meaning: str

    DONE = 0, "all cells done and valid"
    NOT_DONE = 1, "some cell failed or invalid"
    USAGE = 2, "wrong configuration or usage"
    ENVIRONMENT = 3, "the environment cannot run it"
    SCHEDULER = 4, "the scheduler refused"
    INTERRUPTED = 130, "interrupted"
    READER_ENDED = 141, "the reader of the output (head) ended"


class _CodeWithText(StrEnum):
    """A code with its sentence, in which the names of parameters stand in braces."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        """Take the code for the value, and its sentence beside it."""
        made = str.__new__(cls, code)
        made._value_, made.text = code, text
        return made


class CellState(StrEnum):
    """The state of a cell, in the order in which `status` shows them."""

    RUNNING = "running"
    QUEUED = "queued"  # a job or a worker has it, and has not begun it
    INTERRUPTED = "interrupted"  # somebody ended the worker that had it
    FAILED = "failed"
    INVALID = "invalid"
    DAMAGED = "damaged"  # its record
    UNFINISHED = "unfinished"  # runs are missing, and nothing went wrong
    PLANNED = "planned"  # nothing is measured, and nobody has it
    DONE = "done"


class JobEnd(StrEnum):
    """How a worker ended: Slurm's states of a job that is over, then ours."""

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
    GONE = "GONE"  # a process of this machine
    ERROR = "ERROR"  # the worker left an error of its own


class WorkerEnd(TypedDict, total=False):
    """The end of a worker, as Slurm or the worker itself reports it."""

    code: Required[JobEnd]
    exit: Count
    signal: Count
    node: str
    by: str  # the command that cancelled it
    words: str  # the last line of its log, and where that is; of its own error what is wrong
    cure: str  # of its own error


class RunEnd(_CodeWithText):
    """The reason why a run has no metrics; `words` holds the text behind the colon of a sentence."""

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
    PROGRAM = "program"  # of the user's: it failed, or could not be started
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
    rank: Count  # of several: the one that ended so first
    number: Count  # exit code, signal, or bytes
    limit: Count  # of these bytes
    seconds: Amount
    threads: Count
    cpus: Amount
    words: str  # of a log, of an error, of who found it out
    late: str  # whom the other ranks waited for
    worker: WorkerEnd  # where it is known how that ended


REFUSALS = frozenset({RunEnd.NO_DATA, RunEnd.TOO_FEW_CPUS, RunEnd.STORAGE_MOVED, RunEnd.NOT_EMULATED})
"""Ends of a run that was not begun, and that another try would end likewise."""
OF_OTHERS = frozenset({RunEnd.RANK_FAILED, RunEnd.RANKS_PARTED})
"""Ends of a rank that ended because another one had failed."""
OUT_OF_TIME = frozenset({RunEnd.TIMED_OUT, RunEnd.UNKILLABLE})
INTERRUPTING = frozenset({JobEnd.CANCELLED, JobEnd.LOST, JobEnd.PREEMPTED, JobEnd.REVOKED, JobEnd.GONE})
"""Ends of a worker that are not its own doing: what it leaves behind is interrupted, else failed."""


def sentence(end: End) -> str:
    """Return why a run has no metrics; raises LookupError or ValueError where a parameter is missing or odd."""
    of_worker = worker_sentence(end["worker"]) if "worker" in end else "the worker ended during this run"
    name = signal.Signals(end["number"]).name if end["code"] == RunEnd.KILLED else ""
    text = RunEnd(end["code"]).text.format_map({**end, "worker": of_worker, "name": name})
    who = f"rank {end['rank']}: " if "rank" in end else ""
    return who + ": ".join(filter(None, (text, end.get("words")))) + (f"; {end['late']}" if end.get("late") else "")


def worker_sentence(end: WorkerEnd) -> str:
    """Return how a worker ended, in its own words if it left some, else in Slurm's with the last line of its log."""
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
    """What a worker, or a job before it starts, waits for."""

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
    seconds: Amount  # the most that it may take
    allowing: str  # settings that would let disturbed runs count
    now: str  # what changes each moment


def wait_sentence(wait: Wait, *, lasting: bool = False) -> str:
    """Return what is waited for; with `lasting` without the parts that change each moment."""
    text = Waiting(wait["code"]).text.format_map(wait)
    return text if lasting or not wait.get("now") else f"{text}; now {wait['now']}"
