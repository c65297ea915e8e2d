"""Execute runs, with one or more ranks, in forks of a process that has imported TensorFlow (`jobs.fork_server`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypedDict, cast

from campaign.errors import EnvironmentFaultError
from campaign.storage.roots import path_on_rank
from jobs.benchmarks import registry
from jobs.benchmarks.benchmark import Benchmark
from jobs.channel import Channel, ClosedError
from jobs.model.codes import CAUSED_BY_OTHER_RANK, OUT_OF_TIME, End, RunEnd
from jobs.model.conduct import Conduct
from jobs.model.results import Run
from jobs.model.work import RankRequest, RunRequest, WorkList
from jobs.ranks import file_of_rank
from jobs.ranks.hub import Hub, combine_ranks
from jobs.ranks.peers import new_secret
from jobs.system import files
from jobs.system.programs import python_command

_TAIL_LINES, _TAIL_BYTES = 15, 1 << 16
_IMPORT_S = 600.0  # timeout for the imports, for example of TensorFlow from a slow storage
MARGIN_S = 60.0  # the end of a run must be reported within this time after the run's time limit
_JOB = "jobs.run:execute"
_PRELOAD = ("jobs.run", *Benchmark.imports)


class _Answer(TypedDict):
    """The fork server's report on the end of a run (`jobs.fork_server`)."""

    result: Run | None
    exit: int | None
    signal: int | None
    timed_out: bool
    left_alone: bool
    elapsed_s: float


class RankOutcome(NamedTuple):
    """The outcome of one rank of a run."""

    run: Run
    ended_s: float  # time at which the rank ended, in seconds since the start of the run
    failed_with_another: bool = False  # whether the rank failed only because another rank had failed


