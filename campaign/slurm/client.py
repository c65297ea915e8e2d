"""Run Slurm's programs in an environment without the variables of other jobs, and read the limits of partitions."""

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

# These variables hold the ids and the CPU binding of an outer job, or change the output of the clients (SQUEUE_FORMAT).
# Only the address of the cluster and its ticket (auth/jwt) are passed on.
_PREFIXES = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_TIMEOUT_S = 20.0
_PATIENCE_S = 10.0  # the total wait for unanswered questions, and then the pause until the next question
_SUBMIT_S = 60.0  # for sbatch: a busy controller is slow, and a second submission would submit the job twice
_SAY_AFTER_S = 2.0
_SBATCH_SAYS = re.compile(r"sbatch: (?:error: )?(.*)")
_JOB = re.compile(r"job (\d+)")  # "Submitted batch job 77"


class SubmissionRefusal(StrEnum):
    """The reason why sbatch did not take a script."""

    NO_ANSWER = "no_answer"  # Slurm may have taken it
    TOO_MANY_NOW = "too_many_now"  # a limit on the number of jobs
    NODES_AWAY = "nodes_away"  # also if nodes are drained for a while; sbatch itself then takes the job
    OTHER = "other"


_REFUSAL_TEXTS = {
    SubmissionRefusal.NO_ANSWER: re.compile("timed out|Unable to contact", re.IGNORECASE),
    SubmissionRefusal.TOO_MANY_NOW: re.compile("MaxSubmit|accounting/QOS policy", re.IGNORECASE),
    SubmissionRefusal.NODES_AWAY: re.compile("node configuration is not available"),
}
_UNCONFIGURED = "configuration source"  # in "Could not establish a configuration source"


def is_slurm_variable(name: str) -> bool:
    """Return whether an environment variable would change what Slurm's clients do."""
    return name.startswith(_PREFIXES) and name not in _KEPT


def clean_environment() -> dict[str, str]:
    """Return our environment without the variables that change what Slurm's clients do."""
    return {name: value for name, value in os.environ.items() if not is_slurm_variable(name)}


@dataclass
class _PatienceWithSlurm:
    """The time that we have waited since the controller's last answer."""

    waited_s: float = 0.0
    last_question_s: float = -math.inf  # when the last question ended
    is_announced: bool = False

    @property
    def left_s(self) -> float:
        """Return the seconds for which the next question may wait."""
        if time.monotonic() - self.last_question_s >= _PATIENCE_S:
            self.waited_s = 0.0
        return max(0.0, _PATIENCE_S - self.waited_s)

    def say(self, up_to_s: float) -> None:
        """Print once that we wait for the controller."""
        if not self.is_announced:
            self.is_announced = True
            console.say(f"waiting up to {up_to_s:.0f} s for Slurm's controller …")


_patience = _PatienceWithSlurm()


def has_given_up() -> bool:
    """Return whether the controller has been silent for so long that it is not asked for a while."""
    return _patience.left_s <= 0


def ask_slurm(*words: str, patient: bool = False) -> str | None:
    """Run a client and return its output; None if it is missing, fails or does not answer in time.

    Unanswered questions in a row wait 10 s together; then no question is asked for 10 s. A `patient` question waits up
    to 20 s, whatever the others waited.
    """
    try:
        process = _run_client(*words) if patient else _ask_within_patience(*words)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if process.returncode else process.stdout


