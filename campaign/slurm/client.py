"""Slurm's own programs, called with an environment that no other job has left its traces in."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from campaign import console
from jobs.system import programs

# A job started inside a job inherits the outer one's ids and CPU binding; SQUEUE_FORMAT and its like change what the
# clients print. Only where the cluster is stays, and the ticket to it (auth/jwt).
_PREFIXES = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_TIMEOUT_S = 20.0
_PATIENCE_S = 10.0  # with all questions to which no answer comes; and until it is worth asking again
_SUBMIT_S = 60.0  # for sbatch: a busy controller takes long, and a job that it took late is not asked for twice
_SAY_AFTER_S = 2.0
_SBATCH_SAYS = re.compile(r"sbatch: (?:error: )?(.*)")
_JOB = re.compile(r"job (\d+)")  # "Submitted batch job 77"


class Refusal(StrEnum):
    """Why sbatch did not take a script."""

    NO_ANSWER = "no_answer"  # Slurm may have taken it
    TOO_MANY_NOW = "too_many_now"  # a limit on how many jobs there are
    NODES_AWAY = "nodes_away"  # also said of nodes that are drained for a while; sbatch then takes the job
    OTHER = "other"


_SAID_OF = {
    Refusal.NO_ANSWER: re.compile("timed out|Unable to contact", re.IGNORECASE),
    Refusal.TOO_MANY_NOW: re.compile("MaxSubmit|accounting/QOS policy", re.IGNORECASE),
    Refusal.NODES_AWAY: re.compile("node configuration is not available"),
}
_UNCONFIGURED = "configuration source"  # of "Could not establish a configuration source"


def is_traced(name: str) -> bool:
    """Return whether an environment variable would steer Slurm's clients."""
    return name.startswith(_PREFIXES) and name not in _KEPT


def environment() -> dict[str, str]:
    """Return our environment without such variables."""
    return {name: value for name, value in os.environ.items() if not is_traced(name)}


@dataclass
class _Silence:
    """How long we have waited since the last answer, in all."""

    waited_s: float = 0.0
    asked: float = -math.inf  # when a question ended last
    said: bool = False

    @property
    def left_s(self) -> float:
        """Seconds for which the next question may wait."""
        if time.monotonic() - self.asked >= _PATIENCE_S:
            self.waited_s = 0.0
        return max(0.0, _PATIENCE_S - self.waited_s)

    def say(self, up_to_s: float) -> None:
        """Say once what is waited for."""
        if not self.said:
            self.said = True
            console.say(f"waiting up to {up_to_s:.0f} s for Slurm's controller …")


_silence = _Silence()


def given_up() -> bool:
    """Return whether the controller has been silent for so long that it is not asked for a while."""
    return _silence.left_s <= 0


def ask(*words: str, patient: bool = False) -> str | None:
    """Run a client and return what it prints; None where it is missing, fails or does not answer in time.

    All questions in a row to which no answer comes wait 10 s together, and then none is asked for 10 s; one that is
    `patient` waits for itself.
    """
    try:
        done = _run(*words) if patient else _asked(*words)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout


