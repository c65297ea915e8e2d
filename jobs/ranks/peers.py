"""Authenticated TCP connections between the processes of one job: both sides prove the job's secret without sending it.

The listening process is the server, on one address of its machine; the connecting process is the client. Their first
messages have fixed lengths, so that nothing from a stranger is interpreted::

    server -> client    MAGIC (8 bytes), a nonce (32)
    client -> server    a nonce (32), HMAC-SHA256(secret, "client" + both nonces)
    server -> client    HMAC-SHA256(secret, "server" + both nonces)

A nonce is random and used for one connection only, so a proof is worthless in another connection. The words "client"
and "server" differ, so a proof cannot be sent back to its sender. The client trusts the server only after the third
line. Then both send messages (`jobs.channel`); until its first message the client is a stranger to the server. A
stranger delays nobody: it has `_HELLO_S` seconds, and there are at most `_STRANGERS_MOST` more strangers than expected
clients. If there are more, the server closes the oldest connection; a process of this job then connects again. Nothing
is encrypted: the network between the nodes is trusted to deliver packets to their addresses.
"""

from __future__ import annotations

import hmac
import secrets
import select
import selectors
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.channel import Channel, ClosedError

MAGIC = b"tfio-ch1"
NONCE_BYTES = PROOF_BYTES = 32
CLIENT, SERVER = b"client", b"server"
_HELLO_S = 10.0  # seconds for the first bytes of both sides
_STRANGERS_MOST = 64
_NAMED_MOST = 8  # number of kinds of refused connections that are reported
_RETRY_S = 0.2  # seconds before a refused client connects again
# A node without power is silent: it is probed after 10 s, and its connection closed after 30 s (tcp(7)).
_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


class StrangerError(ClosedError):
    """Raised if the other side does not know the secret: it is not a process of this job."""


def new_secret() -> str:
    """Return a secret that nobody can guess."""
    return secrets.token_hex(32)


def derived_secret(secret: str, purpose: str) -> str:
    """Return a second secret for one purpose, derived from `secret`; it reveals nothing about `secret`."""
    return hmac.digest(secret.encode(), b"purpose " + purpose.encode(), "sha256").hex()


