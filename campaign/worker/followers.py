"""The ranks of a Slurm job: the first one's worker leads, the others follow it, each on a node of its own.

`srun` starts the same command on each node. The first leaves a file beside its work list that says where it listens;
the others find it there, show the secret that it holds, and do what they are told until the first one has gone::

    {"do": "run", "request", "log", "timeout_s"}  ->  {"run", "ended_s"}
    {"do": "lock", "path"}, {"do": "unlock"}      ->  {}
    {"do": "data", "item"}                        ->  {"data"} or {"error", "hint"}
"""

from __future__ import annotations

import hmac
import os
import select
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from campaign.cells.folder import CampaignFolder
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from campaign.slurm import job
from campaign.storage import locks
from campaign.worker import session
from campaign.worker.runner import Outcome, Template
from jobs.ranks.rank import boot
from jobs.ranks.wire import ClosedError, Line
from jobs.system import versioned
from jobs.system.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from campaign.cells.contract import Data, ListedItem, WorkList
    from jobs.figures import Run
    from jobs.request import Request

_LOOK_S, _WATCH_S = 0.2, 0.2
_HELLO_S = 10.0
_GRACE_S = 5.0  # in which ranks end by themselves when another one has failed
_MARGIN_S = 60.0  # beyond the limit of a run, for its end to be told
_STOPPED: Run = {"status": "failed", "reason": "ended, because another rank had failed"}


class RankLostError(Exception):
    """A rank's node, or what serves it there, has gone."""


class _Meeting(TypedDict):
    job: str
    restarts: int
    address: str
    port: int
    secret: str


def rank_here() -> int:
    """Return the rank of this process in its Slurm step."""
    return int(os.environ.get("SLURM_PROCID", "0"))


def _file(work_list: Path) -> Path:
    return work_list.with_suffix(".ranks.json")


