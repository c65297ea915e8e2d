"""Define the codes for states, waits and ends, the parameters of every code, and the sentence of every code.

The codes are stored in records and in the files of workers, and are sent between processes. The code of this project
compares codes and never the text of sentences. A sentence is made from a code only when a command shows the sentence.

The annotations in this module are evaluated at run time, because `jobs.model.reading` checks files against these types.
"""

import signal
from enum import IntEnum, StrEnum
from typing import Required, Self, TypedDict

from jobs.model.reading import Amount, Count


class ExitCode(IntEnum):
    """The exit codes of `python -m campaign`; help texts and documentation show the attribute `meaning`."""

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a member from the number of an exit code and the meaning of the code."""
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    meaning: str

    DONE = 0, "all cells are valid"
    NOT_DONE = 1, "a cell failed or is invalid"
    USAGE = 2, "wrong configuration or usage"
    ENVIRONMENT = 3, "the environment cannot run it"
    SCHEDULER = 4, "the scheduler refused a request"
    INTERRUPTED = 130, "interrupted"
    READER_ENDED = 141, "the output has no reader"


class _CodeWithText(StrEnum):
    """A code with the template of a sentence; the template has the names of parameters in braces."""

    text: str

    def __new__(cls, code: str, text: str = "") -> Self:
        """Make a member from a code and the template of the sentence."""
        member = str.__new__(cls, code)
        member._value_, member.text = code, text
        return member


class CellState(StrEnum):
    """The states of a cell, in the order in which `python -m campaign status` lists the states: trouble first."""

    FAILED = "failed"
    DAMAGED = "damaged"  # the record of the cell is damaged
    INTERRUPTED = "interrupted"  # another program or a user ended the worker of the cell
    INVALID = "invalid"
    RUNNING = "running"
    QUEUED = "queued"  # a job or a worker will measure the cell, but has not begun the cell
    UNFINISHED = "unfinished"  # runs are missing, although no run failed
    PLANNED = "planned"  # no run is measured, and no job or worker will measure the cell
    DONE = "done"


class JobEnd(StrEnum):
    """The ways in which a worker can end: Slurm's final job states, then three states of this program."""

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
    LOST = "LOST"  # Slurm no longer knows the job
    GONE = "GONE"  # the worker process on this machine ended without a report
    ERROR = "ERROR"  # the worker reported an error


class WorkerEnd(TypedDict, total=False):
    """The end of a worker, as Slurm or the worker itself reports the end."""

    code: Required[JobEnd]
    exit: Count
    signal: Count
    node: str
    by: str  # the command that cancelled the worker
    words: str  # the last line of the worker's log and the path of the log, or the worker's error message
    cure: str  # what the user can do against the error of the worker


class RunEnd(_CodeWithText):
    """The reasons why a run has no metrics; in the sentence, the parameter `words` follows after a colon."""

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
    RANK_LATE = "rank_late", "stopped: it had not ended {seconds:g} s after another rank or after run_timeout_s"
    RANKS_PARTED = "ranks_parted"
    RANK_LOST = "rank_lost", "interrupted"
    LARGE_RESULT = "large_result", "its result has {number:,} bytes of JSON, and {limit:,} are allowed"
    ODD_METRICS = "odd_metrics", "its metrics are wrong"
    LOG_ELSEWHERE = "log_elsewhere", "refused"
    PROGRAM = "program"  # the user's program failed, or could not start
    NO_DATA = "no_data"
    TOO_FEW_CPUS = (
        "too_few_cpus",
        (
            "threads={threads} and the job may use {cpus:g} CPUs; set cluster.cpus_per_task={threads}, or set "
            "cluster.oversubscribe=true to measure with fewer CPUs than threads"
        ),
    )
    STORAGE_MOVED = "storage_moved"
    NOT_EMULATED = "not_emulated"
    NOT_EXCLUSIVE = "not_exclusive"
    STOPPED = "stopped", "interrupted: the worker was told to end during this run"
    TIME_IS_UP = "time_is_up", "interrupted: the job's time limit was near"
    WORKER_ENDED = "worker_ended", "interrupted: {worker}"


class End(TypedDict, total=False):
    """The reason why a run has no metrics, with the parameters for the sentence of the code."""

    code: Required[RunEnd]
    rank: Count  # the first rank that ended for this reason
    number: Count  # an exit code, a signal, or a number of bytes
    limit: Count  # the largest allowed number of bytes
    seconds: Amount
    threads: Count
    cpus: Amount
    words: str  # text of a log or an error
    late: str  # text that names the rank for which the other ranks waited
    worker: WorkerEnd  # missing if the end of the worker is unknown


