"""Messages between two processes of this project, over a socket or pipes, with a deadline and a bounded size.

`jobs.ranks.peers` checks the peer of a socket beforehand. A message is a JSON object, with a payload of bytes for
gradients::

    length of the payload (4 bytes), length of the JSON (4 bytes), the payload, a JSON object

Numbers are big-endian. If a payload or a JSON is longer than the receiver allows, the receiver closes the connection
without reading it.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from jobs.system import untrusted

_HEAD = struct.Struct("!II")
_Result = TypeVar("_Result")
JSON_LONGEST = 1 << 24
"""Largest JSON of a message, in bytes."""
_SEND_S = 60.0  # seconds to wait until the kernel has taken a message


class ClosedError(OSError):
    """A connection that the other side closed, or on which it sent no valid message."""


class LargeMessageError(ValueError):
    """A message whose JSON is larger than the limit; it is not sent, since the other side would refuse it."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message has {size:,} bytes of JSON, and {limit:,} are allowed")
        self.size, self.limit = size, limit


class Message(NamedTuple):
    """A JSON object and its payload of bytes."""

    value: dict[str, Any]
    payload: memoryview


class Channel:
    """One end of a connection. Its methods return at once, except `send`, `receive` and `wait_for`.

    They raise ClosedError, TimeoutError after too long a wait, and LargeMessageError for a message to send. One thread
    may send while another one receives.
    """

    def __init__(self, receive_fd: int, send_fd: int | None = None) -> None:
        """Take over a descriptor for both directions, or one descriptor per direction."""
        self.sent_longest = JSON_LONGEST
        """Largest JSON of a message to send, in bytes."""
        self.payload_longest = 0
        """Largest accepted payload of a message, in bytes."""
        self.filled = 0
        """Number of bytes received so far of those that `take` will return."""
        self._receives, self._sends = receive_fd, receive_fd if send_fd is None else send_fd
        self._buffer = bytearray()
        self._lengths: tuple[int, int] | None = (
            None  # lengths of payload and JSON of the current message; None before its head
        )
        self._outgoing: deque[memoryview] = deque()
        for descriptor in {self._receives, self._sends}:
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        """Return the descriptor on which messages arrive, for select."""
        return self._receives

    def close(self) -> None:
        """Close the connection."""
        descriptors, self._receives, self._sends = {self._receives, self._sends}, -1, -1
        for descriptor in descriptors - {-1}:
            os.close(descriptor)

    def send(self, value: dict[str, Any], payload: Any = b"", seconds: float | None = _SEND_S) -> None:
        """Send a message and wait at most `seconds` (None: for ever) until the kernel has taken all of it."""
        self.queue(value, payload)
        self.wait_for(self.flush, select.POLLOUT, None if seconds is None else time.monotonic() + seconds)

    def receive(self, seconds: float | None = None) -> Message:
        """Return the next message; wait for it at most `seconds` (None: for ever)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        return self.wait_for(self.message_if_arrived, select.POLLIN, deadline)

    def queue(self, value: dict[str, Any], payload: Any = b"") -> None:
        """Append a message to the bytes that `flush` sends; `payload` must not change until it is sent."""
        text = json.dumps(value, allow_nan=False).encode()
        if len(text) > self.sent_longest:
            raise LargeMessageError(len(text), self.sent_longest)
        data = memoryview(payload).cast("B") if len(payload) else memoryview(b"")
        head = _HEAD.pack(len(data), len(text))
        self.queue_bytes(*((head, data, text) if data else (head + text,)))

    def queue_bytes(self, *pieces: bytes | memoryview) -> None:
        """Append raw bytes, which are no message, to those that `flush` sends."""
        self._outgoing.extend(memoryview(piece) for piece in pieces)

    def flush(self) -> bool:
        """Send as much as the kernel takes without waiting; return whether nothing is left."""
        while self._outgoing:
            try:
                count = os.write(self._sends, self._outgoing[0])
            except BlockingIOError:
                return False
            except OSError as error:
                raise ClosedError(str(error)) from error
            rest = self._outgoing.popleft()[count:]
            if rest:
                self._outgoing.appendleft(rest)
        return True

    def message_if_arrived(self) -> Message | None:
        """Return the next message if it has arrived completely, else None; never waits."""
        if self._lengths is None:
            if (head := self.take(_HEAD.size)) is None:
                return None
            payload_bytes, json_bytes = _HEAD.unpack(head)
            if payload_bytes > self.payload_longest or not 0 < json_bytes <= JSON_LONGEST:
                raise ClosedError(
                    f"the received bytes are no message: {payload_bytes} bytes of payload, {json_bytes} of JSON"
                )
            self._lengths = payload_bytes, json_bytes
        if (content := self.take(sum(self._lengths))) is None:
            return None
        (payload_bytes, _), self._lengths = self._lengths, None
        try:
            value = untrusted.json_value(content[payload_bytes:], any_number=True)
        except untrusted.UntrustedError:
            value = None
        if not isinstance(value, dict):
            raise ClosedError("the received message is no JSON object")
        return Message(value, memoryview(content)[:payload_bytes])

    def take(self, count: int) -> bytearray | None:
        """Return the next `count` bytes if all of them have arrived, else None; never waits."""
        if not self.filled:
            self._buffer = bytearray(count)
        while self.filled < count:
            try:
                received_count = os.readv(self._receives, [memoryview(self._buffer)[self.filled :]])
            except BlockingIOError:
                return None
            except OSError as error:
                raise ClosedError(str(error)) from error
            if not received_count:
                raise ClosedError("the connection was closed")
            self.filled += received_count
        content, self._buffer, self.filled = self._buffer, bytearray(), 0
        return content

    def wait_for(self, attempt: Callable[[], _Result | None], event: int, deadline: float | None) -> _Result:
        """Repeat `attempt` at each event until it has a result, and return it; raise TimeoutError at the deadline."""
        while not (result := attempt()):
            seconds = None if deadline is None else deadline - time.monotonic()
            if seconds is not None and seconds <= 0:
                raise TimeoutError("timed out")
            poller = select.poll()
            poller.register(self._sends if event == select.POLLOUT else self._receives, event)
            poller.poll(None if seconds is None else seconds * 1000)
        return result


def wait_for_channels(channels: Iterable[Channel], seconds: float | None) -> list[Channel]:
    """Return the channels with data or a closed end; wait for them at most `seconds` (None: for ever)."""
    by_number, poller = {channel.fileno(): channel for channel in channels}, select.poll()
    for number in by_number:
        poller.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poller.poll(None if seconds is None else max(0.0, seconds) * 1000)]
