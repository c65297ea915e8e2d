"""Send messages of limited size between two processes of this project, over a socket or pipes, with a deadline.

`jobs.ranks.peers` checks the process at the other end of a socket before messages are sent. A message is a JSON object
with an optional payload of bytes, for example gradients::

    length of the payload (4 bytes), length of the JSON (4 bytes), the payload, a JSON object

Numbers are big-endian. If the payload or the JSON of a message is longer than the receiver allows, the receiver closes
the connection without reading the message.
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
    """Raised if the other process closed the connection, or sent an invalid message."""


class LargeMessageError(ValueError):
    """Raised for a message whose JSON is too large; such a message is not sent, because the receiver would refuse."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message has {size:,} bytes of JSON, and {limit:,} are allowed")
        self.size, self.limit = size, limit


class Message(NamedTuple):
    """A JSON object and its payload of bytes."""

    value: dict[str, Any]
    payload: memoryview


class Channel:
    """One end of a connection. All methods except `send`, `receive` and `wait_for` return without waiting.

    The methods raise ClosedError if the connection is closed, TimeoutError at the deadline, and LargeMessageError for a
    message that is too large to send. One thread may send while another thread receives.
    """

    def __init__(self, receive_fd: int, send_fd: int | None = None) -> None:
        """Take over one file descriptor for both directions, or one file descriptor per direction."""
        self.sent_longest = JSON_LONGEST
        """Largest JSON of a message to send, in bytes."""
        self.payload_longest = 0
        """Largest payload that this end accepts in a message, in bytes."""
        self.filled = 0
        """Number of bytes received so far for the next result of `take`."""
        self._receives, self._sends = receive_fd, receive_fd if send_fd is None else send_fd
        self._buffer = bytearray()
        # Lengths of the payload and the JSON of the message that is being received; None until the lengths arrive.
        self._lengths: tuple[int, int] | None = None
        self._outgoing: deque[memoryview] = deque()
        for descriptor in {self._receives, self._sends}:
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        """Return the file descriptor on which messages arrive, for use with `select`."""
        return self._receives

    def close(self) -> None:
        """Close the connection."""
        descriptors, self._receives, self._sends = {self._receives, self._sends}, -1, -1
        for descriptor in descriptors - {-1}:
            os.close(descriptor)

    def send(self, value: dict[str, Any], payload: Any = b"", seconds: float | None = _SEND_S) -> None:
        """Send a message, and wait at most `seconds` until the kernel has taken all bytes; None means no time limit."""
        self.queue(value, payload)
        self.wait_for(self.flush, select.POLLOUT, None if seconds is None else time.monotonic() + seconds)

    def receive(self, seconds: float | None = None) -> Message:
        """Return the next message; wait at most `seconds` for the message, or without a time limit if None."""
        deadline = None if seconds is None else time.monotonic() + seconds
        return self.wait_for(self.message_if_arrived, select.POLLIN, deadline)

    def queue(self, value: dict[str, Any], payload: Any = b"") -> None:
        """Append a message to the bytes that `flush` sends; the caller must not change `payload` before it is sent."""
        text = json.dumps(value, allow_nan=False).encode()
        if len(text) > self.sent_longest:
            raise LargeMessageError(len(text), self.sent_longest)
        data = memoryview(payload).cast("B") if len(payload) else memoryview(b"")
        head = _HEAD.pack(len(data), len(text))
        self.queue_bytes(*((head, data, text) if data else (head + text,)))

    def queue_bytes(self, *pieces: bytes | memoryview) -> None:
        """Append raw bytes, without the format of a message, to the bytes that `flush` sends."""
        self._outgoing.extend(memoryview(piece) for piece in pieces)

    def flush(self) -> bool:
        """Send as many bytes as the kernel takes without waiting; return whether all bytes are sent."""
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
        """Return the next message, or None if the message has not arrived completely; this method never waits."""
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
        """Return the next `count` bytes, or None if not all bytes have arrived; this method never waits."""
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
        """Call `attempt` after each event (of `select.poll`) until `attempt` returns a result, and return the result.

        Raises TimeoutError at the deadline.
        """
        while not (result := attempt()):
            seconds = None if deadline is None else deadline - time.monotonic()
            if seconds is not None and seconds <= 0:
                raise TimeoutError("timed out")
            poller = select.poll()
            poller.register(self._sends if event == select.POLLOUT else self._receives, event)
            poller.poll(None if seconds is None else seconds * 1000)
        return result


def wait_for_channels(channels: Iterable[Channel], seconds: float | None) -> list[Channel]:
    """Wait until a channel has data or is closed, and return all such channels.

    Return an empty list after `seconds`; None means no time limit.
    """
    by_number, poller = {channel.fileno(): channel for channel in channels}, select.poll()
    for number in by_number:
        poller.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poller.poll(None if seconds is None else max(0.0, seconds) * 1000)]