REFUSALS = frozenset({RunEnd.NO_DATA, RunEnd.TOO_FEW_CPUS, RunEnd.STORAGE_MOVED, RunEnd.NOT_EMULATED})
"""The reasons for which a run did not begin; a new attempt would fail for the same reason."""
CAUSED_BY_OTHER_RANK = frozenset({RunEnd.RANK_FAILED, RunEnd.RANKS_PARTED})
"""The reasons for which a rank ends after another rank has failed."""
OUT_OF_TIME = frozenset({RunEnd.TIMED_OUT, RunEnd.UNKILLABLE})
INTERRUPTING = frozenset({JobEnd.CANCELLED, JobEnd.LOST, JobEnd.PREEMPTED, JobEnd.REVOKED, JobEnd.GONE})
"""The ends of a worker that have an external cause. After such an end, the cells of the worker are interrupted; after
any other end, the cells are failed."""


def run_end_sentence(end: End) -> str:
    """Return the sentence that says why a run has no metrics.

    Raises LookupError or ValueError if a parameter of the sentence is missing or invalid.
    """
    worker_text = worker_sentence(end["worker"]) if "worker" in end else "the worker ended during this run"
    name = signal.Signals(end["number"]).name if end["code"] == RunEnd.KILLED else ""
    text = RunEnd(end["code"]).text.format_map({**end, "worker": worker_text, "name": name})
    rank_text = f"rank {end['rank']}: " if "rank" in end else ""
    return (
        rank_text + ": ".join(filter(None, (text, end.get("words")))) + (f"; {end['late']}" if end.get("late") else "")
    )


def worker_sentence(end: WorkerEnd) -> str:
    """Return how a worker ended: the worker's error message, or Slurm's job state and the last line of the log."""
    code, words = end["code"], end.get("words", "")
    # A broken node is soon idle again, so it gets one job after the other.
    elsewhere = f" (if no other node fails so: +cluster.extra.exclude={end['node']})" if "node" in end else ""
    if code == JobEnd.ERROR:
        words = f"{end['node']}: {words}" if elsewhere else words
        return (f"{words} ({end['cure']})" if end.get("cure") else words) + elsewhere
    parts = {"by": " by `{}`", "exit": ", exit code {}", "signal": ", signal {}", "node": " on {}"}
    details = "".join(text.format(end[key]) for key, text in parts.items() if end.get(key))  # type: ignore[literal-required]
    text = "the worker ended before the cell was complete" if code == JobEnd.GONE else f"Slurm: {code}{details}"
    if code == JobEnd.LOST and not words:
        text += (
            ": Slurm no longer knows a job with this working directory (it was never submitted, a pending job was "
            "cancelled, the controller lost its state, or the campaign folder was moved)"
        )
    return (f"{text}; {words}" if words else text) + elsewhere * (code == JobEnd.FAILED)


class Waiting(_CodeWithText):
    """The things for which a worker, or a Slurm job before its start, can wait."""

    LOCK = "lock", "{words}, held by {holder}"
    DEVICE = "device", "the device {words}, held by {holder}"
    QUIET = "quiet", "the machine to become quiet, {seconds:g} s at most (wait_quiet_s): {words}"
    SCHEDULER = "scheduler", "{words}"
    SILENT = "silent", "the scheduler does not answer, so the job may have another state by now"
    SUSPENDED = "suspended", "SUSPENDED: Slurm has stopped the job until somebody resumes it"


class Wait(TypedDict, total=False):
    """A wait of a worker or of a job, with the parameters for the sentence of the code."""

    code: Required[Waiting]
    words: str  # path of a lock, name of a device, the scheduler's reason, or what disturbed the runs
    holder: str  # who has the lock or the device
    seconds: Amount  # longest duration of the wait
    now: str  # latest observation during the wait; changes all the time


def wait_sentence(wait: Wait, *, lasting: bool = False) -> str:
    """Return the sentence that says what a worker or a job waits for.

    With `lasting`, the sentence leaves out the latest observation, which changes all the time.
    """
    text = Waiting(wait["code"]).text.format_map(wait)
    return text if lasting or not wait.get("now") else f"{text}; now {wait['now']}"
