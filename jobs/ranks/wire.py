"""JSON lines over TCP between the processes of one run."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import Any

_LONGEST = 1 << 24  # bytes of a line
_CHUNK = 1 << 16
# A node that loses its power says nothing more: it is asked after 10 s of silence, and given up after 30 s (tcp(7)).
_ALIVE = (
    (socket.TCP_KEEPIDLE, 10),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 4),
    (socket.TCP_USER_TIMEOUT, 30_000),
)


class ClosedError(OSError):
    """The other side has gone, or says what is no line of JSON."""


class Line:
    """A connection of JSON lines; `longest` bytes each.

    `send` and `receive` raise ClosedError, and TimeoutError where the other side is silent for longer than allowed.
    """

    def __init__(self, connection: socket.socket, longest: int = _LONGEST) -> None:
        self.socket = connection
        self.longest = longest
        self._rest = b""
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, value in _ALIVE:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)

    @classmethod
    def to(cls, address: str, port: int, seconds: float) -> Line:
        """Connect."""
        try:
            return cls(socket.create_connection((address, port), timeout=seconds))
        except OSError as error:
            raise ClosedError(f"{address}:{port} does not answer: {error}") from error

    def fileno(self) -> int:
        """Return the descriptor, for select."""
        return self.socket.fileno()

    def send(self, value: dict[str, Any]) -> None:
        """Send one value."""
        text = json.dumps(value, allow_nan=False).encode() + b"\n"
        try:
            self.socket.sendall(text)
        except OSError as error:
            raise ClosedError(str(error)) from error

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Wait so many seconds for all of the next value, None: for ever."""
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while (value := self.arrived()) is None:
                self._wait_until(deadline)
                self._more()
        finally:
            self.socket.settimeout(seconds)
        return value

    def _wait_until(self, deadline: float | None) -> None:
        """Let the next read last until then: who sends a byte now and then is silent, too."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("timed out")
        self.socket.settimeout(left)

    def arrived(self, *, more: bool = False) -> dict[str, Any] | None:
        """Return the next value that is there, after reading what has come where there is `more`; None for none."""
        if more:
            self._more()
        line, found, rest = self._rest.partition(b"\n")
        if not found:
            return None
        self._rest = rest
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # the latter of brackets in brackets
            value = None
        if not isinstance(value, dict):
            raise ClosedError("what came is no JSON object")
        return value

    def _more(self) -> None:
        try:
            chunk = self.socket.recv(_CHUNK)
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:  # with a number the kernel gave the line up
                raise
            raise ClosedError(str(error)) from error
        self._rest += chunk
        if not chunk or len(self._rest) > self.longest:
            raise ClosedError("the connection was closed" if not chunk else "what came is too long")

    def close(self) -> None:
        """End the connection."""
        self.socket.close()
