"""Lead the ranks of a Slurm job from the first rank, and follow the first rank from the other ranks.

Each rank runs on its own node; `srun` starts the same command on each node. The first rank listens on a TCP port, and
writes its address into the meeting file, which is in the same folder as the work list. The other ranks read the meeting
file and connect. Both sides prove to each other that they know the secret in the meeting file (`jobs.ranks.peers`).
Then the other ranks execute the orders of the first rank until the first rank closes the connection::

    {"rank", "node", "address", "boot"}               first message of another rank
    {"do": "run", "request", "log", "timeout_s"}  ->  {"run", "ended_s"}
    {"do": "stop"}, during a run                      no answer except the answer to the run
    {"do": "lock", "path"}, {"do": "unlock"}      ->  {}
    {"do": "data", "item"}                        ->  {"data"}
    {"error", "hint"}, in place of the answer to "lock" and "data", if the rank could not execute the order
    {"alive"}, every few seconds before an answer to "lock" and "data", because such orders may take long

The meeting file is removed when all ranks have connected, or when the first rank ends. If the first rank was killed,
another rank removes the meeting file. No request contains the secret of the hub, because each rank derives this secret
from the secret of the job.
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
from campaign.worker.batch import describe_fault
from campaign.worker.runner import MARGIN_S, RankOutcome, RanksOfRun, Template, failed_with_another, modules_to_preload
from jobs.channel import Channel, ClosedError, wait_for_channels
from jobs.model import reading
from jobs.model.codes import End, RunEnd
from jobs.model.record import Data
from jobs.model.results import Run
from jobs.model.work import ListedItem, RunRequest, WorkList
from jobs.ranks.peers import Listener, Newcomer, StrangerError, connect, derived_secret, new_secret
from jobs.ranks.rank import boot_id
from jobs.system import files

_POLL_S = 0.2  # pause between two checks whether the meeting file exists
HELLO_S = 10.0  # timeout of an answer for which the other side need not work
_ALIVE_S = 5.0  # while a rank works on an order, it sends ``alive`` after each pause of this length
_RANK_LOST_AFTER_S = 60.0  # a rank that sends no message for this time counts as lost
HUB = "hub"  # the label with which the hub's secret is derived from the job's secret


class MeetingFile(TypedDict):
    """The content of the meeting file: the address of the first rank, the secret, and the start of the job."""

    job: str  # Slurm's job id; `job` and `restarts` identify the start of the job
    restarts: int
    address: str
    port: int
    secret: str


def rank_here() -> int:
    """Return the rank of this process in its Slurm job step; 0 outside Slurm."""
    return int(os.environ.get("SLURM_PROCID", "0"))


def meeting_file(work_list: Path) -> Path:
    """Return the path of the meeting file, which is in the same folder as the work list."""
    return work_list.with_suffix(".ranks.json")


def identify_start() -> dict[str, Any]:
    """Return the job id and the number of restarts, which together identify this start of the job."""
    return {"job": os.environ.get("SLURM_JOB_ID", ""), "restarts": job.number_of_restarts()}


def follow_first_rank(path: Path, work: WorkList) -> int:
    """Execute the orders of the first rank until the first rank has ended; return 0.

    Also return 0 if the first rank does not write its meeting file in time.
    """
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the first rank handles these signals for all ranks
    template = Template(path.with_suffix(f".rank{rank_here()}.template.log"), modules_to_preload(work))
    serve_first_rank(path, work, rank_here(), template)
    return 0


def serve_first_rank(path: Path, work: WorkList, rank: int, template: Template) -> None:
    """Execute the orders of the first rank until the first rank has ended; do not change signal handlers."""
    try:
        template.start()
        meeting = _wait_for_meeting(meeting_file(path), work["conduct"]["ranks_timeout_s"])
        hello = {"rank": rank, "boot": boot_id(), "address": job.node_address()}
        with (
            closing(connect(meeting["address"], meeting["port"], meeting["secret"], HELLO_S)) as channel,
            ExitStack() as held_locks,
        ):
            channel.send({**hello, "node": os.environ.get("SLURMD_NODENAME", "")})
            follower = _RankWorker(channel, template, work, derived_secret(meeting["secret"], HUB), held_locks)
            with suppress(ClosedError):
                while True:
                    order = channel.receive().value
                    if order["do"] != "stop":  # the run that should be stopped has already ended
                        channel.send(follower.carry_out(order))
            remove_meeting_file(meeting_file(path))  # in case the first rank was killed
    except (ClosedError, TimeoutError) as error:
        if isinstance(error, StrangerError):  # another process listens on the port, so the first rank has ended
            remove_meeting_file(meeting_file(path))
        with suppress(OSError):  # the process that reads stderr may have ended
            print(f"rank {rank} ends: {error}", file=sys.stderr, flush=True)
    finally:
        template.close()


def remove_meeting_file(file: Path) -> None:
    """Remove the meeting file if it belongs to this start of the job."""
    with suppress(OSError, ValueError):
        if _is_of_this_start(reading.read_json(file, MeetingFile)):
            file.unlink()


def _wait_for_meeting(file: Path, timeout_s: float) -> MeetingFile:
    """Wait for the meeting file of this start of the job and return its content; raise ClosedError after a timeout."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            os.scandir(file.parent).close()  # this call makes an NFS client look for new files
            meeting = reading.read_json(file, MeetingFile)
            if _is_of_this_start(meeting):
                return meeting
        time.sleep(_POLL_S)
    raise ClosedError("the first rank was not found")