@dataclass
class _Follower:
    line: Line
    rank: int
    node: str
    address: str
    boot: str
    outcome: Outcome | None = None
    lost: bool = False

    def ask(self, value: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Tell it something and return its answer. Raises RankLostError."""
        try:
            self.line.send(value)
            return self.line.receive(seconds)
        except (ClosedError, TimeoutError) as error:
            raise RankLostError(f"rank {self.rank} on {self.node} is lost: {error}") from error

    def run(self, request: Request, log: Path, timeout_s: float) -> None:
        """Let it run a request, and keep how that ended."""
        try:
            told = {"do": "run", "request": request, "log": str(log), "timeout_s": timeout_s}
            answer = self.ask(told, timeout_s + _MARGIN_S)
            self.outcome = Outcome(answer["run"], answer["ended_s"], bool(answer["run"].get("left_alone")))
        except RankLostError as error:
            self.lost, self.outcome = True, Outcome({"status": "failed", "reason": str(error)}, 0.0)


class Leader:
    """The first rank's side: the other ranks of the job, who come within `timeout_s` of the first question."""

    listens_on = ""

    def __init__(self, template: Template, work_list: Path, size: int, timeout_s: float) -> None:
        self._template, self._size, self._timeout_s = template, size, timeout_s
        self._file = _file(work_list)
        self._followers: list[_Follower] = []
        self.addresses: list[str] = []

    def gather(self) -> None:
        """Wait for all ranks of the job. Raises EnvironmentFaultError where one does not come."""
        if self.addresses:
            return
        mine, secret = job.node_address(), os.urandom(16).hex()
        with socket.create_server((self.listens_on, 0), backlog=4 * self._size) as listener:
            self._say(mine, listener.getsockname()[1], secret)
            deadline = time.monotonic() + self._timeout_s
            while len(self._followers) < self._size - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    self._welcome(listener.accept()[0], secret)
                except TimeoutError:
                    raise self._missing() from None
        self._followers.sort(key=lambda each: each.rank)
        self.addresses = [mine, *(each.address for each in self._followers)]

    def _say(self, address: str, port: int, secret: str) -> None:
        write_json(self._file, {**_this_start(), "address": address, "port": port, "secret": secret})

    def close(self) -> None:
        """Let the others go, those too that are still to come."""
        for each in self._followers:
            each.line.close()
        if not self.addresses:
            with suppress(OSError):
                self._say("", 0, "")

    def _welcome(self, connection: socket.socket, secret: str) -> None:
        line = Line(connection, longest=1 << 12)
        try:
            said = line.receive(_HELLO_S)
            known = hmac.compare_digest(str(said["secret"]), secret)
            rank = int(said["rank"])
            if known and 0 < rank < self._size and rank not in [each.rank for each in self._followers]:
                node, address, kernel = (str(said[key]) for key in ("node", "address", "boot"))
                self._followers.append(_Follower(line, rank, node, address, kernel))
                line.longest = 1 << 24
                return
        except (OSError, KeyError, ValueError):
            pass
        line.close()

    def _missing(self) -> EnvironmentFaultError:
        here = {each.rank for each in self._followers}
        missing = ", ".join(str(rank) for rank in range(1, self._size) if rank not in here)
        return EnvironmentFaultError(
            f"rank {missing} of the job did not start within {self._timeout_s:g} s",
            "see the log of its node in the batch's folder; ranks_timeout_s=… waits longer",
        )

    def run(self, requests: Sequence[Request], logs: Sequence[Path], timeout_s: float) -> list[Outcome]:
        """Run one request on each node. Raises RankLostError where one of them has gone."""
        over = threading.Event()
        for each in self._followers:
            each.outcome = None
        threads = [
            threading.Thread(target=each.run, args=(requests[each.rank], logs[each.rank], timeout_s), daemon=True)
            for each in self._followers
        ]
        watcher = threading.Thread(target=self._watch, args=(over,), daemon=True)
        for thread in (*threads, watcher):
            thread.start()
        began = time.perf_counter()
        own = self._template.run(requests[0], logs[0], timeout_s)
        first = Outcome(own, time.perf_counter() - began, bool(own.get("left_alone")) or self._template.was_stopped)
        over.set()
        self._end(threads, failed=own.get("status") == "failed")
        if lost := next((each for each in self._followers if each.lost), None):
            raise RankLostError(str(lost.outcome.run["reason"]) if lost.outcome else f"rank {lost.rank} is lost")
        return [first, *(each.outcome or Outcome(_STOPPED, 0.0, alone=True) for each in self._followers)]

    def _watch(self, over: threading.Event) -> None:
        """Stop the own rank, after a while, when another one has failed: it cannot go on without it."""
        while not over.wait(_WATCH_S):
            if any(each.outcome and each.outcome.run.get("status") == "failed" for each in self._followers):
                if not over.wait(_GRACE_S):
                    self._template.stop()
                return

    def _end(self, threads: Sequence[threading.Thread], *, failed: bool) -> None:
        """Wait for the other ranks; where one has failed, stop those that do not end by themselves."""
        deadline = time.monotonic() + (_GRACE_S if failed else _MARGIN_S)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for each, thread in zip(self._followers, threads, strict=True):
            if thread.is_alive():
                with suppress(ClosedError):
                    each.line.send({"do": "stop"})
                thread.join(_MARGIN_S)
                each.lost = each.lost or thread.is_alive()
                each.outcome = each.outcome and each.outcome._replace(run=_STOPPED, alone=True)

    @contextmanager
    def holding(self, lock: Path) -> Iterator[None]:
        """Hold each node's own storage, too: in the order of ranks, so that two jobs never wait for each other."""
        held, known = [], {boot()}
        try:
            for each in self._followers:
                if each.boot not in known:
                    known.add(each.boot)
                    each.ask({"do": "lock", "path": str(lock)})
                    held.append(each)
            yield
        finally:
            for each in held:
                with suppress(RankLostError):
                    each.ask({"do": "unlock"}, _HELLO_S)

    def make_data(self, item: ListedItem, data: Data) -> None:
        """Let each node make what only it can: the data on its own storage; UsageError where it is another's."""
        for each in self._followers:
            answer = each.ask({"do": "data", "item": item})
            if "error" in answer:
                raise UsageError(f"rank {each.rank} on {each.node}: {answer['error']}", answer["hint"])
            if answer["data"].get("checksum") != data.get("checksum"):
                raise UsageError(f"rank {each.rank} on {each.node} has other data", "remove the dataset there")


def _this_start() -> Any:
    return {"job": os.environ.get("SLURM_JOB_ID", ""), "restarts": job.restarts()}


def follow(path: Path, work: WorkList) -> int:
    """Serve the first rank of this job until it has gone, or for as long as ranks wait for it to come; returns 0."""
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the first rank writes down what they mean, and goes
    serve(path, work, rank_here(), Template(path.with_suffix(f".rank{rank_here()}.template.log")))
    return 0


def serve(path: Path, work: WorkList, rank: int, template: Template) -> None:
    """Do as `follow`, with the signals as they are."""
    try:
        template.start()
        where = _found(_file(path), work["conduct"]["ranks_timeout_s"])
        if not where["port"]:  # it has gone already
            return
        hello = {"secret": where["secret"], "rank": rank, "boot": boot(), "address": job.node_address()}
        with closing(Line.to(where["address"], where["port"], _HELLO_S)) as line, ExitStack() as held:
            line.send({**hello, "node": os.environ.get("SLURMD_NODENAME", "")})
            while True:
                line.send(_done(line.receive(), line, template, work, held))
    except ClosedError:
        return
    finally:
        template.close()


def _found(file: Path, timeout_s: float) -> _Meeting:
    """Wait until the first rank has said where it is, in this start of the job: one of an earlier start has gone."""
    deadline, this = time.monotonic() + timeout_s, _this_start()
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            os.scandir(file.parent).close()  # an NFS client looks for new files only so
            found = versioned.read_as(file, _Meeting)
            if (found["job"], found["restarts"]) == (this["job"], this["restarts"]):
                return found
        time.sleep(_LOOK_S)
    raise ClosedError("the first rank was not found")


def _done(said: dict[str, Any], line: Line, template: Template, work: WorkList, held: ExitStack) -> dict[str, Any]:
    """Do what the first rank says; returns the answer."""
    if said["do"] == "run":
        began = time.perf_counter()
        return {"run": _run(said, line, template), "ended_s": time.perf_counter() - began}
    if said["do"] == "lock":
        held.enter_context(locks.locked(Path(said["path"])))
    elif said["do"] == "unlock":
        held.close()
    elif said["do"] == "data":
        try:
            return {"data": session.with_dataset(CampaignFolder(Path(work["campaign_dir"])), said["item"])["dataset"]}
        except CampaignError as error:
            return {"error": error.message, "hint": error.hint}
    return {}


def _run(said: dict[str, Any], line: Line, template: Template) -> Run:
    """Run a request, unless the first rank says stop meanwhile, or goes."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_WATCH_S):
            if select.select([line], [], [], 0)[0]:
                template.stop()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    run = template.run(said["request"], Path(said["log"]), said["timeout_s"])
    over.set()
    watcher.join()
    if template.was_stopped:
        line.receive(_HELLO_S)  # the word that stopped it
    return run
