"""Messages between two processes of one job over TCP: each proves that it knows the job's secret, and neither sends it.

Who listens is the server (`jobs.ranks.listener`), who connects the client. Their first bytes have a fixed number, so
that nothing is interpreted that a stranger sends::

    server -> client    MAGIC (8 bytes), a nonce (32)
    client -> server    a nonce (32), HMAC-SHA256(secret, "client" + both nonces)
    server -> client    HMAC-SHA256(secret, "server" + both nonces)

A nonce is random and serves one connection, so a proof is worth nothing in another one; the words differ, so no proof
can be sent back to whom it came from. The client obeys nobody before the third line. Then both send messages::

    bytes of the payload (4), bytes of the JSON (4), the payload, a JSON object

Numbers are big-endian. Before the client has sent its first message it is still a stranger to the server. A payload or
a JSON longer than the receiver allows ends the connection before any of it is read. Nothing is encrypted: the network
between the nodes is trusted to bring packets to where they are addressed.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from jobs.system import untrusted

MAGIC = b"tfio-ch1"
NONCE_BYTES = PROOF_BYTES = 32
CLIENT, SERVER = b"client", b"server"
_HEAD = struct.Struct("!II")
_Result = TypeVar("_Result")
_JSON_LONGEST = 1 << 24  # bytes
_HELLO_S = 10.0  # for the first bytes of both
_SEND_S = 60.0  # for a message to be taken
_AGAIN_S = 0.2  # before a client that was sent away, as one of too many, comes again
# A node that loses its power says nothing more: it is asked after 10 s of silence, and given up after 30 s (tcp(7)).
_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


class ClosedError(OSError):
    """The other side has gone, or sends what is no message."""


class StrangerError(ClosedError):
    """Who answers does not know the secret: it is no process of this job."""


class Message(NamedTuple):
    """A JSON object, and the bytes that came with it."""

    value: dict[str, Any]
    payload: memoryview


def new_secret() -> str:
    """Return a secret that nobody can guess."""
    return secrets.token_hex(32)


def derived(secret: str, purpose: str) -> str:
    """Return the secret for one purpose of who knows another secret; it tells nothing of that one."""
    return hmac.digest(secret.encode(), b"purpose " + purpose.encode(), "sha256").hex()


def proof(secret: str, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return what shows, of one connection, that the side of this role knows the secret."""
    return hmac.digest(secret.encode(), role + server_nonce + client_nonce, "sha256")


