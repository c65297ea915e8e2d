"""Where the ranks of one run meet: who comes waits until all have come, or one has gone.

Until they begin, `timeout_s` is the longest that one is waited for.

All times are by the hub's clock, so that no rank's clock has to be believed. It is a thread of whoever starts the run;
it never waits for a rank to read or write, so that one that stalls delays nobody else's answer. A rank's first message
is ``{"rank"}``, the others are::

    {"at": "start" | "barrier" | "end" | "leave"}  ->  {"values"}
    {"at": "gather", "value"}                      ->  {"values": those of all ranks, in their order}
    {"at": "sizes", "value": bytes of a payload}   ->  {"values"}; "sum" takes so many from now on
    {"at": "sum"} and a payload of float32         ->  {"values"} and the sums over all ranks
    {"left": time of day}                          no answer

Instead of any answer, ``{"error"}`` says why the run is over.
"""

from __future__ import annotations

import selectors
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from jobs.ranks.channel import Channel, ClosedError, Message, new_secret
from jobs.ranks.gradients import added
from jobs.ranks.listener import Listener, Newcomer

_TICK_S = 0.5
_PAYLOAD_LONGEST = (1 << 32) - 1  # bytes of one message's payload (`jobs.ranks.channel`)


@dataclass
class Seen:
    """What the hub saw of one rank, in seconds since it let all begin; None: it did not come so far."""

    left_s: float | None = None  # when it was known to have begun: at most so much later than the first one
    clock_s: tuple[float, float] | None = None  # how far its clock of the day is ahead of the hub's: within these
    ended_s: float | None = None  # when its clock had stopped


@dataclass
class _Guest:
    channel: Channel
    rank: int
    at: str | None = None  # where it waits
    value: Any = None
    payload: memoryview = field(default_factory=lambda: memoryview(b""))
    left: bool = False