def _ask_within_patience(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a client in the seconds that the questions in a row may still wait."""
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
    """Return the values of the words ``KEY=VALUE`` by key, for each line of a client's output that has `key`.

    The first word of a key counts, because paths and comments further back in the line may hold any text.
    """
    text = ask_slurm(*words, patient=patient) or ""
    pairs = ([word.partition("=") for word in reversed(line.split())] for line in text.splitlines())
    values = ({name: value for name, _, value in line} for line in pairs)
    return [line for line in values if key in line]


class RefusedError(Exception):
    """Raised if sbatch did not take a script; `refusal` says why, the text has sbatch's message."""

    def __init__(self, words: str, refusal: SubmissionRefusal | None = None) -> None:
        super().__init__(words)
        refusals = (code for code, pattern in _REFUSAL_TEXTS.items() if pattern.search(words))
        self.refusal = refusal or next(refusals, SubmissionRefusal.OTHER)


class SubmissionAnswer(NamedTuple):
    """The output of sbatch, and its messages; `refusal` is None if sbatch accepted the script."""

    refusal: SubmissionRefusal | None
    printed: str
    words: str

    @property
    def is_accepted(self) -> bool | None:
        """Return whether sbatch accepted the script; None if that is unknown."""
        return None if self.refusal == SubmissionRefusal.NO_ANSWER else self.refusal is None


def submit_script(script: Path) -> str:
    """Submit a batch script with ``sbatch`` and return the job id; raises RefusedError."""
    answer = call_sbatch(str(script))
    job = _JOB.search(answer.printed)
    if answer.refusal or job is None:
        raise RefusedError(answer.words or f"sbatch printed '{answer.printed}'", answer.refusal)
    return job[1]


def call_sbatch(*words: str, script: str | None = None) -> SubmissionAnswer:
    """Call ``sbatch`` and return its answer, which may take a minute; `script` is its input if no file is named."""
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
    """Print that we wait for Slurm, and how long at most, if the code inside takes long."""
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
    """Return whether this machine submits to a Slurm cluster: it has ``sbatch``, and sbatch is configured.

    True also if the controller is down: a campaign must not fall back to the login node.
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
    """The output of ``scontrol show config``; its text is empty if the controller does not answer."""

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
        """Return whether ``sacct`` can answer."""
        kind = self._values.get("AccountingStorageType", "unknown")
        return not kind.endswith("/none") and kind != "(null)" and shutil.which("sacct") is not None

    @property
    def completion_log(self) -> Path | None:
        """Return the path of the log of ended jobs, if the site keeps one as text."""
        if self._values.get("JobCompType") != "jobcomp/filetxt":
            return None
        return Path(self._values.get("JobCompLoc", "/var/log/slurm_jobcomp.log"))

    @property
    def remembers_s(self) -> int:
        """Return the seconds for which the controller lists a job after its end (``MinJobAge``, 300 by default)."""
        return int(self._values.get("MinJobAge", "300").partition(" ")[0])

    @property
    def tasks_at_most(self) -> int:
        """Return the most tasks of one array: ``MaxArraySize`` limits the index, and indices start at 0."""
        return max(1, int(self._values.get("MaxArraySize", "1001")))


def read_facts() -> SlurmConfig:
    """Ask the controller for the configuration of its cluster."""
    return SlurmConfig(ask_slurm("scontrol", "show", "config") or "")


_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+):\d+")
# States of nodes that run nothing now, but may later (sinfo(1), NODE STATE CODES).
_AWAY_STATES = ("down", "drain", "fail", "maint", "reserved", "unk", "inval")
_NOT_RESPONDING = "*"
_NODE_FORMAT = "PARTITION=%R CPUS=%c STATE=%T"


@dataclass(frozen=True)
class Partition:
    """A partition, with the values of ``scontrol show partition``."""

    values: Mapping[str, str]
    node_cpus: int  # CPUs of its largest node
    nodes_away: int  # nodes that are down, drained, reserved or do not respond

    @property
    def name(self) -> str:
        """Return the name of the partition."""
        return self.values["PartitionName"]

    @property
    def cpus_at_most(self) -> int:
        """Return the most CPUs that a job may have on one node."""
        return min(self.node_cpus, self.limit("MaxCPUsPerNode") or self.node_cpus)

    def limit(self, key: str) -> int | None:
        """Return a limit, a time (``MaxTime``) in minutes; None if there is none (``UNLIMITED``)."""
        text = self.values.get(key, "")
        if time := _TIME.fullmatch(text):
            days, hours, minutes = (int(part or 0) for part in time.groups())
            return (days * 24 + hours) * 60 + minutes
        return int(text) if text.isdecimal() else None


def find_partitions(names: str | None) -> list[Partition]:
    """Return the partitions with these names (separated by commas), or the default one; none if Slurm is silent."""
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
