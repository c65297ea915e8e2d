"""The worker's side of the template process that has TensorFlow imported (`jobs.fork_server`)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypedDict

from campaign.errors import EnvironmentFaultError
from jobs.model.codes import OF_OTHERS, End, RunEnd
from jobs.model.results import Run
from jobs.system import files
from jobs.system.programs import python

_TAIL_LINES, _TAIL_BYTES = 15, 1 << 16
_JOB = "jobs.run:execute"
_PRELOAD = ("jobs.run", "tensorflow", "jobs.benchmarks.first_use:before_fork")


class _Answer(TypedDict):
    """How a run ended (`jobs.fork_server`)."""

    result: Run | None
    exit: int | None
    signal: int | None
    timed_out: bool
    left_alone: bool
    elapsed_s: float


class Outcome(NamedTuple):
    """How one rank of a run ended, and after how many seconds; `alone`: only because another one had failed."""

    run: Run
    ended_s: float
    alone: bool = False


class Template:
    """A process that runs each request in a fresh fork of itself; started when first needed, and again if it dies.

    The `log` takes what it prints itself; `preload` are the modules that it imports before the first fork.
    """

    def __init__(self, log: Path, preload: tuple[str, ...] = _PRELOAD) -> None:
        self._log = log
        self._preload = preload
        self._process: subprocess.Popen[str] | None = None
        self.was_stopped = False
        """Whether the last run was ended by `stop`."""

    def run(self, argument: Mapping[str, Any], log: Path, timeout_s: float, job: str = _JOB) -> Run:
        """Run one request and return its figures, or ``{"status": "failed", "end", "log_tail"}``."""
        return self.run_together([argument], [log], timeout_s, job)[0].run

    def run_together(
        self, arguments: Sequence[Mapping[str, Any]], logs: Sequence[Path], timeout_s: float, job: str = _JOB
    ) -> list[Outcome]:
        """Run several requests at once, the ranks of one run: where one fails, so do the others."""
        request = {"job": job, "arguments": arguments, "logs": [str(log) for log in logs], "timeout_s": timeout_s}
        ends = zip_longest(self._ask(request) or (), logs)
        return [_outcome(answer, self._run_of(answer, timeout_s, log)) for answer, log in ends]

    def _run_of(self, answer: _Answer | None, timeout_s: float, log: Path) -> Run:
        if answer is None:
            self.close()
            return {"status": "failed", "end": {"code": RunEnd.TEMPLATE_KILLED}, "log_tail": tail(log)}
        if answer["result"] is not None:
            said: Run = {"log_tail": tail(log)} if answer["result"].get("status") == "failed" else {}
            return {**answer["result"], **said, "elapsed_s_with_fork": answer["elapsed_s"]}
        return {"status": "failed", "end": _end_of(answer, timeout_s, log), "log_tail": tail(log)}

    def stop(self) -> None:
        """End the run under way in another thread, and the template with it."""
        if self._process is not None:
            self.was_stopped = True
            self._process.kill()

    def close(self) -> None:
        """End the template and a run that may be under way; a later `run` starts it again."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _ask(self, request: Mapping[str, Any]) -> list[_Answer] | None:
        process: Any = self.start()  # its pipes are there
        self.was_stopped = False
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        line = process.stdout.readline()
        answers: list[_Answer] | None = json.loads(line) if line else None  # of a process of ours
        return answers

    def start(self) -> subprocess.Popen[str]:
        """Start the template unless it is there; returns when TensorFlow is imported."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            with self._open_log() as log:
                self._process = subprocess.Popen(
                    python("-m", "jobs.fork_server", *self._preload),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env={"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ},
                )
            if not self._process.stdout or not self._process.stdout.readline():
                self.close()
                raise EnvironmentFaultError(
                    f"TensorFlow cannot be imported: {tail(self._log, 1)}",
                    f"run `python -m campaign doctor`; the full log is {self._log}",
                )
        return self._process

    def _open_log(self) -> TextIO:
        """Open the log or, on a full or read-only disk, what takes any words: a job waits there with its records."""
        try:
            return os.fdopen(files.begin(self._log), "w", encoding="utf-8")
        except OSError:
            return Path(os.devnull).open("w", encoding="utf-8")


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a log; empty where there is none."""
    try:
        with open(files.opened(log), "rb") as file:  # noqa: PTH123 - a descriptor
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            said = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(said.splitlines()[-lines:]).strip()


def _outcome(answer: _Answer | None, run: Run) -> Outcome:
    return Outcome(run, answer["elapsed_s"] if answer else 0.0, is_of_others(run))


def is_of_others(run: Run) -> bool:
    """Return whether a rank's run failed only because another one had."""
    return "end" in run and run["end"]["code"] in OF_OTHERS


def _end_of(answer: _Answer, timeout_s: float, log: Path) -> End:
    """Return why a run has no figures; what it last wrote is the error's own words."""
    if answer["left_alone"]:
        return {"code": RunEnd.RANK_FAILED}
    if answer["exit"] is None and answer["signal"] is None:
        return {"code": RunEnd.UNKILLABLE, "seconds": timeout_s}
    if answer["timed_out"]:
        return {"code": RunEnd.TIMED_OUT, "seconds": timeout_s}
    if answer["signal"] is not None:
        return {"code": RunEnd.KILLED, "number": answer["signal"]}
    return {"code": RunEnd.EXITED, "number": answer["exit"] or 0, "words": tail(log, 1)}
