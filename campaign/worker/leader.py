"""The first rank of a Slurm job leads the others, each on a node of its own (`campaign.worker.followers`)."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.slurm import job
from campaign.worker.followers import HELLO_S, HUB, file_of, remove, this_start, with_secret
from campaign.worker.runner import Outcome, Template, is_of_others
from jobs.model.codes import RunEnd
from jobs.model.record import Data
from jobs.model.request import Request
from jobs.model.results import Run
from jobs.model.work import ListedItem
from jobs.ranks.channel import Channel, ClosedError, derived, new_secret
from jobs.ranks.listener import Listener, Newcomer
from jobs.ranks.rank import boot
from jobs.system import files

_GRACE_S = 5.0  # in which ranks end by themselves when another one has failed
_MARGIN_S = 60.0  # beyond the limit of a run, for its end to be told
_STOPPED: Run = {"status": "failed", "end": {"code": RunEnd.RANK_FAILED}}


class RankLostError(Exception):
    """A rank's node, or what serves it there, has gone."""


@dataclass
class _Follower:
    channel: Channel
    rank: int
    node: str
    address: str
    boot: str
    outcome: Outcome | None = None
    loss: str = ""  # why it is lost, if it is

    def ask(self, value: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Tell it something and return its answer. Raises RankLostError."""
        try:
            self.channel.send(value)
            return self.channel.receive(seconds).value
        except (ClosedError, TimeoutError) as error:
            raise RankLostError(f"rank {self.rank} on {self.node} is lost: {error}") from error

    def run(self, request: Request, log: Path, timeout_s: float) -> None:
        """Let it run a request, and keep how that ended."""
        try:
            order = {"do": "run", "request": with_secret(request, ""), "log": str(log), "timeout_s": timeout_s}
            answer = self.ask(order, timeout_s + _MARGIN_S)
            self.outcome = Outcome(answer["run"], answer["ended_s"], is_of_others(answer["run"]))
        except RankLostError as error:
            lost: Run = {"status": "failed", "end": {"code": RunEnd.RANK_LOST, "words": str(error)}}
            self.loss, self.outcome = str(error), Outcome(lost, 0.0)


class Leader:
    """The first rank's side: the other ranks of the job, who come within `timeout_s` of the first question."""

    def __init__(self, template: Template, work_list: Path, size: int, timeout_s: float) -> None:
        self._template, self._size, self._timeout_s = template, size, timeout_s
        self._file = file_of(work_list)
        self._followers: list[_Follower] = []
        self._secret = new_secret()
        self.hub_secret = derived(self._secret, HUB)
        self.addresses: list[str] = []

    def gather(self) -> None:
        """Wait for all ranks of the job. Raises EnvironmentFaultError where one does not come."""
        if self.addresses:
            return
        with closing(Listener(job.node_address(), self._secret, self._size)) as listener:
            self._announce(listener)
            deadline = time.monotonic() + self._timeout_s
            while len(self._followers) < self._size - 1:
                if (left_s := deadline - time.monotonic()) <= 0:
                    raise self._missing(listener.strangers())
                for newcomer in listener.turn(left_s)[0]:
                    self._welcome(newcomer)
            if others := listener.strangers():
                with suppress(OSError):  # who read the log may be gone
                    print(f"{others}; no rank waited for them", file=sys.stderr, flush=True)
        remove(self._file)
        self._followers.sort(key=lambda each: each.rank)
        self.addresses = [listener.address, *(each.address for each in self._followers)]

    def _announce(self, listener: Listener) -> None:
        meeting = {**this_start(), "address": listener.address, "port": listener.port, "secret": self._secret}
        with files.whole(self._file, mode=0o600) as file:  # who reads it can be a rank
            file.write(json.dumps(meeting).encode())

    def close(self) -> None:
        """Let the others go; those that are still to come find nothing, and Slurm ends them (``srun --wait``)."""
        for each in self._followers:
            each.channel.close()
        remove(self._file)

    def _welcome(self, newcomer: Newcomer) -> None:
        hello: dict[str, Any] = newcomer.hello
        rank: Any = hello.get("rank")
        node, address, kernel = (str(hello.get(key)) for key in ("node", "address", "boot"))
        if rank not in range(1, self._size) or rank in [each.rank for each in self._followers]:
            newcomer.channel.close()
            return
        self._followers.append(_Follower(newcomer.channel, int(rank), node, address, kernel))

    def _missing(self, others: str) -> EnvironmentFaultError:
        here = {each.rank for each in self._followers}
        missing = ", ".join(str(rank) for rank in range(1, self._size) if rank not in here)
        return EnvironmentFaultError(
            f"rank {missing} of the job did not come within {self._timeout_s:g} s" + (f"; {others}" if others else ""),
            "see the log of that rank in the batch's folder; ranks_timeout_s=… waits longer",
        )

    def run(self, requests: Sequence[Request], logs: Sequence[Path], timeout_s: float) -> list[Outcome]:
        """Run one request on each node. Raises RankLostError where one of them has gone."""
        over = threading.Event()

        def serve(follower: _Follower) -> None:
            follower.run(requests[follower.rank], logs[follower.rank], timeout_s)
            failed = follower.outcome and follower.outcome.run.get("status") == "failed"
            if failed and not over.wait(_GRACE_S):
                self._template.stop()  # the own rank cannot go on without this one

        threads = [threading.Thread(target=serve, args=(each,), daemon=True) for each in self._followers]
        for each, thread in zip(self._followers, threads, strict=True):
            each.outcome = None
            thread.start()
        began = time.perf_counter()
        own = self._template.run(requests[0], logs[0], timeout_s)
        first = Outcome(own, time.perf_counter() - began, is_of_others(own) or self._template.was_stopped)
        over.set()
        self._end(threads, failed=own.get("status") == "failed")
        if losses := [each.loss for each in self._followers if each.loss]:
            raise RankLostError(losses[0])
        return [first, *(each.outcome or Outcome(_STOPPED, 0.0, alone=True) for each in self._followers)]

    def _end(self, threads: Sequence[threading.Thread], *, failed: bool) -> None:
        """Wait for the other ranks; where one has failed, stop those that do not end by themselves."""
        deadline = time.monotonic() + (_GRACE_S if failed else _MARGIN_S)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for each, thread in zip(self._followers, threads, strict=True):
            if thread.is_alive():
                with suppress(ClosedError):
                    each.channel.send({"do": "stop"})
                thread.join(_MARGIN_S)
                if thread.is_alive():
                    each.loss = each.loss or f"rank {each.rank} on {each.node} is lost: it does not stop"
                each.outcome = each.outcome and each.outcome._replace(run=_STOPPED, alone=True)

    @contextmanager
    def holding(self, lock: Path) -> Iterator[None]:
        """Hold each node's own storage, too: in the order of ranks, so that two jobs never wait for each other."""
        holders: dict[str, _Follower] = {}  # by what tells kernels apart
        try:
            for each in self._followers:
                if each.boot not in {boot(), *holders}:
                    each.ask({"do": "lock", "path": str(lock)})
                    holders[each.boot] = each
            yield
        finally:
            for each in holders.values():
                with suppress(RankLostError):
                    each.ask({"do": "unlock"}, HELLO_S)

    def make_data(self, item: ListedItem, data: Data) -> None:
        """Let each node make what only it can: the data on its own storage; UsageError where it is another's."""
        for each in self._followers:
            answer = each.ask({"do": "data", "item": item})
            if "error" in answer:
                raise UsageError(f"rank {each.rank} on {each.node}: {answer['error']}", answer["hint"])
            if answer["data"].get("checksum") != data.get("checksum"):
                raise UsageError(f"rank {each.rank} on {each.node} has other data", "remove the dataset there")
