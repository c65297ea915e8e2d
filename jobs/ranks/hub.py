"""Where the ranks of one run meet: who comes waits until all have come, or one has gone.

Until they begin, `timeout_s` is the longest that one is waited for.

All times are by the hub's clock, so that no rank's clock has to be believed. It is a thread of whoever starts the run.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from jobs.ranks.wire import ClosedError, Line

_HELLO_LONGEST = 1 << 12  # bytes of what is read of somebody who has not shown the secret
_TICK_S = 0.5


@dataclass
class Seen:
    """What the hub saw of one rank, in seconds since it let all begin; None: it did not come so far."""

    left_s: float | None = None  # when it was known to have begun: at most so much later than the first one
    clock_s: tuple[float, float] | None = None  # how far its clock of the day is ahead of the hub's: within these
    ended_s: float | None = None  # when its clock had stopped


@dataclass
class _Guest:
    line: Line
    rank: int | None = None
    at: str | None = None  # where it waits
    value: Any = None
    left: bool = False


@dataclass
class Hub:
    """The hub of one run of `size` ranks, on an address of this machine."""

    size: int
    timeout_s: float
    address: str = "127.0.0.1"
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    fault: str | None = None  # what ended the run
    seen: list[Seen] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = [Seen() for _ in range(self.size)]
        self._guests: list[_Guest] = []
        self._released: tuple[float, float] | None = None
        self._late = ""
        self._late_s = time.perf_counter() + self.timeout_s
        self._listener = socket.create_server((self.address, 0), backlog=4 * self.size)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it: who still waits there learns that it has gone."""
        self._closed.set()
        self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._closed.is_set():
                for key, _ in self._selector.select(_TICK_S):
                    if key.data is None:
                        self._welcome()
                    else:
                        self._hear(key.data)
                if time.perf_counter() > self._late_s:
                    self._end(f"{self.missing() or 'no rank came'} within {self.timeout_s:g} s")
                    self._late_s = float("inf")
        finally:
            self._selector.close()
            for guest in self._guests:
                guest.line.close()
            self._listener.close()

    @property
    def _waiting(self) -> list[_Guest]:
        return [guest for guest in self._guests if guest.at is not None]

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone already
            return
        connection.settimeout(self.timeout_s)
        guest = _Guest(Line(connection, _HELLO_LONGEST))
        self._guests.append(guest)
        self._selector.register(guest.line, selectors.EVENT_READ, guest)

    def _hear(self, guest: _Guest) -> None:
        try:
            said = guest.line.arrived(more=True)
            while said is not None:
                self._take(guest, said, time.perf_counter())
                said = guest.line.arrived()
        except (ClosedError, KeyError, TypeError, ValueError):
            self._dismiss(guest)

    def _dismiss(self, guest: _Guest) -> None:
        """Let somebody go; a rank that is not through takes the run with it."""
        self._late = self._late or self.missing()
        self._selector.unregister(guest.line)
        self._guests.remove(guest)
        guest.line.close()
        if guest.rank is not None and not guest.left:
            self._end(f"rank {guest.rank} has gone")

    def _take(self, guest: _Guest, said: dict[str, Any], now_s: float) -> None:
        if guest.rank is None:
            known = hmac.compare_digest(str(said["secret"]), self.secret) and 0 <= int(said["rank"]) < self.size
            if not known or any(other.rank == said["rank"] for other in self._guests):
                raise ValueError
            guest.rank, guest.line.longest = int(said["rank"]), 1 << 24
        elif "left" in said:
            self._note_start(self.seen[guest.rank], said["left"], now_s)
        else:
            self._wait(guest, said, now_s)

    def _note_start(self, seen: Seen, real_s: float, now_s: float) -> None:
        """Bound when a rank began: after it was let go, and before it said so."""
        if self._released:
            released_s, released_real_s = self._released
            seen.left_s = now_s - released_s
            ahead_s = real_s - released_real_s
            seen.clock_s = (ahead_s - seen.left_s, ahead_s)

    def _wait(self, guest: _Guest, said: dict[str, Any], now_s: float) -> None:
        guest.at, guest.value = str(said["at"]), said.get("value")
        if guest.at == "end" and self._released and guest.rank is not None:
            self.seen[guest.rank].ended_s = now_s - self._released[0]
        waiting = self._waiting
        if self.fault:
            self._end(self.fault)
        elif len({each.at for each in waiting}) > 1:
            places = ", ".join(f"rank {each.rank} at {each.at}" for each in waiting)
            self._end(f"the ranks do not do the same: {places}")
        elif len(waiting) == self.size:
            self._let_go(waiting)

    def _let_go(self, waiting: list[_Guest]) -> None:
        where = waiting[0].at
        values = [each.value for each in sorted(waiting, key=lambda each: each.rank or 0)]
        if where == "start":
            self._released = time.perf_counter(), time.time()
        for each in waiting:
            each.at, each.left = None, where == "leave"
        for each in waiting:
            self._answer(each, {"values": values})
        # Once they have begun, a slow one is for the limit of the whole run.
        self._late_s = float("inf") if self._released else time.perf_counter() + self.timeout_s

    def late(self) -> str:
        """Say which ranks the others waited for when the first of all went, or wait for; empty where nobody did."""
        return self._late or self.missing()

    def missing(self) -> str:
        """Say which ranks the others wait for, and where; empty where nobody waits."""
        waiting = list(self._waiting)
        here = {guest.rank for guest in waiting}
        missing = [str(rank) for rank in range(self.size) if rank not in here]
        at = next((guest.at for guest in waiting), None)
        return f"rank {', '.join(missing)} did not come where the others wait ({at})" if at and missing else ""

    def _end(self, why: str) -> None:
        """Tell all who wait why the run is over; who comes later hears the same."""
        self.fault = self.fault or why
        for guest in self._waiting:
            guest.at = None
            self._answer(guest, {"error": self.fault})

    @staticmethod
    def _answer(guest: _Guest, value: dict[str, Any]) -> None:
        with suppress(OSError):  # it has gone: reading says so
            guest.line.send(value)
