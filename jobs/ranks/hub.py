"""The hub, at which the ranks of one run meet, and the metrics of all ranks together.

A rank waits at the hub until all have come, or one has gone. Before the run begins, the hub waits at most `timeout_s`
for a rank.

All times are by the hub's clock, so that no rank's clock must be trusted. The hub is a thread of the process that
starts the run; it never waits for a rank to read or write, so a stalled rank delays no other rank's answer. A rank's
first message is ``{"rank"}``, the others are::

    {"at": "start" | "barrier" | "end" | "leave"}  ->  {"values"}
    {"at": "gather", "value"}                      ->  {"values": those of all ranks, in their order}
    {"at": "sizes", "value": bytes of a payload}   ->  {"values"}; "sum" takes so many from now on
    {"at": "sum"} and a payload of float32         ->  {"values"} and the sums over all ranks
    {"left": time of day}                          no answer

Instead of any answer, ``{"error"}`` says why the run is over.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from jobs.channel import Channel, ClosedError, Message
from jobs.model.results import Run
from jobs.ranks.peers import Listener, Newcomer, new_secret
from jobs.ranks.rank import added

_TICK_S = 0.5
_PAYLOAD_LONGEST = (1 << 32) - 1  # bytes of one message's payload (`jobs.channel`)


@dataclass
class Seen:
    """The hub's observations of one rank, in seconds since it let all begin; None: the rank did not get there."""

    left_s: float | None = None  # latest time at which it began
    clock_s: tuple[float, float] | None = None  # bounds by how much its Unix time is ahead of the hub's
    ended_s: float | None = None  # when it had ended its timed part


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
    fault: str | None = None  # why the run was ended
    late: str = ""  # ranks that others waited for when the first rank left or the hub was closed; empty: none
    seen: list[Seen] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = [Seen() for _ in range(self.size)]
        self._guests: list[_Guest] = []
        self._released: tuple[float, float] | None = None
        self._late_s = time.perf_counter() + self.timeout_s
        self._listener = Listener(self.address, self.secret, self.size)
        self.port: int = self._listener.port
        self._closed, self._wake = threading.Event(), os.eventfd(0)
        self._listener.selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the hub; ranks that still wait see their connection closed."""
        if not self._closed.is_set():
            self._closed.set()
            os.eventfd_write(self._wake, 1)  # the hub need not wait for its next turn
            self._thread.join()
            os.close(self._wake)
        self.late = self.late or self.missing()

    def _serve(self) -> None:
        try:
            while not self._closed.is_set():
                newcomers, others = self._listener.turn(_TICK_S)
                for newcomer in newcomers:
                    self._welcome(newcomer)
                for guest, events in others:
                    if guest in self._guests:  # it may have been removed in this loop
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
        except (ClosedError, KeyError, TypeError, ValueError, OverflowError):
            self._dismiss(guest)

    def _dismiss(self, guest: _Guest) -> None:
        """Remove a rank whose connection is closed; if it has not finished, the run ends."""
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
        """Note the bounds of a rank's start: after its release, and before its message about it."""
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
            positions = ", ".join(f"rank {each.rank} at {each.at}" for each in waiting)
            self._end(f"the ranks do not do the same: {positions}")
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
        # After the start only the time limit of the whole run applies to a slow rank.
        self._late_s = float("inf") if self._released else time.perf_counter() + self.timeout_s

    def _take_sizes(self, waiting: list[_Guest]) -> bool:
        """Set the longest payload of each rank to the agreed size; return whether the ranks agree on a valid size."""
        sizes = [each.value for each in waiting]
        if len(set(sizes)) > 1 or sizes[0] not in range(_PAYLOAD_LONGEST + 1):
            self._end(f"the ranks do not add up the same: {sizes} bytes")
            return False
        for each in waiting:
            each.channel.payload_longest = sizes[0]
        return True

    def missing(self) -> str:
        """Return the sentence on missing ranks, the point where others wait, and strangers; empty if nobody waits."""
        absent = self._absent()
        return absent and f"{absent}{self._others()}"

    def _absent(self) -> str:
        waiting = list(self._waiting)
        here = {guest.rank for guest in waiting}
        missing = [str(rank) for rank in range(self.size) if rank not in here]
        at = next((guest.at for guest in waiting), None)
        return f"rank {', '.join(missing)} did not come where the others wait ({at})" if at and missing else ""

    def _others(self) -> str:
        """Return the words on strangers that connected; empty if there were none."""
        return f"; {others}" if (others := self._listener.strangers()) else ""

    def _end(self, why: str) -> None:
        """End the run: send the reason to all waiting ranks, and later to those that come."""
        self.fault = self.fault or why
        for guest in self._waiting:
            guest.at = None
            self._answer(guest, {"error": self.fault})

    def _answer(self, guest: _Guest, value: dict[str, Any], payload: Any = b"") -> None:
        guest.channel.queue(value, payload)
        with suppress(ClosedError):  # it has gone: reading says so
            self._flush(guest)

    def _flush(self, guest: _Guest) -> None:
        """Send as much as the connection takes now; the rest follows when it takes more."""
        more = 0 if guest.channel.flush() else selectors.EVENT_WRITE
        self._listener.selector.modify(guest.channel, selectors.EVENT_READ | more, guest)