class Template:
    """The template process: a fork server (`jobs.fork_server`), which executes each request in a new fork of itself.

    The process starts at its first use, and starts again if it has died. `log` is the file for the output of the
    template process. `preload` are the modules that it imports before the first fork (`modules_to_preload`).
    """

    def __init__(self, log: Path, preload: tuple[str, ...] = _PRELOAD) -> None:
        self._log = log
        self._preload = preload
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._begun: tuple[Sequence[Path], float] = ((), 0.0)
        self.was_stopped = False
        """Whether the method `stop` has ended the last run."""

    def run(self, argument: Mapping[str, Any], log: Path, timeout_s: float, job: str = _JOB) -> Run:
        """Execute one request and return its metrics, or ``{"status": "failed", "end", "log_tail"}``."""
        return self.run_together([argument], [log], timeout_s, job)[0].run

    def run_together(
        self, arguments: Sequence[Mapping[str, Any]], logs: Sequence[Path], timeout_s: float, job: str = _JOB
    ) -> list[RankOutcome]:
        """Execute one request for each rank of a run at the same time; if one rank fails, all ranks fail."""
        self.begin(arguments, logs, timeout_s, job)
        return self.outcomes()

    def begin(
        self, arguments: Sequence[Mapping[str, Any]], logs: Sequence[Path], timeout_s: float, job: str = _JOB
    ) -> Channel:
        """Send several requests to the template process, and return the channel on which the answers will come."""
        self._channel, self.was_stopped = self.start(), False
        self._begun = logs, timeout_s
        request = {"job": job, "arguments": arguments, "logs": [str(log) for log in logs], "timeout_s": timeout_s}
        with suppress(ClosedError, TimeoutError):  # the method `outcomes` reports the error
            self._channel.send(request)
        return self._channel

    def outcomes(self) -> list[RankOutcome]:
        """Wait until the requests of `begin` have ended, and return their outcomes.

        If the template process does not answer within the time limit and 60 s more, kill it.
        """
        logs, timeout_s = self._begun
        end: End = {"code": RunEnd.TEMPLATE_KILLED}
        answers: list[_Answer] = []
        try:
            if self._channel:
                answers = [cast("_Answer", self._channel.receive(timeout_s + MARGIN_S).value) for _ in logs]
        except TimeoutError:
            end = {"code": RunEnd.TEMPLATE_SILENT, "seconds": MARGIN_S}
            self.close()
        except ClosedError:
            self.close()
        lost_run: Run = {"status": "failed", "end": end}
        if not answers:
            return [RankOutcome({**lost_run, "log_tail": last_lines(log)}, 0.0) for log in logs]
        return [_outcome(answer, timeout_s, log) for answer, log in zip(answers, logs, strict=True)]

    def stop(self) -> None:
        """Kill the template process and its run; this may be called while another thread waits for the run."""
        if self._process is not None:
            self.was_stopped = True
            self._process.kill()

    def close(self) -> None:
        """End the template process and its present run; a later call of `run` starts the process again."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._channel = None

    def start(self) -> Channel:
        """Start the template process if it does not run, wait for its imports, and return the channel to it.

        Raises
        ------
        EnvironmentFaultError
            A module cannot be imported, or the import takes too long. The message has the last line of the log.
        """
        if self._process is not None and self._channel is not None and self._process.poll() is None:
            return self._channel
        self.close()
        (receives, answers), (requests, sends) = os.pipe(), os.pipe()
        with self._open_log() as log:
            self._process = subprocess.Popen(
                python_command("-m", "jobs.fork_server", *self._preload),
                stdin=requests,
                stdout=answers,
                stderr=log,
                env={"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ},
            )
        os.close(requests)
        os.close(answers)
        self._channel = Channel(receives, sends)
        try:
            self._channel.receive(_IMPORT_S)
        except (ClosedError, TimeoutError) as error:
            self.close()
            raise EnvironmentFaultError(
                f"a module that the runs need cannot be imported: {last_lines(self._log, 1)}",
                f"run `python -m campaign doctor`; the full log is {self._log}",
            ) from error
        return self._channel

    def _open_log(self) -> TextIO:
        """Open the log for writing; if the disk is full or read-only, open the null device instead."""
        try:
            return os.fdopen(files.open_new(self._log), "w", encoding="utf-8")
        except OSError:
            return Path(os.devnull).open("w", encoding="utf-8")


def modules_to_preload(work: WorkList) -> tuple[str, ...]:
    """Return the modules that the runs of a work list need; TensorFlow is among them only if a run uses it."""
    return ("jobs.run", *registry.imports_of(item["settings"] for item in work["cells"]))


def last_lines(log: Path, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a log, or an empty text if the log cannot be read."""
    try:
        with open(files.open_file(log), "rb") as file:  # noqa: PTH123 - a descriptor
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:]).strip()


def _outcome(answer: _Answer, timeout_s: float, log: Path) -> RankOutcome:
    if (run := answer["result"]) is None:
        run = {"status": "failed", "end": _end_of_run(answer, timeout_s, log)}
    if run.get("status") == "failed":
        run = {**run, "log_tail": last_lines(log)}
    if answer["result"] is not None:
        run = {**run, "elapsed_s_with_fork": answer["elapsed_s"]}
    return RankOutcome(run, answer["elapsed_s"], failed_with_another(run))


def failed_with_another(run: Run) -> bool:
    """Return whether a rank's run failed only because another rank had failed."""
    return "end" in run and run["end"]["code"] in CAUSED_BY_OTHER_RANK


def _end_of_run(answer: _Answer, timeout_s: float, log: Path) -> End:
    """Return how a run without metrics ended; if the run exited by itself, add the last line of its log."""
    if answer["left_alone"]:
        return {"code": RunEnd.RANK_FAILED}
    if answer["exit"] is None and answer["signal"] is None:
        return {"code": RunEnd.UNKILLABLE, "seconds": timeout_s}
    if answer["timed_out"]:
        return {"code": RunEnd.TIMED_OUT, "seconds": timeout_s}
    if answer["signal"] is not None:
        return {"code": RunEnd.KILLED, "number": answer["signal"]}
    return {"code": RunEnd.EXITED, "number": answer["exit"] or 0, "words": last_lines(log, 1)}


