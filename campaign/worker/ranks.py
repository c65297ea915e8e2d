"""Lead the ranks of a Slurm job from its first rank, and follow from the others, each on a node of its own.

`srun` starts the same command on each node. The first rank writes a file beside its work list that says where it
listens; the others find it there. Each side proves to the other that it knows the secret in that file
(`jobs.ranks.peers`), then the others carry out the orders of the first one until it has gone::

    {"rank", "node", "address", "boot"}               first message of another rank
    {"do": "run", "request", "log", "timeout_s"}  ->  {"run", "ended_s"}
    {"do": "stop"}, for a run under way               no answer but the run's
    {"do": "lock", "path"}, {"do": "unlock"}      ->  {}
    {"do": "data", "item"}                        ->  {"data"} or {"error", "hint"}
    {"alive"}, every few seconds before an answer to "lock" and "data", for these may take long

The file is there until all ranks have come, or the first one ends; if that was killed, another rank removes it. No
request carries the secret of the hub where its ranks meet: each rank derives it from the secret of the job.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from campaign.cells.folder import CampaignFolder
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from campaign.slurm import job
from campaign.storage import locks
from campaign.worker import session
from campaign.worker.runner import MARGIN_S, Outcome, Ranks, Template, failed_with_another, preload_of
from jobs.channel import Channel, ClosedError, ready
from jobs.model import reading
from jobs.model.codes import RunEnd
from jobs.model.record import Data
from jobs.model.results import Run
from jobs.model.work import ListedItem, Request, WorkList
from jobs.ranks.peers import Listener, Newcomer, StrangerError, connect, derived, new_secret
from jobs.ranks.rank import boot
from jobs.system import files

_LOOK_S = 0.2  # between two looks at a file, or at whether a run is over
HELLO_S = 10.0  # for a word that needs no work
_ALIVE_S = 5.0  # between two words of a rank that works on an order
_SILENT_S = 60.0  # after which a rank that says nothing, not even that it is alive, is lost
HUB = "hub"  # what the second secret is for


class Meeting(TypedDict):
    """The address where the first rank listens, in which start of which job."""

    job: str
    restarts: int
    address: str
    port: int
    secret: str


def rank_here() -> int:
    """Return the rank of this process in its Slurm step."""
    return int(os.environ.get("SLURM_PROCID", "0"))


def meeting_file(work_list: Path) -> Path:
    """Return the file beside a work list that says where its first rank is."""
    return work_list.with_suffix(".ranks.json")


def identify_start() -> dict[str, Any]:
    """Return the job and the number of its restarts, which tell this start from others."""
    return {"job": os.environ.get("SLURM_JOB_ID", ""), "restarts": job.number_of_restarts()}


def follow_first_rank(path: Path, work: WorkList) -> int:
    """Serve the first rank of this job until it has gone, or does not come in time; return 0."""
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the first rank writes down what they mean, and goes
    template = Template(path.with_suffix(f".rank{rank_here()}.template.log"), preload_of(work))
    serve_first_rank(path, work, rank_here(), template)
    return 0


def serve_first_rank(path: Path, work: WorkList, rank: int, template: Template) -> None:
    """Do as `follow_first_rank` does, without changing signals."""
    try:
        template.start()
        where = _wait_for_meeting(meeting_file(path), work["conduct"]["ranks_timeout_s"])
        hello = {"rank": rank, "boot": boot(), "address": job.node_address()}
        with (
            closing(connect(where["address"], where["port"], where["secret"], HELLO_S)) as channel,
            ExitStack() as held,
        ):
            channel.send({**hello, "node": os.environ.get("SLURMD_NODENAME", "")})
            follower = _RankWorker(channel, template, work, derived(where["secret"], HUB), held)
            with suppress(ClosedError):
                while True:
                    order = channel.receive().value
                    if order["do"] != "stop":  # of a run that has ended meanwhile
                        channel.send(follower.carry_out(order))
            remove_meeting_file(meeting_file(path))  # where the first rank was killed
    except (ClosedError, TimeoutError) as error:
        if isinstance(error, StrangerError):  # who listened there has gone
            remove_meeting_file(meeting_file(path))
        with suppress(OSError):  # who read the log may be gone
            print(f"rank {rank} ends: {error}", file=sys.stderr, flush=True)
    finally:
        template.close()


def remove_meeting_file(file: Path) -> None:
    """Remove the file of the first rank, unless a later start of the job has put its own there."""
    with suppress(OSError, ValueError):
        if _is_of_this_start(reading.read(file, Meeting)):
            file.unlink()


def _wait_for_meeting(file: Path, timeout_s: float) -> Meeting:
    """Return the address of the first rank in this start of the job; raises ClosedError if it does not come."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            os.scandir(file.parent).close()  # an NFS client looks for new files only so
            meeting = reading.read(file, Meeting)
            if _is_of_this_start(meeting):
                return meeting
        time.sleep(_LOOK_S)
    raise ClosedError("the first rank was not found")


def _is_of_this_start(meeting: Meeting) -> bool:
    return identify_start().items() <= meeting.items()


