"""Run Slurm's commands without the environment variables of an outer job, and read the limits of partitions."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from campaign import console
from jobs.system import programs

# Variables with these prefixes hold the job id and the CPU binding of an outer job, or change the output of Slurm's
# commands (SQUEUE_FORMAT). So Slurm's commands get only the variables in _KEPT: the address of the cluster and the
# authentication token (auth/jwt).
_PREFIXES = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_TIMEOUT_S = 20.0
_PATIENCE_S = 10.0  # the total wait for unanswered questions; also the pause afterwards without any question
# The timeout of sbatch is long, because a busy controller is slow and a second sbatch would submit the job twice.
_SUBMIT_S = 60.0
_SAY_AFTER_S = 2.0
_SBATCH_SAYS = re.compile(r"sbatch: (?:error: )?(.*)")
_JOB = re.compile(r"^Submitted batch job (\d+)", re.MULTILINE)  # not a job that a site's notice names


class SubmissionRefusal(StrEnum):
    """The reason why sbatch did not accept a script."""

    NO_ANSWER = "no_answer"  # Slurm did not answer, so Slurm may still have accepted the job
    TOO_MANY_NOW = "too_many_now"  # a limit on the number of jobs
    # No node can run the job now. sbatch --test-only also says this if nodes are only drained for a while.
    NODES_AWAY = "nodes_away"
    OTHER = "other"


_REFUSAL_TEXTS = {
    SubmissionRefusal.NO_ANSWER: re.compile("timed out|Unable to contact", re.IGNORECASE),
    SubmissionRefusal.TOO_MANY_NOW: re.compile("MaxSubmit|accounting/QOS policy", re.IGNORECASE),
    SubmissionRefusal.NODES_AWAY: re.compile("node configuration is not available"),
}
_UNCONFIGURED = "configuration source"  # in "Could not establish a configuration source"


def is_slurm_variable(name: str) -> bool:
    """Return whether an environment variable would change the behaviour of Slurm's commands."""
    return name.startswith(_PREFIXES) and name not in _KEPT


def clean_environment() -> dict[str, str]:
    """Return the environment of this process without the variables that change the behaviour of Slurm's commands."""
    return {name: value for name, value in os.environ.items() if not is_slurm_variable(name)}


@dataclass
class _PatienceWithSlurm:
    """The total time that this process has waited for Slurm's controller since the controller's last answer."""

    waited_s: float = 0.0
    last_question_s: float = -math.inf  # when the last question ended
    is_announced: bool = False

    @property
    def left_s(self) -> float:
        """Return how many seconds the next question may wait for an answer."""
        if time.monotonic() - self.last_question_s >= _PATIENCE_S:
            self.waited_s = 0.0
        return max(0.0, _PATIENCE_S - self.waited_s)

    def say(self, up_to_s: float) -> None:
        """Print once that this process waits for the controller."""
        if not self.is_announced:
            self.is_announced = True
            console.say(f"waiting up to {up_to_s:.0f} s for Slurm's controller …")


_patience = _PatienceWithSlurm()


def has_given_up() -> bool:
    """Return whether questions to the controller are stopped for 10 s, because the controller did not answer."""
    return _patience.left_s <= 0


def ask_slurm(*words: str, patient: bool = False) -> str | None:
    """Run a Slurm command and return its output, or None if the command is missing, fails or does not answer in time.

    Consecutive unanswered questions wait 10 s in total. Then no command is run for 10 s. A `patient` question always
    waits up to 20 s.
    """
    try:
        process = _run_client(*words) if patient else _ask_within_patience(*words)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if process.returncode else process.stdout


