"""What a benchmark sees of the other ranks of its run: where they meet, and what they tell one another."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.errors import JobError
from jobs.ranks.allreduce import Group, port
from jobs.ranks.wire import ClosedError, Line
from jobs.request import RankRequest, Request
from jobs.system.layers import own_cache

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class RanksError(JobError):
    """The ranks of a run cannot go on together: one has gone, is late, or does something else than the others."""


class Rank:
    """The only rank of its run: nothing to wait for, nothing to tell."""

    rank = 0
    size = 1
    sync = "none"
    """What a step does: ``none``, ``barrier`` or ``allreduce``."""
    private_caches = True
    """Whether what one rank reads is in no page cache of another one."""

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return this rank's part of what the ranks divide among them: disjoint, and all of it together."""
        return items[self.rank :: self.size]

    def start(self) -> float:
        """Wait for all ranks, then begin: returns `time.perf_counter`, the start of the clock; called once."""
        return time.perf_counter()

    def barrier(self) -> None:
        """Wait until all ranks have come here."""

    def gather(self, value: Any) -> list[Any]:
        """Return what each rank says here, JSON, in their order; not within the clock."""
        return [value]

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Do what a step does by ``sync``: nothing, wait for all, or add up tensors, alike on all; returns them."""
        return list(tensors)

    def end(self) -> None:
        """Wait until the clocks of all have stopped."""


class Among(Rank):
    """One of several ranks; they meet at a hub (`jobs.ranks.hub`), which answers when all have come.

    Whatever it waits for raises RanksError when another rank has gone, or comes too late.
    """

    def __init__(self, asked: RankRequest, folder: Path | None) -> None:
        self.rank, self.size, self.sync = asked["rank"], asked["size"], asked["sync"]
        self._address = asked["address"]
        self._group: Group | None = None
        self._folder = folder
        try:
            self._line = Line.to(asked["hub"], asked["port"], asked["timeout_s"])
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks: {error}") from error
        self._tell({"secret": asked["secret"], "rank": self.rank})

    def prepare(self) -> None:
        """Find out what page caches there are; make what adds up tensors, before TensorFlow does anything else."""
        caches = self.gather(_page_cache(self._folder))
        self.private_caches = len({str(each) for each in caches}) == self.size
        if self.sync == "allreduce":
            with port() as number:
                addresses = self.gather(f"{self._address}:{number}")
            self._group = Group(addresses, self.rank)

    def start(self) -> float:
        """Wait for all ranks, then begin; the hub is told at once, so that its clock bounds when."""
        self._come("start")
        now, real_s = time.perf_counter(), time.time()
        self._tell({"left": real_s})
        return now

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        self._come("barrier")

    def gather(self, value: Any) -> list[Any]:
        """Return what each rank says here."""
        return self._come("gather", value)

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Do what a step does."""
        if self.sync == "barrier":
            self.barrier()
        return self._group.sums(tensors) if self._group else list(tensors)

    def end(self) -> None:
        """Wait until the clocks of all have stopped."""
        self._come("end")

    def leave(self) -> None:
        """Wait until all are through: who leaves early breaks what the others still do."""
        self._come("leave")

    def close(self) -> None:
        """Go; the others hear of it."""
        self._line.close()

    def _come(self, where: str, value: Any = None) -> list[Any]:
        self._tell({"at": where, "value": value})
        try:
            answer = self._line.receive()  # the hub answers in time, or ends
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks has gone: {error}") from error
        if "error" in answer:
            raise RanksError(answer["error"])
        values: list[Any] = answer["values"]
        return values

    def _tell(self, value: dict[str, Any]) -> None:
        try:
            self._line.send(value)
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks has gone: {error}") from error


def boot() -> str:
    """Return what only processes of one running kernel share; a name of its own where that is not known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"{os.uname().nodename}"


def _page_cache(folder: Path | None) -> list[Any]:
    """Return what ranks have in common that share a page cache of a folder's files."""
    own = [folder.stat().st_dev] if folder and own_cache(folder) else []
    return [boot(), *own]


_here: list[Rank] = [Rank()]


def here() -> Rank:
    """Return this process's place among the ranks of its run."""
    return _here[-1]


@contextmanager
def joined(request: Request) -> Iterator[Rank]:
    """Join the other ranks of a run, where there are any; leave them together at the end."""
    asked = request.get("rank")
    if asked is None:
        yield Rank()
        return
    among = Among(asked, Path(request["dataset"]) if "dataset" in request else None)
    _here.append(among)
    try:
        among.prepare()
        yield among
        among.leave()
    finally:
        _here.pop()
        among.close()