@dataclass(frozen=True)
class _RankWorker:
    """Carries out the orders of the first rank on another one; `held` are the locks that it holds."""

    channel: Channel
    template: Template
    work: WorkList
    hub_secret: str
    held: ExitStack

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order of the first rank; return the answer."""
        if order["do"] == "run":
            began = time.perf_counter()
            return {"run": self._run(order), "ended_s": time.perf_counter() - began}
        if order["do"] == "unlock":
            self.held.close()
            return {}
        with self._said_to_be_alive():
            if order["do"] == "lock":
                self.held.enter_context(locks.locked(Path(order["path"])))
                return {}
            try:
                return {"data": session.make_missing_data(self._folder, order["item"])["dataset"]}
            except CampaignError as error:
                return {"error": error.message, "hint": error.hint}

    @contextmanager
    def _said_to_be_alive(self) -> Iterator[None]:
        """Tell the first rank every few seconds that this rank works on the order of the first rank."""
        over = threading.Event()

        def tell() -> None:
            with suppress(ClosedError, TimeoutError):
                while not over.wait(_ALIVE_S):
                    self.channel.send({"alive": True})

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @property
    def _folder(self) -> CampaignFolder:
        return CampaignFolder(Path(self.work["campaign_dir"]))

    def _run(self, order: dict[str, Any]) -> Run:
        """Run a request, unless the first rank stops it or goes away meanwhile."""
        log = Path(order["log"])
        if not log.resolve().is_relative_to(self._folder.root.resolve()):
            where = f"the log {log} is not in {self._folder.root}"
            return {"status": "failed", "end": {"code": RunEnd.LOG_ELSEWHERE, "words": where}}
        answers = self.template.begin([set_hub_secret(order["request"], self.hub_secret)], [log], order["timeout_s"])
        if self.channel in ready([answers, self.channel], None):
            self.template.stop()
        run = self.template.outcomes()[0].run
        if self.template.was_stopped:
            self.channel.receive(HELLO_S)  # the word that stopped it
        return run


def set_hub_secret(request: Request, secret: str) -> Request:
    """Return a request with another secret of the hub; unchanged if it is not one of a rank."""
    return {**request, "rank": {**request["rank"], "secret": secret}} if "rank" in request else request


_GRACE_S = 5.0  # in which ranks end by themselves when another one has failed
_STOPPED: Run = {"status": "failed", "end": {"code": RunEnd.RANK_FAILED}}


class RankLostError(Exception):
    """Raised when a rank's node, or its worker there, has gone."""


@dataclass
class _FollowerChannel:
    """The first rank's connection to one other rank."""

    channel: Channel
    rank: int
    node: str
    address: str
    boot: str

    def ask(self, value: dict[str, Any]) -> dict[str, Any]:
        """Tell it something and return its answer. Raises RankLostError, also where it is silent for long."""
        self.tell(value)
        while "alive" in (answer := self.answer(_SILENT_S)):
            pass
        return answer

    def tell(self, value: dict[str, Any]) -> None:
        """Tell it something. Raises RankLostError."""
        with self._lost_where_silent():
            self.channel.send(value)

    def answer(self, seconds: float) -> dict[str, Any]:
        """Return its answer. Raises RankLostError."""
        with self._lost_where_silent():
            return self.channel.receive(seconds).value

    @contextmanager
    def _lost_where_silent(self) -> Iterator[None]:
        try:
            yield
        except (ClosedError, TimeoutError) as error:
            raise RankLostError(f"rank {self.rank} on {self.node} is lost: {error}") from error


