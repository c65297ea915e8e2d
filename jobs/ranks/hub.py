"""The hub, a server at which the ranks of one run meet, and a function that combines the metrics of all ranks.

A rank waits at the hub until all ranks have come to the same meeting point, or until a rank has disconnected. Before
the run begins, the hub waits for each rank at most `timeout_s` seconds.

All times are measured by the hub's clock, because the clocks of the ranks may differ. The hub is a thread of the
process that starts the run. The hub never waits for a single rank to read or write, so a stalled rank delays no other
rank. The first message of a rank is ``{"rank"}``. The later messages of a rank, and the answers of the hub, are::

    {"at": "start" | "barrier" | "end" | "leave"}  ->  {"values"}
    {"at": "gather", "value"}                      ->  {"values": the values of all ranks, in the order of ranks}
    {"at": "sizes", "value": bytes of a payload}   ->  {"values"}; later messages "sum" have payloads of this size
    {"at": "sum"} and a payload of float32         ->  {"values"} and the sums over all ranks
    {"left": time of day}                          no answer

If the run has failed, the hub answers any message with ``{"error"}``, which has the reason.
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
from jobs.ranks.rank import sum_payloads

_TICK_S = 0.5
_PAYLOAD_LONGEST = (1 << 32) - 1  # bytes of one message's payload (`jobs.channel`)


@dataclass
class RankObservation:
    """The times that the hub has measured for one rank, in seconds since the common start.

    A time is None if the rank did not come so far.
    """

    left_s: float | None = None  # latest possible time at which the rank started its timed part
    # Smallest and largest possible number of seconds by which the rank's Unix time is ahead of the hub's Unix time.
    clock_s: tuple[float, float] | None = None
    ended_s: float | None = None  # time at which the rank ended its timed part


@dataclass
class _Member:
    channel: Channel
    rank: int
    at: str | None = None  # the meeting point at which the rank waits, or None if the rank does not wait
    value: Any = None
    payload: memoryview = field(default_factory=lambda: memoryview(b""))
    left: bool = False  # whether the rank has finished, so that it may disconnect


@dataclass
class Hub:
    """The hub of one run with `size` ranks, which listens on an address of this machine."""

    size: int
    timeout_s: float
    address: str = "127.0.0.1"
    secret: str = field(default_factory=new_secret)
    fault: str | None = None  # the reason why the run has failed
    late: str = ""  # text on the ranks that were missing at a meeting point when a rank disconnected or the hub closed
    observations: list[RankObservation] = field(init=False)

    def __post_init__(self) -> None:
        self.observations = [RankObservation() for _ in range(self.size)]
        self._members: list[_Member] = []
        self._released: tuple[float, float] | None = None
        self._deadline_s = time.perf_counter() + self.timeout_s
        self._listener = Listener(self.address, self.secret, self.size)
        self.port: int = self._listener.port
        self._closed, self._wake = threading.Event(), os.eventfd(0)
        self._listener.selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the hub and close the connections of all ranks."""
        if not self._closed.is_set():
            self._closed.set()
            os.eventfd_write(self._wake, 1)  # wakes the hub's thread
            self._thread.join()
            os.close(self._wake)
        self.late = self.late or self.missing()

    def _serve(self) -> None:
        try:
            while not self._closed.is_set():
                newcomers, others = self._listener.turn(_TICK_S)
                for newcomer in newcomers:
                    self._admit(newcomer)
                for member, events in others:
                    if member in self._members:  # an earlier turn of this loop may have removed the member
                        self._serve_member(member, events)
                if time.perf_counter() > self._deadline_s:
                    missing_text = self._missing_text() or "no rank connected"
                    self._end_run(f"{missing_text} within {self.timeout_s:g} s{self._strangers_text()}")
                    self._deadline_s = float("inf")
        finally:
            self._listener.close()
            for member in self._members:
                member.channel.close()

    @property
    def _waiting_members(self) -> list[_Member]:
        return [member for member in self._members if member.at is not None]

    def _admit(self, newcomer: Newcomer) -> None:
        rank: Any = newcomer.hello.get("rank")
        if rank not in range(self.size) or any(member.rank == rank for member in self._members):
            newcomer.channel.close()
            return
        member = _Member(newcomer.channel, int(rank))
        self._members.append(member)
        self._listener.selector.register(member.channel, selectors.EVENT_READ, member)

    def _serve_member(self, member: _Member, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(member)
            if events & selectors.EVENT_READ and (message := member.channel.message_if_arrived()):
                self._handle(member, message, time.perf_counter())
        except (ClosedError, KeyError, TypeError, ValueError, OverflowError):
            self._dismiss(member)

    def _dismiss(self, member: _Member) -> None:
        """Remove a rank that has disconnected; end the run if the rank had not finished."""
        self.late = self.late or self.missing()
        self._listener.selector.unregister(member.channel)
        self._members.remove(member)
        member.channel.close()
        if not member.left:
            self._end_run(f"rank {member.rank} has disconnected")

    def _handle(self, member: _Member, message: Message, now_s: float) -> None:
        if "left" in message.value:
            self._note_start(self.observations[member.rank], message.value["left"], now_s)
        else:
            self._handle_arrival(member, message, now_s)

    def _note_start(self, seen: RankObservation, real_s: float, now_s: float) -> None:
        """Store the bounds of a rank's start, which is after the release by the hub and before the rank's message."""
        if self._released:
            released_s, released_real_s = self._released
            seen.left_s = now_s - released_s
            ahead_s = real_s - released_real_s
            seen.clock_s = (ahead_s - seen.left_s, ahead_s)

    def _handle_arrival(self, member: _Member, message: Message, now_s: float) -> None:
        member.at, member.value, member.payload = str(message.value["at"]), message.value.get("value"), message.payload
        if member.at == "end" and self._released:
            self.observations[member.rank].ended_s = now_s - self._released[0]
        waiting = self._waiting_members
        if self.fault:
            self._end_run(self.fault)
        elif len({member.at for member in waiting}) > 1:
            positions = ", ".join(f"rank {member.rank} at {member.at}" for member in waiting)
            self._end_run(f"the ranks are at different meeting points: {positions}")
        elif len(waiting) == self.size:
            self._release(sorted(waiting, key=lambda member: member.rank))

    def _release(self, waiting: list[_Member]) -> None:
        point, sums = waiting[0].at, memoryview(b"")
        values = [member.value for member in waiting]
        if point == "start":
            self._released = time.perf_counter(), time.time()
        elif point == "sizes" and not self._take_sizes(waiting):
            return
        elif point == "sum":
            if len({len(member.payload) for member in waiting}) > 1 or len(waiting[0].payload) % 4:
                sizes = [len(member.payload) for member in waiting]
                self._end_run(f"the hub cannot sum tensors of these sizes: {sizes} bytes")
                return
            sums = sum_payloads([member.payload for member in waiting])
        for member in waiting:
            member.at, member.left, member.payload = None, point == "leave", memoryview(b"")
        for member in waiting:
            self._answer(member, {"values": values}, sums)
        # After the start of the run, the hub sets no time limit, because the whole run has a time limit.
        self._deadline_s = float("inf") if self._released else time.perf_counter() + self.timeout_s

    def _take_sizes(self, waiting: list[_Member]) -> bool:
        """Set the largest payload that each rank may send to the size that all ranks have announced.

        If the ranks announce different sizes or an invalid size, end the run and return False.
        """
        sizes = [member.value for member in waiting]
        if len(set(sizes)) > 1 or sizes[0] not in range(_PAYLOAD_LONGEST + 1):
            self._end_run(f"the hub cannot sum tensors of these sizes: {sizes} bytes")
            return False
        for member in waiting:
            member.channel.payload_longest = sizes[0]
        return True

    def missing(self) -> str:
        """Return a text that names the missing ranks, the meeting point, and strangers that connected.

        The text is empty if no rank waits at a meeting point.
        """
        absent = self._missing_text()
        return absent and f"{absent}{self._strangers_text()}"

    def _missing_text(self) -> str:
        waiting = list(self._waiting_members)
        present = {member.rank for member in waiting}
        missing = [str(rank) for rank in range(self.size) if rank not in present]
        point = next((member.at for member in waiting), None)
        return f"rank {', '.join(missing)} did not come to the meeting point {point}" if point and missing else ""

    def _strangers_text(self) -> str:
        """Return a text on strangers that connected, or an empty text without strangers."""
        return f"; {others}" if (others := self._listener.strangers()) else ""

    def _end_run(self, reason: str) -> None:
        """End the run: send the reason to all waiting ranks now, and to other ranks when they come."""
        self.fault = self.fault or reason
        for member in self._waiting_members:
            member.at = None
            self._answer(member, {"error": self.fault})

    def _answer(self, member: _Member, value: dict[str, Any], payload: Any = b"") -> None:
        member.channel.queue(value, payload)
        with suppress(ClosedError):  # a later read from the connection finds that it is closed
            self._flush(member)

    def _flush(self, member: _Member) -> None:
        """Send as many queued bytes as the connection accepts now; send the other bytes when it accepts more."""
        write_event = 0 if member.channel.flush() else selectors.EVENT_WRITE
        self._listener.selector.modify(member.channel, selectors.EVENT_READ | write_event, member)


_SUMS = (
    "images", "images_asked", "image_errors", "bytes_read", "bytes_written", "bytes_asked", "requests",
    "device_bytes", "written_bytes", "to_fetch_bytes", "listed_bytes", "changed_files", "linked_files", "cpu_s",
)  # fmt: skip
_RANK_FACTS = ("host", "node", "job", "cpus")  # facts of single ranks, which are no metrics of the whole run
_LISTS = ("unreadable", "changed")
_RATES = {
    "images_per_s": ("images", 1.0),
    "read_mb_per_s": ("bytes_read", 1e6),
    "write_mb_per_s": ("bytes_written", 1e6),
}


def combine_ranks(
    ranks: Sequence[Run],
    observations: Sequence[RankObservation],
    combined: Callable[[Sequence[Run]], Mapping[str, Any]],
) -> Run:
    """Return the metrics of the whole run, from the common start of all ranks until the last rank has ended.

    Counts are summed over the ranks, and rates are computed over the whole time. All other metrics are the metrics
    of the rank that ended last. `ranks` has the metrics of each rank, and `observations` the times that the hub
    measured for each rank. `combined` returns the metrics of the benchmark that are no sums. ``start_skew_s`` is
    the longest possible time between the first and the last start of a rank.
    """
    runs: Sequence[Mapping[str, Any]] = ranks
    last = max(range(len(runs)), key=lambda rank: runs[rank]["wall_s"])
    metrics: dict[str, Any] = {key: value for key, value in runs[last].items() if key not in _RANK_FACTS}
    metrics |= {key: _combine_known(sum, [run.get(key) for run in runs]) for key in _SUMS if key in metrics}
    metrics |= {key: [item for run in runs for item in run.get(key, ())] for key in _LISTS if key in metrics}
    if "conditions" in metrics:
        metrics["conditions"] = _merge([run["conditions"] for run in runs])
    wall_s = metrics["wall_s"]
    metrics |= {
        key: metrics[amount_key] / unit / wall_s for key, (amount_key, unit) in _RATES.items() if key in metrics
    }
    metrics |= combined(ranks)
    return cast(
        "Run",
        {
            **metrics,
            "straggler": last,
            "start_skew_s": _combine_known(max, [times.left_s for times in observations]),
            "ranks": [
                _describe_rank(rank, run, times)
                for rank, (run, times) in enumerate(zip(runs, observations, strict=True))
            ],
        },
    )


def _describe_rank(rank: int, run: Mapping[str, Any], seen: RankObservation) -> dict[str, Any]:
    place = {"rank": rank, "host": run.get("host"), "node": run.get("node")}
    return {**place, "left_s": seen.left_s, "clock_s": seen.clock_s, "ended_s": seen.ended_s, "figures": {**run}}


def _merge(values: Sequence[Any]) -> Any:
    """Return one description of the conditions of all ranks; different values are joined by ``|``."""
    if groups := [value for value in values if isinstance(value, dict)]:
        names = dict.fromkeys(name for group in groups for name in group)
        return {name: _merge([group.get(name, "unset") for group in groups]) for name in names}
    return values[0] if len({*values}) == 1 else " | ".join(sorted({*map(str, values)}))


def _combine_known(combine: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """Return the result of `combine` for all values, or None if a value is unknown."""
    numbers = [value for value in values if value is not None]
    return combine(numbers) if len(numbers) == len(values) else None