def _asked(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a client within what is left of our patience."""
    started, left_s = time.monotonic(), _silence.left_s
    if not left_s:
        raise subprocess.TimeoutExpired(words, 0)
    answered = False
    try:
        with _heralded(_PATIENCE_S):
            done = _run(*words, timeout_s=left_s)
        answered = done.returncode == 0
        return done
    finally:
        now = time.monotonic()
        _silence.waited_s = 0.0 if answered else _silence.waited_s + now - started
        _silence.asked = now
        _silence.said &= not answered


def lines(key: str, *words: str, patient: bool = False) -> list[dict[str, str]]:
    """Ask as `ask`, and return the words ``KEY=VALUE`` of each line of the answer that has a `key`, by their keys.

    Of several words of one key the first counts: behind them stand paths and comments, which may hold anything.
    """
    text = ask(*words, patient=patient) or ""
    pairs = ([word.partition("=") for word in reversed(line.split())] for line in text.splitlines())
    values = ({name: value for name, _, value in line} for line in pairs)
    return [each for each in values if key in each]


class RefusedError(Exception):
    """sbatch did not take a script; `refusal` says why, the text what sbatch says."""

    def __init__(self, words: str, refusal: Refusal | None = None) -> None:
        super().__init__(words)
        said = (each for each, pattern in _SAID_OF.items() if pattern.search(words))
        self.refusal = refusal or next(said, Refusal.OTHER)


class Answer(NamedTuple):
    """What sbatch printed, and its messages; `refusal` is None where it took the script."""

    refusal: Refusal | None
    printed: str
    words: str

    @property
    def took(self) -> bool | None:
        """Whether it took the script; None where nobody knows."""
        return None if self.refusal == Refusal.NO_ANSWER else self.refusal is None


def submit(script: Path) -> str:
    """Hand a batch script to ``sbatch`` and return the job id; raises RefusedError."""
    answer = sbatch(str(script))
    job = _JOB.search(answer.printed)
    if answer.refusal or job is None:
        raise RefusedError(answer.words or f"sbatch printed '{answer.printed}'", answer.refusal)
    return job[1]


def sbatch(*words: str, script: str | None = None) -> Answer:
    """Call ``sbatch``, which has a minute to answer and reads the `script` where no file is named."""
    try:
        with _heralded(_SUBMIT_S):
            done = _run("sbatch", *words, timeout_s=_SUBMIT_S, text=script)
    except subprocess.TimeoutExpired:
        return Answer(Refusal.NO_ANSWER, "", f"sbatch timed out after {_SUBMIT_S:.0f} s")
    except OSError as error:
        return Answer(Refusal.NO_ANSWER, "", f"sbatch does not answer: {error}")
    said = "; ".join(_SBATCH_SAYS.findall(done.stderr)) or " ".join(done.stderr.split())
    return Answer(RefusedError(said).refusal if done.returncode else None, done.stdout, said)


@contextmanager
def _heralded(up_to_s: float) -> Iterator[None]:
    """Say that we wait for Slurm, where it takes long, and up to when."""
    herald = threading.Timer(_SAY_AFTER_S, _silence.say, [up_to_s])
    herald.start()
    try:
        yield
    finally:
        herald.cancel()


def _run(*words: str, timeout_s: float = _TIMEOUT_S, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return programs.run(words, environment(), timeout=timeout_s, text=text)


def found() -> bool:
    """Return whether this machine submits to a Slurm cluster: ``sbatch`` is there and knows where its cluster is.

    A controller that is down is a cluster all the same: a campaign must not fall back to the login node.
    """
    if shutil.which("sbatch") is None:
        return False
    try:
        done = _asked("sinfo", "-h", "-o", "%P")
    except (subprocess.TimeoutExpired, OSError):  # a controller that hangs; no sinfo to ask with
        return True
    return done.returncode == 0 or _UNCONFIGURED not in done.stderr


@dataclass(frozen=True)
class Facts:
    """What ``scontrol show config`` says; its text is empty where it does not answer."""

    text: str

    @cached_property
    def _values(self) -> dict[str, str]:
        pairs = (line.split("=", 1) for line in self.text.splitlines() if "=" in line)
        return {key.strip(): value.strip() for key, value in pairs}

    @property
    def version(self) -> str:
        """Version of Slurm, or ``unknown``."""
        return self._values.get("SLURM_VERSION", "unknown")

    @property
    def cluster(self) -> str:
        """Name of the cluster, or ``unknown``."""
        return self._values.get("ClusterName", "unknown")

    @property
    def accounting(self) -> bool:
        """Whether ``sacct`` is worth a question."""
        kind = self._values.get("AccountingStorageType", "unknown")
        return not kind.endswith("/none") and kind != "(null)" and shutil.which("sacct") is not None

    @property
    def completion_log(self) -> Path | None:
        """The log of ended jobs, where the site keeps one as text."""
        if self._values.get("JobCompType") != "jobcomp/filetxt":
            return None
        return Path(self._values.get("JobCompLoc", "/var/log/slurm_jobcomp.log"))

    @property
    def remembers_s(self) -> int:
        """Seconds for which the controller lists a job after its end (``MinJobAge``, 300 by default)."""
        return int(self._values.get("MinJobAge", "300").partition(" ")[0])

    @property
    def tasks_at_most(self) -> int:
        """Number of tasks of one array: ``MaxArraySize`` caps the index, and indices start at 0."""
        return max(1, int(self._values.get("MaxArraySize", "1001")))


def facts() -> Facts:
    """Ask once what cluster this is."""
    return Facts(ask("scontrol", "show", "config") or "")