class Leader:
    """The other ranks of a job, as the first one sees them; they must come within `timeout_s`."""

    def __init__(self, template: Template, work_list: Path, size: int, timeout_s: float) -> None:
        self._template, self._size, self._timeout_s = template, size, timeout_s
        self._file = meeting_file(work_list)
        self._followers: list[_FollowerChannel] = []
        self._secret = new_secret()
        self.hub_secret = derived(self._secret, HUB)
        self.addresses: list[str] = []

    @property
    def ranks(self) -> Ranks:
        """Return the ranks, each on its node."""
        return Ranks(self.addresses, self.hub_secret, self.run)

    def gather(self) -> None:
        """Wait for all ranks of the job; raises EnvironmentFaultError if one does not come."""
        if self.addresses:
            return
        with closing(Listener(job.node_address(), self._secret, self._size)) as listener:
            self._announce(listener)
            deadline = time.monotonic() + self._timeout_s
            while len(self._followers) < self._size - 1:
                if (left_s := deadline - time.monotonic()) <= 0:
                    raise self._missing_ranks_error(listener.strangers())
                for newcomer in listener.turn(left_s)[0]:
                    self._welcome(newcomer)
            if others := listener.strangers():
                with suppress(OSError):  # who read the log may be gone
                    print(f"{others}; no rank waited for them", file=sys.stderr, flush=True)
        remove_meeting_file(self._file)
        self._followers.sort(key=lambda each: each.rank)
        self.addresses = [listener.address, *(each.address for each in self._followers)]

    def _announce(self, listener: Listener) -> None:
        meeting = {**identify_start(), "address": listener.address, "port": listener.port, "secret": self._secret}
        with files.whole(self._file, mode=0o600) as file:  # who reads it can be a rank
            file.write(json.dumps(meeting).encode())

    def close(self) -> None:
        """Close the connections; Slurm ends ranks that are still to come (``srun --wait``)."""
        for each in self._followers:
            each.channel.close()
        remove_meeting_file(self._file)

    def _welcome(self, newcomer: Newcomer) -> None:
        """Take a newcomer as a rank, unless that rank is there already."""
        hello: dict[str, Any] = newcomer.hello
        rank: Any = hello.get("rank")
        node, address, kernel = (str(hello.get(key)) for key in ("node", "address", "boot"))
        if rank not in range(1, self._size) or rank in [each.rank for each in self._followers]:
            newcomer.channel.close()
            return
        self._followers.append(_FollowerChannel(newcomer.channel, int(rank), node, address, kernel))

    def _missing_ranks_error(self, others: str) -> EnvironmentFaultError:
        present = {each.rank for each in self._followers}
        missing = ", ".join(str(rank) for rank in range(1, self._size) if rank not in present)
        return EnvironmentFaultError(
            f"rank {missing} of the job did not come within {self._timeout_s:g} s" + (f"; {others}" if others else ""),
            "see the log of that rank in the batch's folder; ranks_timeout_s=… waits longer",
        )

    def run(self, requests: Sequence[Request], logs: Sequence[Path], timeout_s: float) -> list[Outcome]:
        """Run one request on each node. Raises RankLostError where one of them has gone."""
        began, outcomes = time.perf_counter(), dict[int, Outcome]()
        waiting = {self._template.begin(requests[:1], logs[:1], timeout_s): 0}
        for each in self._followers:
            request, log = set_hub_secret(requests[each.rank], ""), str(logs[each.rank])
            each.tell({"do": "run", "request": request, "log": log, "timeout_s": timeout_s})
            waiting[each.channel] = each.rank
        deadline, stopped = began + timeout_s + MARGIN_S, False
        while waiting:
            heard = ready(waiting, deadline - time.perf_counter())
            for channel in heard:
                rank = waiting.pop(channel)
                outcomes[rank] = self._outcome(rank, time.perf_counter() - began, stopped=stopped)
                patience_s = _GRACE_S if outcomes[rank].run.get("status") == "failed" else MARGIN_S
                deadline = min(deadline, time.perf_counter() + patience_s)
            if not heard and stopped:
                raise RankLostError(f"rank {', '.join(map(str, sorted(waiting.values())))} is lost: it does not stop")
            if not heard:
                self._stop(waiting.values())
                deadline, stopped = time.perf_counter() + MARGIN_S, True
        for outcome in outcomes.values():
            if "end" in outcome.run and outcome.run["end"]["code"] == RunEnd.RANK_LOST:
                raise RankLostError(outcome.run["end"]["words"])
        return [outcomes[rank] for rank in range(self._size)]

    def _stop(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if rank == 0:
                self._template.stop()
            else:
                with suppress(RankLostError):  # its connection says so, too
                    self._followers[rank - 1].tell({"do": "stop"})

    def _outcome(self, rank: int, ended_s: float, *, stopped: bool) -> Outcome:
        """Return how a rank's run ended: what it was before it was stopped, if it was, is of no account."""
        if rank == 0:
            (own,) = self._template.outcomes()
            return own._replace(ended_s=ended_s, alone=own.alone or self._template.was_stopped)
        try:
            answer = self._followers[rank - 1].answer(HELLO_S)
        except RankLostError as error:
            return Outcome({"status": "failed", "end": {"code": RunEnd.RANK_LOST, "words": str(error)}}, 0.0)
        if stopped:
            return Outcome(_STOPPED, answer["ended_s"], alone=True)
        return Outcome(answer["run"], answer["ended_s"], failed_with_another(answer["run"]))

    @contextmanager
    def hold_storages(self, lock: Path) -> Iterator[None]:
        """Hold each node's own storage in the order of ranks, so that two jobs never wait for each other."""
        holders: dict[str, _FollowerChannel] = {}  # by what tells kernels apart
        try:
            for each in self._followers:
                if each.boot not in {boot(), *holders}:
                    each.ask({"do": "lock", "path": str(lock)})
                    holders[each.boot] = each
            yield
        finally:
            for each in holders.values():
                with suppress(RankLostError):
                    each.ask({"do": "unlock"})

    def make_data(self, item: ListedItem, data: Data) -> None:
        """Let each node make the data on its own storage; raises UsageError if the data differ there."""
        for each in self._followers:
            answer = each.ask({"do": "data", "item": item})
            if "error" in answer:
                raise UsageError(f"rank {each.rank} on {each.node}: {answer['error']}", answer["hint"])
            if answer["data"].get("checksum") != data.get("checksum"):
                raise UsageError(f"rank {each.rank} on {each.node} has other data", "remove the dataset there")
