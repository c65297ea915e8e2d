"""What a benchmark sees of the other ranks of its run: where they meet, and what they tell one another."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.errors import JobError
from jobs.model.request import RankRequest, Request
from jobs.ranks.channel import ClosedError, Message, connect
from jobs.ranks.gradients import packed, unpacked
from jobs.ranks.ring import Group, port
from jobs.system.layers import own_cache

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class RanksError(JobError):
    """The ranks of a run cannot go on together: one has gone, is late, or does something else than the others."""


class Rank:
    """The only rank of its run: nothing to wait for, nothing to tell."""

    rank = 0
    size = 1
    sync = "none"
    """What a step does: ``none``, ``barrier``, ``allreduce`` (at the hub) or ``ring`` (by TensorFlow's servers)."""
    private_caches = True
    """Whether what one rank reads is in no page cache of another one."""

    @property
    def adds_up(self) -> bool:
        """Whether a step adds tensors up over the ranks."""
        return self.sync in {"allreduce", "ring"}

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

    def __init__(self, place: RankRequest, folder: Path | None) -> None:
        self.rank, self.size, self.sync = place["rank"], place["size"], place["sync"]
        self._address = place["address"]
        self._group: Group | None = None
        self._folder = folder
        try:
            self._channel = connect(place["hub"], place["port"], place["secret"], place["timeout_s"])
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks: {error}") from error
        self._tell({"rank": self.rank})

    def prepare(self) -> None:
        """Find out what page caches there are; make what adds up tensors, before TensorFlow does anything else."""
        caches = self.gather(_page_cache(self._folder))
        self.private_caches = len({str(each) for each in caches}) == self.size
        if self.sync == "ring":
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
        values: list[Any] = self._come("gather", value).value["values"]
        return values

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Do what a step does."""
        if self.sync == "barrier":
            self.barrier()
        if self._group:
            return self._group.sums(tensors)
        return self._sums(tensors) if self.adds_up else list(tensors)

    def end(self) -> None:
        """Wait until the clocks of all have stopped."""
        self._come("end")

    def leave(self) -> None:
        """Wait until all are through: who leaves early breaks what the others still do."""
        self._come("leave")

    def close(self) -> None:
        """Go; the others hear of it."""
        self._channel.close()

    def _sums(self, tensors: Sequence[Any]) -> list[Any]:
        """Let the hub add tensors up; before the first ones it is told how many bytes they are, and takes no more."""
        flat, shapes = packed(tensors)
        if flat.nbytes != self._channel.payload_longest:
            self._come("sizes", flat.nbytes)
            self._channel.payload_longest = flat.nbytes
        return unpacked(self._come("sum", payload=flat).payload, shapes)

    def _come(self, where: str, value: Any = None, payload: Any = b"") -> Message:
        self._tell({"at": where, "value": value}, payload)
        try:
            answer = self._channel.receive()  # the hub answers in time, or ends
        except ClosedError as error:
            raise RanksError(f"the hub of the ranks has gone: {error}") from error
        if "error" in answer.value:
            raise RanksError(answer.value["error"])
        return answer

    def _tell(self, value: dict[str, Any], payload: Any = b"") -> None:
        try:
            self._channel.send(value, payload)
        except (ClosedError, TimeoutError) as error:
            raise RanksError(f"the hub of the ranks has gone: {error}") from error


def boot() -> str:
    """Return what only processes of one running kernel share; a name of its own where that is not known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename


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
    place = request.get("rank")
    if place is None:
        yield Rank()
        return
    among = Among(place, Path(request["dataset"]) if "dataset" in request else None)
    _here.append(among)
    try:
        among.prepare()
        yield among
        among.leave()
    finally:
        _here.pop()
        among.close()