def _is_of_this_start(meeting: MeetingFile) -> bool:
    return identify_start().items() <= meeting.items()


@dataclass(frozen=True)
class _RankWorker:
    """Executes the orders of the first rank on another rank."""

    channel: Channel
    template: Template
    work: WorkList
    hub_secret: str
    held_locks: ExitStack

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute an order of the first rank, and return the answer to the first rank."""
        if order["do"] == "run":
            began = time.perf_counter()
            return {"run": self._run(order), "ended_s": time.perf_counter() - began}
        if order["do"] == "unlock":
            self.held_locks.close()
            return {}
        try:
            with self._report_alive():
                if order["do"] == "lock":
                    self.held_locks.enter_context(locks.acquire_lock(Path(order["path"])))
                    return {}
                return {"data": session.make_missing_data(self._folder, order["item"])["dataset"]}
        except (CampaignError, OSError) as error:
            fault = describe_fault(error)
            return {"error": fault["message"], "hint": fault["hint"]}

    @contextmanager
    def _report_alive(self) -> Iterator[None]:
        """Send the message ``alive`` to the first rank every few seconds while the code in the ``with`` block runs."""
        is_done = threading.Event()

        def send_signs() -> None:
            with suppress(ClosedError, TimeoutError):
                while not is_done.wait(_ALIVE_S):
                    self.channel.send({"alive": True})

        thread = threading.Thread(target=send_signs, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_done.set()
            thread.join()

    @property
    def _folder(self) -> CampaignFolder:
        return CampaignFolder(Path(self.work["campaign_dir"]))

    def _run(self, order: dict[str, Any]) -> Run:
        """Execute a request and return the run; stop the run if the first rank orders it or has ended."""
        log = Path(order["log"])
        if not log.resolve().is_relative_to(self._folder.root.resolve()):
            fault = f"the log {log} is not in {self._folder.root}"
            return {"status": "failed", "end": {"code": RunEnd.LOG_ELSEWHERE, "words": fault}}
        answers = self.template.begin([set_hub_secret(order["request"], self.hub_secret)], [log], order["timeout_s"])
        if self.channel in wait_for_channels([answers, self.channel], None):
            self.template.stop()
        run = self.template.outcomes()[0].run
        if self.template.was_stopped:
            self.channel.receive(HELLO_S)  # receive the order "stop", which has stopped the run
        return run


def set_hub_secret(request: RunRequest, secret: str) -> RunRequest:
    """Return a request with `secret` as the secret of the hub; a request for a single process remains unchanged."""
    return {**request, "rank": {**request["rank"], "secret": secret}} if "rank" in request else request


_GRACE_S = 5.0  # after a rank has failed, the other ranks are stopped after this time


class RankLostError(Exception):
    """Raised if the first rank has lost the connection to another rank, or if a rank does not stop."""


@dataclass
class _FollowerChannel:
    """The connection of the first rank to another rank."""

    channel: Channel
    rank: int
    node: str
    address: str
    boot: str

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send an order and return the answer.

        Raise RankLostError if the rank sends no message for 60 s, and UsageError if the rank cannot execute the order.
        """
        self.send(order)
        while "alive" in (answer := self.receive(_RANK_LOST_AFTER_S)):
            pass
        if "error" in answer:
            raise UsageError(f"rank {self.rank} on {self.node}: {answer['error']}", answer["hint"])
        return answer

    def send(self, order: dict[str, Any]) -> None:
        """Send an order; raise RankLostError if the connection is closed."""
        with self._explain_loss():
            self.channel.send(order)

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next message; raise RankLostError if no message comes within `timeout_s`."""
        with self._explain_loss():
            return self.channel.receive(timeout_s).value

    @contextmanager
    def _explain_loss(self) -> Iterator[None]:
        try:
            yield
        except (ClosedError, TimeoutError) as error:
            raise RankLostError(f"rank {self.rank} on {self.node} is lost: {error}") from error


class Leader:
    """Leads the other ranks of a job from the first rank; the other ranks must connect within `timeout_s`."""

    def __init__(self, template: Template, work_list: Path, size: int, timeout_s: float) -> None:
        self._template, self._size, self._timeout_s = template, size, timeout_s
        self._file = meeting_file(work_list)
        self._followers: list[_FollowerChannel] = []
        self._secret = new_secret()
        self.hub_secret = derived_secret(self._secret, HUB)
        self.addresses: list[str] = []

    @property
    def ranks(self) -> RanksOfRun:
        """Return all ranks of the job, with the addresses of their nodes."""
        return RanksOfRun(self.addresses, self.hub_secret, self.run)

    def wait_for_ranks(self) -> None:
        """Wait until all ranks of the job have connected; raise EnvironmentFaultError if a rank does not connect."""
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
            if strangers := listener.strangers():
                with suppress(OSError):  # the process that reads stderr may have ended
                    print(f"{strangers}; no rank waited for them", file=sys.stderr, flush=True)
        remove_meeting_file(self._file)
        self._followers.sort(key=lambda follower: follower.rank)
        self.addresses = [listener.address, *(follower.address for follower in self._followers)]

    def _announce(self, listener: Listener) -> None:
        meeting = {**identify_start(), "address": listener.address, "port": listener.port, "secret": self._secret}
        # Only this user may read the file, because the secret in it allows a process to act as a rank.
        with files.write_whole(self._file, mode=0o600) as file:
            file.write(json.dumps(meeting).encode())

    def close(self) -> None:
        """Close the connections to all ranks; Slurm ends ranks that have not connected yet (``srun --wait``)."""
        for follower in self._followers:
            follower.channel.close()
        remove_meeting_file(self._file)

    def _welcome(self, newcomer: Newcomer) -> None:
        """Accept a new connection as a rank; close the connection if its rank is invalid or already connected."""
        hello: dict[str, Any] = newcomer.hello
        rank: Any = hello.get("rank")
        node, address, boot_id = (str(hello.get(key)) for key in ("node", "address", "boot"))
        if rank not in range(1, self._size) or rank in [follower.rank for follower in self._followers]:
            newcomer.channel.close()
            return
        self._followers.append(_FollowerChannel(newcomer.channel, int(rank), node, address, boot_id))

    def _missing_ranks_error(self, strangers: str) -> EnvironmentFaultError:
        present = {follower.rank for follower in self._followers}
        missing = ", ".join(str(rank) for rank in range(1, self._size) if rank not in present)
        return EnvironmentFaultError(
            f"rank {missing} of the job did not come within {self._timeout_s:g} s"
            + (f"; {strangers}" if strangers else ""),
            "see the log of this rank in the folder of the batch; ranks_timeout_s=… sets a longer wait",
        )

    def run(self, requests: Sequence[RunRequest], logs: Sequence[Path], timeout_s: float) -> list[RankOutcome]:
        """Execute one request on each node, and return the outcomes in the order of ranks.

        Raise RankLostError if the connection to a rank is lost, or if a rank does not stop.
        """
        began, outcomes = time.perf_counter(), dict[int, RankOutcome]()
        stopped: End | None  # how the ranks ended that were stopped
        waiting = {self._template.begin(requests[:1], logs[:1], timeout_s): 0}
        for follower in self._followers:
            request, log = set_hub_secret(requests[follower.rank], ""), str(logs[follower.rank])
            follower.send({"do": "run", "request": request, "log": log, "timeout_s": timeout_s})
            waiting[follower.channel] = follower.rank
        deadline, stopped = began + timeout_s + MARGIN_S, None
        while waiting:
            ready_channels = wait_for_channels(waiting, deadline - time.perf_counter())
            for channel in ready_channels:
                rank = waiting.pop(channel)
                outcomes[rank] = self._outcome(rank, time.perf_counter() - began, stopped)
                patience_s = _GRACE_S if outcomes[rank].run.get("status") == "failed" else MARGIN_S
                deadline = min(deadline, time.perf_counter() + patience_s)
            if not ready_channels and stopped:
                lost_ranks = ", ".join(map(str, sorted(waiting.values())))
                raise RankLostError(f"rank {lost_ranks} is lost: the run does not stop")
            if not ready_channels:
                self._stop_ranks(waiting.values())
                has_failed = any(outcome.run.get("status") == "failed" for outcome in outcomes.values())
                stopped = (
                    {"code": RunEnd.RANK_FAILED} if has_failed else {"code": RunEnd.RANK_LATE, "seconds": MARGIN_S}
                )
                deadline = time.perf_counter() + MARGIN_S
        for outcome in outcomes.values():
            if "end" in outcome.run and outcome.run["end"]["code"] == RunEnd.RANK_LOST:
                raise RankLostError(outcome.run["end"]["words"])
        return [outcomes[rank] for rank in range(self._size)]

    def _stop_ranks(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if rank == 0:
                self._template.stop()
            else:
                with suppress(RankLostError):  # the method `run` will find the closed connection
                    self._followers[rank - 1].send({"do": "stop"})

    def _outcome(self, rank: int, ended_s: float, stopped: End | None) -> RankOutcome:
        """Return the outcome of a rank's run; `stopped` is how the run ended if it was stopped, else None."""
        if rank == 0:
            (outcome,) = self._template.outcomes()
            run: Run = {**outcome.run, "status": "failed", "end": stopped} if stopped else outcome.run
            return RankOutcome(run, ended_s, failed_with_another(run))
        try:
            answer = self._followers[rank - 1].receive(HELLO_S)
        except RankLostError as error:
            return RankOutcome({"status": "failed", "end": {"code": RunEnd.RANK_LOST, "words": str(error)}}, 0.0)
        run = {"status": "failed", "end": stopped} if stopped else answer["run"]
        return RankOutcome(run, answer["ended_s"], failed_with_another(run))

    @contextmanager
    def hold_storages(self, lock: Path) -> Iterator[None]:
        """Lock the storage of each other node during the ``with`` block.

        The nodes are locked in the order of ranks, so that two jobs never wait for each other.
        """
        holders: dict[str, _FollowerChannel] = {}  # one rank per machine; the key is the boot id of the machine
        try:
            for follower in self._followers:
                if follower.boot not in {boot_id(), *holders}:
                    follower.ask({"do": "lock", "path": str(lock)})
                    holders[follower.boot] = follower
            yield
        finally:
            for holder in holders.values():
                with suppress(RankLostError):
                    holder.ask({"do": "unlock"})

    def make_data(self, item: ListedItem, data: Data) -> None:
        """Make the data of a cell on the own storage of each other node.

        Raise UsageError if the data on a node differ from the data of the first rank.
        """
        for follower in self._followers:
            answer = follower.ask({"do": "data", "item": item})
            if answer["data"].get("checksum") != data.get("checksum"):
                raise UsageError(
                    f"rank {follower.rank} on {follower.node} has other data than rank 0",
                    "remove the dataset on this node",
                )