class Channel:
    """One end of a connection, which waits only where it says so.

    Raises ClosedError, and TimeoutError where the other side is silent for longer than allowed. One thread may send
    while another one receives.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.payload_longest = 0
        """Bytes that are accepted beside the JSON of a message."""
        self.filled = 0
        """Bytes that have come of what `take` has to return next."""
        self._socket, self._buffer = connection, bytearray()
        self._lengths: tuple[int, int] | None = None  # of the message that comes; None: its head comes
        self._outgoing: deque[memoryview] = deque()
        connection.settimeout(0.0)
        for level, option, value in _ALIVE:
            with suppress(OSError):
                connection.setsockopt(level, option, value)

    def fileno(self) -> int:
        """Return the descriptor, for select."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def send(self, value: dict[str, Any], payload: Any = b"", seconds: float = _SEND_S) -> None:
        """Send a message, and wait until the kernel has taken it."""
        self.queue(value, payload)
        self.wait_for(self.flush, select.POLLOUT, time.monotonic() + seconds)

    def receive(self, seconds: float | None = None) -> Message:
        """Wait so many seconds for all of the next message; None: for ever."""
        deadline = None if seconds is None else time.monotonic() + seconds
        return self.wait_for(self.arrived, select.POLLIN, deadline)

    def queue(self, value: dict[str, Any], payload: Any = b"") -> None:
        """Put a message at the end of what `flush` sends; `payload` has a buffer, which must stay as it is."""
        text = json.dumps(value, allow_nan=False).encode()
        data = memoryview(payload).cast("B") if len(payload) else memoryview(b"")
        head = _HEAD.pack(len(data), len(text))
        self.queue_bytes(*((head, data, text) if data else (head + text,)))

    def queue_bytes(self, *pieces: bytes | memoryview) -> None:
        """Put what is no message at the end of what `flush` sends."""
        self._outgoing.extend(memoryview(piece) for piece in pieces)

    def flush(self) -> bool:
        """Send what the kernel takes without waiting; returns whether nothing is left."""
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[0])
            except BlockingIOError:
                return False
            except OSError as error:
                raise ClosedError(str(error)) from error
            rest = self._outgoing.popleft()[sent:]
            if rest:
                self._outgoing.appendleft(rest)
        return True

    def arrived(self) -> Message | None:
        """Return the next message where all of it has come; never waits."""
        if self._lengths is None:
            if (head := self.take(_HEAD.size)) is None:
                return None
            payload, text = _HEAD.unpack(head)
            if payload > self.payload_longest or not 0 < text <= _JSON_LONGEST:
                raise ClosedError(f"what came is no message: {payload} bytes beside {text} of JSON")
            self._lengths = payload, text
        if (whole := self.take(sum(self._lengths))) is None:
            return None
        (payload, _), self._lengths = self._lengths, None
        try:
            value = untrusted.json_value(whole[payload:], any_number=True)
        except untrusted.UntrustedError:
            value = None
        if not isinstance(value, dict):
            raise ClosedError("what came is no JSON object")
        return Message(value, memoryview(whole)[:payload])

    def take(self, count: int) -> bytearray | None:
        """Return the next `count` bytes where all of them have come; never waits."""
        if not self.filled:
            self._buffer = bytearray(count)
        while self.filled < count:
            try:
                came = self._socket.recv_into(memoryview(self._buffer)[self.filled :])
            except BlockingIOError:
                return None
            except OSError as error:
                raise ClosedError(str(error)) from error
            if not came:
                raise ClosedError("the connection was closed")
            self.filled += came
        whole, self._buffer, self.filled = self._buffer, bytearray(), 0
        return whole

    def wait_for(self, attempt: Callable[[], _Result | None], event: int, deadline: float | None) -> _Result:
        """Try again at each event: who sends a byte now and then comes no later than who is silent."""
        while not (result := attempt()):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("timed out")
            poller = select.poll()
            poller.register(self, event)
            poller.poll(None if left is None else left * 1000)
        return result


def connect(address: str, port: int, secret: str, seconds: float) -> Channel:
    """Connect to who listens there and knows the secret; comes again where it is sent away as one of too many.

    Raises StrangerError where somebody else listens, ClosedError where nobody does.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            channel = Channel(socket.create_connection((address, port), max(0.001, deadline - time.monotonic())))
        except OSError as error:
            raise ClosedError(f"{address}:{port} does not answer: {error}") from error
        try:
            _greet(channel, secret, min(deadline, time.monotonic() + _HELLO_S))
        except StrangerError as error:
            channel.close()
            raise StrangerError(f"who answers at {address}:{port} {error}") from error
        except OSError as error:
            channel.close()
            if deadline - time.monotonic() <= _AGAIN_S:
                raise ClosedError(f"{address}:{port} does not let this process in: {error}") from error
            time.sleep(_AGAIN_S)
        else:
            return channel


def _greet(channel: Channel, secret: str, deadline: float) -> None:
    """Prove to the server that this process knows the secret, and have it prove the same."""

    def next_bytes(count: int) -> bytes:
        return bytes(channel.wait_for(lambda: channel.take(count), select.POLLIN, deadline))

    magic, theirs, ours = next_bytes(len(MAGIC)), next_bytes(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
    if magic != MAGIC:
        raise StrangerError("is no process of this job: it does not speak as one")
    channel.queue_bytes(ours + proof(secret, CLIENT, theirs, ours))
    channel.wait_for(channel.flush, select.POLLOUT, deadline)
    if not hmac.compare_digest(next_bytes(PROOF_BYTES), proof(secret, SERVER, theirs, ours)):
        raise StrangerError("is no process of this job: it does not know the job's secret")