_SUMMED = (
    "images", "images_asked", "image_errors", "bytes_read", "bytes_written", "bytes_asked", "requests",
    "device_bytes", "written_bytes", "to_fetch_bytes", "listed_bytes", "changed_files", "linked_files", "cpu_s",
)  # fmt: skip
_PLACE = ("host", "node", "job", "cpus")  # of a rank alone
_JOINED = ("unreadable", "changed")
_RATES = {
    "images_per_s": ("images", 1.0),
    "read_mb_per_s": ("bytes_read", 1e6),
    "write_mb_per_s": ("bytes_written", 1e6),
}


def combine_ranks(
    ranks: Sequence[Run], seen: Sequence[Seen], combined: Callable[[Sequence[Run]], Mapping[str, Any]]
) -> Run:
    """Return the metrics of all ranks together, from their common start until the last rank has ended.

    Counts are sums, rates are computed over the whole time, and all other metrics are those of the rank that ended
    last. `ranks` are the metrics of each rank, `seen` the times that the hub measured for it; `combined` returns the
    benchmark's metrics that are no simple sums. ``start_skew_s`` is an upper bound for the delay between the first and
    the last start.
    """
    runs: Sequence[Mapping[str, Any]] = ranks
    last = max(range(len(runs)), key=lambda rank: runs[rank]["wall_s"])
    metrics: dict[str, Any] = {key: value for key, value in runs[last].items() if key not in _PLACE}
    metrics |= {key: _of_all(sum, [run.get(key) for run in runs]) for key in _SUMMED if key in metrics}
    metrics |= {key: [each for run in runs for each in run.get(key, ())] for key in _JOINED if key in metrics}
    if "conditions" in metrics:
        metrics["conditions"] = _merged([run["conditions"] for run in runs])
    wall_s = metrics["wall_s"]
    metrics |= {key: metrics[moved] / unit / wall_s for key, (moved, unit) in _RATES.items() if key in metrics}
    metrics |= combined(ranks)
    return cast(
        "Run",
        {
            **metrics,
            "straggler": last,
            "start_skew_s": _of_all(max, [each.left_s for each in seen]),
            "ranks": [_rank(rank, run, each) for rank, (run, each) in enumerate(zip(runs, seen, strict=True))],
        },
    )


def _rank(rank: int, run: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    own = {"rank": rank, "host": run.get("host"), "node": run.get("node")}
    return {**own, "left_s": seen.left_s, "clock_s": seen.clock_s, "ended_s": seen.ended_s, "figures": {**run}}


def _merged(values: Sequence[Any]) -> Any:
    """Return one description of all ranks' conditions: a common value once, different values joined by ``|``."""
    if groups := [each for each in values if isinstance(each, dict)]:
        names = dict.fromkeys(name for group in groups for name in group)
        return {name: _merged([group.get(name, "unset") for group in groups]) for name in names}
    return values[0] if len({*values}) == 1 else " | ".join(sorted({*map(str, values)}))


def _of_all(make: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """Return `make` of all values; None if one value is unknown."""
    numbers = [value for value in values if value is not None]
    return make(numbers) if len(numbers) == len(values) else None