def _ask_within_patience(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command with the timeout that remains of the 10 s for consecutive unanswered questions."""
    started, left_s = time.monotonic(), _patience.left_s
    if not left_s:
        raise subprocess.TimeoutExpired(words, 0)
    is_answered = False
    try:
        with _announce_wait(_PATIENCE_S):
            process = _run_client(*words, timeout_s=left_s)
        is_answered = process.returncode == 0
        return process
    finally:
        now = time.monotonic()
        _patience.waited_s = 0.0 if is_answered else _patience.waited_s + now - started
        _patience.last_question_s = now
        _patience.is_announced &= not is_answered


def ask_for_lines(key: str, *words: str, patient: bool = False) -> list[dict[str, str]]:
    """Run a Slurm command and return a dictionary of the words ``KEY=VALUE`` for each output line that has `key`.

    If a line has a key twice, the first value counts, because paths and comments later in the line may contain any
    text.
    """
    text = ask_slurm(*words, patient=patient) or ""
    pairs = ([word.partition("=") for word in reversed(line.split())] for line in text.splitlines())
    values = ({name: value for name, _, value in line} for line in pairs)
    return [line for line in values if key in line]


class RefusedError(Exception):
    """Raised if sbatch did not accept a script; `refusal` is the reason, and the text is sbatch's message."""

    def __init__(self, words: str, refusal: SubmissionRefusal | None = None) -> None:
        super().__init__(words)
        refusals = (code for code, pattern in _REFUSAL_TEXTS.items() if pattern.search(words))
        self.refusal = refusal or next(refusals, SubmissionRefusal.OTHER)


class SubmissionAnswer(NamedTuple):
    """The output and the messages of sbatch; `refusal` is None if sbatch accepted the script."""

    refusal: SubmissionRefusal | None
    printed: str
    words: str

    @property
    def is_accepted(self) -> bool | None:
        """Return whether sbatch accepted the script, or None if sbatch did not answer."""
        return None if self.refusal == SubmissionRefusal.NO_ANSWER else self.refusal is None


def submit_script(script: Path) -> str:
    """Submit a batch script with ``sbatch`` and return the job id; raise RefusedError if sbatch does not accept it."""
    answer = call_sbatch(str(script))
    job = _JOB.search(answer.printed)
    if answer.refusal or job is None:
        raise RefusedError(answer.words or f"sbatch printed '{answer.printed}'", answer.refusal)
    return job[1]


def call_sbatch(*words: str, script: str | None = None) -> SubmissionAnswer:
    """Call ``sbatch`` with the arguments `words` and return its answer, which may take a minute.

    If `words` contain no file name, sbatch reads the text `script` from its standard input.
    """
    try:
        with _announce_wait(_SUBMIT_S):
            process = _run_client("sbatch", *words, timeout_s=_SUBMIT_S, text=script)
    except subprocess.TimeoutExpired:
        return SubmissionAnswer(SubmissionRefusal.NO_ANSWER, "", f"sbatch timed out after {_SUBMIT_S:.0f} s")
    except OSError as error:
        return SubmissionAnswer(SubmissionRefusal.NO_ANSWER, "", f"sbatch does not answer: {error}")
    messages = "; ".join(_SBATCH_SAYS.findall(process.stderr)) or " ".join(process.stderr.split())
    return SubmissionAnswer(RefusedError(messages).refusal if process.returncode else None, process.stdout, messages)


@contextmanager
def _announce_wait(up_to_s: float) -> Iterator[None]:
    """Print that this process waits up to `up_to_s` seconds for Slurm, if the code inside takes more than 2 s."""
    timer = threading.Timer(_SAY_AFTER_S, _patience.say, [up_to_s])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _run_client(
    *words: str, timeout_s: float = _TIMEOUT_S, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    return programs.run_program(words, clean_environment(), timeout=timeout_s, text=text)


def has_cluster() -> bool:
    """Return whether this machine can submit to a Slurm cluster: it has ``sbatch``, and sbatch is configured.

    Return True also if the controller is down, because a campaign must not run on the login node instead.
    """
    if shutil.which("sbatch") is None:
        return False
    try:
        process = _ask_within_patience("sinfo", "-h", "-o", "%P")
    except (subprocess.TimeoutExpired, OSError):  # the controller hangs, or there is no sinfo
        return True
    return process.returncode == 0 or _UNCONFIGURED not in process.stderr


@dataclass(frozen=True)
class SlurmConfig:
    """The output of ``scontrol show config``; `text` is empty if the controller does not answer."""

    text: str

    @cached_property
    def _values(self) -> dict[str, str]:
        pairs = (line.split("=", 1) for line in self.text.splitlines() if "=" in line)
        return {key.strip(): value.strip() for key, value in pairs}

    @property
    def version(self) -> str:
        """Return the version of Slurm, or ``unknown``."""
        return self._values.get("SLURM_VERSION", "unknown")

    @property
    def cluster(self) -> str:
        """Return the name of the cluster, or ``unknown``."""
        return self._values.get("ClusterName", "unknown")

    @property
    def accounting(self) -> bool:
        """Return whether the cluster has accounting, so that ``sacct`` can list ended jobs."""
        kind = self._values.get("AccountingStorageType", "unknown")
        return not kind.endswith("/none") and kind != "(null)" and shutil.which("sacct") is not None

    @property
    def completion_log(self) -> Path | None:
        """Return the path of the text log of ended jobs (``jobcomp/filetxt``), or None without such a log."""
        if self._values.get("JobCompType") != "jobcomp/filetxt":
            return None
        return Path(self._values.get("JobCompLoc", "/var/log/slurm_jobcomp.log"))

    @property
    def min_job_age_s(self) -> int:
        """Return how many seconds the controller still lists an ended job (``MinJobAge``, by default 300)."""
        return int(self._values.get("MinJobAge", "300").partition(" ")[0])

    @property
    def tasks_at_most(self) -> int:
        """Return the largest number of tasks in one array job (``MaxArraySize``)."""
        return max(1, int(self._values.get("MaxArraySize", "1001")))


def read_slurm_config() -> SlurmConfig:
    """Return the configuration of the Slurm cluster, as the controller reports it."""
    return SlurmConfig(ask_slurm("scontrol", "show", "config") or "")


_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+):\d+")
# States of nodes that cannot run jobs now, but may run jobs later (sinfo(1), NODE STATE CODES).
_AWAY_STATES = ("down", "drain", "fail", "maint", "reserved", "unk", "inval")
_NOT_RESPONDING = "*"
_NODE_FORMAT = "PARTITION=%R CPUS=%c STATE=%T"


@dataclass(frozen=True)
class Partition:
    """A partition, with the values of ``scontrol show partition``."""

    values: Mapping[str, str]
    node_cpus: int  # number of CPUs of the largest node in the partition
    nodes_away: int  # number of nodes that are down, drained, reserved or do not respond

    @property
    def name(self) -> str:
        """Return the name of the partition."""
        return self.values["PartitionName"]

    @property
    def cpus_at_most(self) -> int:
        """Return the largest number of CPUs that a job can get on one node of the partition."""
        return min(self.node_cpus, self.limit("MaxCPUsPerNode") or self.node_cpus)

    def limit(self, key: str) -> int | None:
        """Return the partition's limit `key`, or None without a limit (``UNLIMITED``); ``MaxTime`` is in minutes."""
        text = self.values.get(key, "")
        if time := _TIME.fullmatch(text):
            days, hours, minutes = (int(part or 0) for part in time.groups())
            return (days * 24 + hours) * 60 + minutes
        return int(text) if text.isdecimal() else None


def find_partitions(names: str | None) -> list[Partition]:
    """Return the partitions in `names` (separated by commas), or the default partition if `names` is None.

    Return an empty list if Slurm does not answer.
    """
    key, values_of_key = ("PartitionName", names.split(",")) if names else ("Default", ["YES"])
    partition_lines = ask_for_lines("PartitionName", "scontrol", "-a", "-o", "show", "partition")
    chosen = {line["PartitionName"]: line for line in partition_lines if line.get(key) in values_of_key}
    nodes = ask_for_lines("STATE", "sinfo", "-h", "-N", "-p", ",".join(chosen), "-o", _NODE_FORMAT) if chosen else []
    partitions = []
    for name, values in chosen.items():
        own_nodes = [(int(node["CPUS"]), node["STATE"]) for node in nodes if node.get("PARTITION") == name]
        if own_nodes:
            nodes_away = sum(
                state.startswith(_AWAY_STATES) or state.endswith(_NOT_RESPONDING) for _, state in own_nodes
            )
            partitions.append(Partition(values, max(cpus for cpus, _ in own_nodes), nodes_away))
    return partitions