@dataclass
class Hub:
    """The hub of one run of `size` ranks, on an address of this machine."""

    size: int
    timeout_s: float
    address: str = "127.0.0.1"
    secret: str = field(default_factory=new_secret)
    fault: str | None = None  # what ended the run
    late: str = ""  # whom the others waited for when the first of all went, or the hub was closed; empty for nobody
    seen: list[Seen] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = [Seen() for _ in range(self.size)]
        self._guests: list[_Guest] = []
        self._released: tuple[float, float] | None = None
        self._late_s = time.perf_counter() + self.timeout_s
        self._listener = Listener(self.address, self.secret, self.size)
        self.port: int = self._listener.port
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it: who still waits there learns that it has gone."""
        self._closed.set()
        self._thread.join()
        self.late = self.late or self.missing()

    def _serve(self) -> None:
        try:
            while not self._closed.is_set():
                newcomers, others = self._listener.turn(_TICK_S)
                for newcomer in newcomers:
                    self._welcome(newcomer)
                for guest, events in others:
                    if guest in self._guests:  # another one may have taken the run with it
                        self._attend(guest, events)
                if time.perf_counter() > self._late_s:
                    self._end(f"{self._absent() or 'no rank came'} within {self.timeout_s:g} s{self._others()}")
                    self._late_s = float("inf")
        finally:
            self._listener.close()
            for guest in self._guests:
                guest.channel.close()

    @property
    def _waiting(self) -> list[_Guest]:
        return [guest for guest in self._guests if guest.at is not None]

    def _welcome(self, newcomer: Newcomer) -> None:
        rank: Any = newcomer.hello.get("rank")
        if rank not in range(self.size) or any(guest.rank == rank for guest in self._guests):
            newcomer.channel.close()
            return
        guest = _Guest(newcomer.channel, int(rank))
        self._guests.append(guest)
        self._listener.selector.register(guest.channel, selectors.EVENT_READ, guest)

    def _attend(self, guest: _Guest, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(guest)
            if events & selectors.EVENT_READ and (message := guest.channel.arrived()):
                self._take(guest, message, time.perf_counter())
        except (ClosedError, KeyError, TypeError, ValueError):
            self._dismiss(guest)

    def _dismiss(self, guest: _Guest) -> None:
        """Let a rank go; one that is not through takes the run with it."""
        self.late = self.late or self.missing()
        self._listener.selector.unregister(guest.channel)
        self._guests.remove(guest)
        guest.channel.close()
        if not guest.left:
            self._end(f"rank {guest.rank} has gone")

    def _take(self, guest: _Guest, message: Message, now_s: float) -> None:
        if "left" in message.value:
            self._note_start(self.seen[guest.rank], message.value["left"], now_s)
        else:
            self._wait(guest, message, now_s)

    def _note_start(self, seen: Seen, real_s: float, now_s: float) -> None:
        """Bound when a rank began: after it was let go, and before it said so."""
        if self._released:
            released_s, released_real_s = self._released
            seen.left_s = now_s - released_s
            ahead_s = real_s - released_real_s
            seen.clock_s = (ahead_s - seen.left_s, ahead_s)

    def _wait(self, guest: _Guest, message: Message, now_s: float) -> None:
        guest.at, guest.value, guest.payload = str(message.value["at"]), message.value.get("value"), message.payload
        if guest.at == "end" and self._released:
            self.seen[guest.rank].ended_s = now_s - self._released[0]
        waiting = self._waiting
        if self.fault:
            self._end(self.fault)
        elif len({each.at for each in waiting}) > 1:
            places = ", ".join(f"rank {each.rank} at {each.at}" for each in waiting)
            self._end(f"the ranks do not do the same: {places}")
        elif len(waiting) == self.size:
            self._let_go(sorted(waiting, key=lambda each: each.rank))

    def _let_go(self, waiting: list[_Guest]) -> None:
        where, sums = waiting[0].at, memoryview(b"")
        values = [each.value for each in waiting]
        if where == "start":
            self._released = time.perf_counter(), time.time()
        elif where == "sizes" and not self._take_sizes(waiting):
            return
        elif where == "sum":
            if len({len(each.payload) for each in waiting}) > 1 or len(waiting[0].payload) % 4:
                self._end(f"the ranks do not add up the same: {[len(each.payload) for each in waiting]} bytes")
                return
            sums = added([each.payload for each in waiting])
        for each in waiting:
            each.at, each.left, each.payload = None, where == "leave", memoryview(b"")
        for each in waiting:
            self._answer(each, {"values": values}, sums)
        # Once they have begun, a slow one is for the limit of the whole run.
        self._late_s = float("inf") if self._released else time.perf_counter() + self.timeout_s

    def _take_sizes(self, waiting: list[_Guest]) -> bool:
        """Accept of each rank what all of them add up from now on, and no more; returns whether that is one number."""
        sizes = [each.value for each in waiting]
        if len(set(sizes)) > 1 or sizes[0] not in range(_PAYLOAD_LONGEST + 1):
            self._end(f"the ranks do not add up the same: {sizes} bytes")
            return False
        for each in waiting:
            each.channel.payload_longest = sizes[0]
        return True

    def missing(self) -> str:
        """Say which ranks the others wait for, where, and who else came instead; empty where nobody waits."""
        absent = self._absent()
        return absent and f"{absent}{self._others()}"

    def _absent(self) -> str:
        waiting = list(self._waiting)
        here = {guest.rank for guest in waiting}
        missing = [str(rank) for rank in range(self.size) if rank not in here]
        at = next((guest.at for guest in waiting), None)
        return f"rank {', '.join(missing)} did not come where the others wait ({at})" if at and missing else ""

    def _others(self) -> str:
        """Say who else connected; empty for nobody."""
        return f"; {others}" if (others := self._listener.strangers()) else ""

    def _end(self, why: str) -> None:
        """Tell all who wait why the run is over; who comes later hears the same."""
        self.fault = self.fault or why
        for guest in self._waiting:
            guest.at = None
            self._answer(guest, {"error": self.fault})

    def _answer(self, guest: _Guest, value: dict[str, Any], payload: Any = b"") -> None:
        guest.channel.queue(value, payload)
        with suppress(ClosedError):  # it has gone: reading says so
            self._flush(guest)

    def _flush(self, guest: _Guest) -> None:
        """Send what it takes now; the rest when it takes more."""
        more = 0 if guest.channel.flush() else selectors.EVENT_WRITE
        self._listener.selector.modify(guest.channel, selectors.EVENT_READ | more, guest)