def secret_proof(secret: str, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the proof, valid for one connection, that the side with this role knows the secret."""
    return hmac.digest(secret.encode(), role + server_nonce + client_nonce, "sha256")


def channel_over(connection: socket.socket) -> Channel:
    """Return a channel that takes over a connected socket."""
    for level, option, value in _ALIVE:
        with suppress(OSError):
            connection.setsockopt(level, option, value)
    return Channel(connection.detach())


def connect(address: str, port: int, secret: str, seconds: float) -> Channel:
    """Return a channel to the server at an address, which must know the secret; a refused connection is tried again.

    Raises StrangerError if the server does not know the secret, ClosedError if it does not accept us within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            channel = channel_over(socket.create_connection((address, port), max(0.001, deadline - time.monotonic())))
        except OSError as error:
            raise ClosedError(f"{address}:{port} does not answer: {error}") from error
        try:
            _greet(channel, secret, min(deadline, time.monotonic() + _HELLO_S))
        except StrangerError as error:
            channel.close()
            raise StrangerError(f"the process at {address}:{port} {error}") from error
        except OSError as error:
            channel.close()
            if deadline - time.monotonic() <= _RETRY_S:
                raise ClosedError(f"{address}:{port} does not let this process in: {error}") from error
            time.sleep(_RETRY_S)
        else:
            return channel


def _greet(channel: Channel, secret: str, deadline: float) -> None:
    """Prove to the server that this process knows the secret; raise StrangerError if the server does not prove it."""

    def next_bytes(count: int) -> bytes:
        return bytes(channel.wait_for(lambda: channel.take(count), select.POLLIN, deadline))

    magic, server_nonce, client_nonce = (
        next_bytes(len(MAGIC)),
        next_bytes(NONCE_BYTES),
        secrets.token_bytes(NONCE_BYTES),
    )
    if magic != MAGIC:
        raise StrangerError("is no process of this job: it sends other bytes")
    channel.queue_bytes(client_nonce + secret_proof(secret, CLIENT, server_nonce, client_nonce))
    channel.wait_for(channel.flush, select.POLLOUT, deadline)
    if not hmac.compare_digest(next_bytes(PROOF_BYTES), secret_proof(secret, SERVER, server_nonce, client_nonce)):
        raise StrangerError("is no process of this job: it does not know the job's secret")


class Newcomer(NamedTuple):
    """A process of this job, and its first message."""

    channel: Channel
    hello: dict[str, Any]


@dataclass(eq=False)
class _Stranger:
    channel: Channel
    address: str
    nonce: bytes
    deadline: float
    knows_secret: bool = False

    def fault(self) -> str:
        """Return what was wrong with the stranger so far, as text."""
        if self.knows_secret:
            return "knew the secret and sent no message"
        return f"said no more than {self.channel.filled} bytes" if self.channel.filled else "said nothing"


class Listener:
    """A server that accepts processes that know the secret; its user may add other channels to `selector`."""

    def __init__(self, address: str, secret: str, expected: int) -> None:
        self._secret, self._strangers_max = secret, _STRANGERS_MOST + expected
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family, backlog=2 * self._strangers_max)
        self._socket.settimeout(0.0)
        self.address: str = address
        self.port: int = self._socket.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._socket, selectors.EVENT_READ, self)
        self._strangers: dict[_Stranger, None] = {}  # in the order of arrival
        self._refused: Counter[tuple[str, str]] = Counter()

    def turn(self, seconds: float) -> tuple[list[Newcomer], list[tuple[Any, int]]]:
        """Wait at most `seconds` for an event; return newcomers, and data and events of the user's channels."""
        deadline = min((stranger.deadline for stranger in self._strangers), default=float("inf"))
        newcomers, events_of_others, has_connection = [], [], False
        for key, events in self.selector.select(max(0.0, min(seconds, deadline - time.monotonic()))):
            if key.data is self:
                has_connection = True
            elif not isinstance(key.data, _Stranger):
                events_of_others.append((key.data, events))
            elif newcomer := self._read_from(key.data):
                newcomers.append(newcomer)
        if has_connection:  # last, because accepting may close the connection of a stranger that has just answered
            self._accept()
        for stranger in [stranger for stranger in self._strangers if stranger.deadline <= time.monotonic()]:
            self._refuse(stranger, stranger.fault())
        return newcomers, events_of_others

    def close(self) -> None:
        """Stop listening and close the strangers' connections; accepted channels stay open."""
        for stranger in list(self._strangers):
            self._refuse(stranger, stranger.fault())
        self.selector.close()
        self._socket.close()

    def strangers(self) -> str:
        """Return a text on processes that were not accepted, with the reasons; empty without such processes."""
        unanswered = Counter((stranger.address, stranger.fault()) for stranger in list(self._strangers))
        texts = [
            f"{address} {reason}" + (f" ({times} times)" if times > 1 else "")
            for (address, reason), times in (Counter(dict(self._refused)) + unanswered).items()
        ]
        return f"others connected to {self.address}:{self.port}: {', '.join(texts)}" if texts else ""

    def _accept(self) -> None:
        for _ in range(_STRANGERS_MOST):
            try:
                connection, address = self._socket.accept()
            except OSError:  # no further connection, or it is closed already
                return
            if len(self._strangers) >= self._strangers_max:
                oldest = next(iter(self._strangers))
                self._refuse(oldest, oldest.fault())
            channel, nonce = channel_over(connection), secrets.token_bytes(NONCE_BYTES)
            stranger = _Stranger(channel, str(address[0]), nonce, time.monotonic() + _HELLO_S)
            self._strangers[stranger] = None
            self.selector.register(channel, selectors.EVENT_READ, stranger)
            channel.queue_bytes(MAGIC + nonce)
            with suppress(ClosedError):  # a closed connection is found by reading
                channel.flush()

    def _read_from(self, stranger: _Stranger) -> Newcomer | None:
        """Read from a stranger; return a newcomer if it has proved the secret and sent its first message."""
        try:
            if not stranger.knows_secret:
                self._examine(stranger)
            elif message := stranger.channel.message_if_arrived():
                self._forget(stranger)
                return Newcomer(stranger.channel, message.value)
        except StrangerError as error:
            self._refuse(stranger, str(error))
        except ClosedError:
            self._refuse(stranger, f"{stranger.fault()} and went away")
        return None

    def _examine(self, stranger: _Stranger) -> None:
        """Read the nonce and the proof of a stranger, and no more; send our proof if its proof is right."""
        if (answer := stranger.channel.take(NONCE_BYTES + PROOF_BYTES)) is None:
            return
        client_nonce = bytes(answer[:NONCE_BYTES])
        if not hmac.compare_digest(
            answer[NONCE_BYTES:], secret_proof(self._secret, CLIENT, stranger.nonce, client_nonce)
        ):
            raise StrangerError("did not know the secret")
        stranger.channel.queue_bytes(secret_proof(self._secret, SERVER, stranger.nonce, client_nonce))
        stranger.channel.flush()
        stranger.knows_secret = True

    def _refuse(self, stranger: _Stranger, reason: str) -> None:
        self._forget(stranger)
        stranger.channel.close()
        key = (stranger.address, reason)
        if key not in self._refused and len(self._refused) >= _NAMED_MOST:
            key = ("others", "were sent away, too")
        self._refused[key] += 1

    def _forget(self, stranger: _Stranger) -> None:
        del self._strangers[stranger]
        self.selector.unregister(stranger.channel)