class RanksOfRun(NamedTuple):
    """The ranks of a run: either all ranks on this machine, or one rank per node."""

    # The address of each rank's node, at which the other ranks reach it. The hub has the address of the first rank.
    addresses: Sequence[str]
    hub_secret: str  # secret that only the ranks have, with which they connect to the hub
    run_ranks: Callable[[Sequence[RunRequest], Sequence[Path], float], list[RankOutcome]]  # executes a request per rank


def local_ranks(template: Template, size: int) -> RanksOfRun:
    """Return `size` ranks that all run on this machine, as forks of one template process."""
    return RanksOfRun(["127.0.0.1"] * size, new_secret(), template.run_together)


def run_on_ranks(ranks: RanksOfRun, request: RunRequest, log: Path, conduct: Conduct) -> Run:
    """Execute a request on all ranks; return the combined metrics, or the run of the rank that failed first."""
    size = len(ranks.addresses)
    logs = [file_of_rank(log, rank) for rank in range(size)]
    hub = Hub(size, conduct["ranks_timeout_s"], ranks.addresses[0], ranks.hub_secret)
    try:
        requests = [_request_of_rank(request, rank, ranks, hub) for rank in range(size)]
        outcomes = ranks.run_ranks(requests, logs, conduct["run_timeout_s"])
    finally:
        hub.close()
    if any(_has_failed(outcome.run) for outcome in outcomes):
        return _first_failure(outcomes, logs, hub.late)
    metrics = combine_ranks(
        [outcome.run for outcome in outcomes],
        hub.observations,
        registry.benchmark_of(request["settings"]).combined_metrics,
    )
    took_s = max(outcome.ended_s for outcome in outcomes)
    return {**metrics, "status": "ended", "elapsed_s_with_fork": took_s}


def _request_of_rank(request: RunRequest, rank: int, ranks: RanksOfRun, hub: Hub) -> RunRequest:
    """Return the request of one rank; each rank has its own output files, and only the first rank saves snapshots."""
    rank_request: RankRequest = {
        "rank": rank,
        "size": hub.size,
        "sync": request["settings"]["sync"],
        "hub": ranks.addresses[0],
        "port": hub.port,
        "secret": hub.secret,
        "address": ranks.addresses[rank],
        "timeout_s": hub.timeout_s,
    }
    request_of_rank: RunRequest = {**request, "rank": rank_request}
    request_of_rank["dataset"] = path_on_rank(request["dataset"], request["settings"]["storage"], rank)
    if rank:
        request_of_rank["checkpoint"] = None
    if trace := request_of_rank["trace"]:
        request_of_rank["trace"] = {**trace, "file": str(file_of_rank(Path(trace["file"]), rank))}
    paths = cast("dict[str, Any]", request_of_rank)
    for name in ("profile", "tensorflow", "steps"):
        if file := paths.get(name):
            paths[name] = str(file_of_rank(Path(file), rank))
    return request_of_rank


def _has_failed(run: Run) -> bool:
    return run.get("status") == "failed"


def _first_failure(outcomes: Sequence[RankOutcome], logs: Sequence[Path], late: str) -> Run:
    """Return the run of the rank that failed first and not because of another rank; `late` names the late ranks."""
    failed_ranks = [rank for rank, outcome in enumerate(outcomes) if _has_failed(outcome.run)]
    rank = min(failed_ranks, key=lambda rank: (outcomes[rank].failed_with_another, outcomes[rank].ended_s))
    run = outcomes[rank].run
    end = run["end"]
    late_ranks = {"late": late} if end["code"] in OUT_OF_TIME else {}
    return cast("Run", {**run, "end": {**end, "rank": rank, **late_ranks}, "log": logs[rank].name})
