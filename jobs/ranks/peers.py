"""Authenticated TCP connections between the processes of one job: both sides prove the job's secret without sending it.

The listening process is the server, on one address of its machine; the connecting one is the client. Their first
messages have fixed lengths, so that nothing from a stranger is interpreted::

    server -> client    MAGIC (8 bytes), a nonce (32)
    client -> server    a nonce (32), HMAC-SHA256(secret, "client" + both nonces)
    server -> client    HMAC-SHA256(secret, "server" + both nonces)

A nonce is random and used for one connection, so a proof is worthless in another one; the words "client" and "server"
differ, so a proof cannot be sent back to its sender. The client obeys nobody before the third line. Then both send
messages (`jobs.channel`); until the client's first message it is a stranger to the server. A stranger delays nobody:
it has `_HELLO_S`, and there are at most `_STRANGERS_MOST` more strangers than expected clients. One more makes the
server close the oldest connection; a process of this job then connects again. Nothing is encrypted: the network between
the nodes is trusted to deliver packets to their addresses.
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
_HELLO_S = 10.0  # limit for the first bytes of both sides
_STRANGERS_MOST = 64
_NAMED_MOST = 8  # kinds of refused connections that are reported one by one
_AGAIN_S = 0.2  # wait before a refused client connects again
# A node without power is silent: it is probed after 10 s of silence, and given up after 30 s (tcp(7)).
_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


class StrangerError(ClosedError):
    """Raised if the other side does not know the secret: it is no process of this job."""


def new_secret() -> str:
    """Return a secret that nobody can guess."""
    return secrets.token_hex(32)


def derived(secret: str, purpose: str) -> str:
    """Return a second secret for one purpose, derived from `secret`; it reveals nothing about `secret`."""
    return hmac.digest(secret.encode(), b"purpose " + purpose.encode(), "sha256").hex()


def proof(secret: str, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the proof, valid for one connection, that the side with this role knows the secret."""
    return hmac.digest(secret.encode(), role + server_nonce + client_nonce, "sha256")


def over(connection: socket.socket) -> Channel:
    """Return a channel that takes over a connection."""
    for level, option, value in _ALIVE:
        with suppress(OSError):
            connection.setsockopt(level, option, value)
    return Channel(connection.detach())


def connect(address: str, port: int, secret: str, seconds: float) -> Channel:
    """Return a channel to the server at an address that knows the secret; a refused connection is tried again.

    Raises StrangerError if the server does not know the secret, ClosedError if nobody lets it in within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            channel = over(socket.create_connection((address, port), max(0.001, deadline - time.monotonic())))
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
    """Prove to the server that this process knows the secret; raise StrangerError unless the server proves the same."""

    def next_bytes(count: int) -> bytes:
        return bytes(channel.wait_for(lambda: channel.take(count), select.POLLIN, deadline))

    magic, theirs, ours = next_bytes(len(MAGIC)), next_bytes(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
    if magic != MAGIC:
        raise StrangerError("is no process of this job: it does not speak as one")
    channel.queue_bytes(ours + proof(secret, CLIENT, theirs, ours))
    channel.wait_for(channel.flush, select.POLLOUT, deadline)
    if not hmac.compare_digest(next_bytes(PROOF_BYTES), proof(secret, SERVER, theirs, ours)):
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
        """Return what was wrong with the stranger until now, in words."""
        if self.knows_secret:
            return "knew the secret and sent no message"
        return f"said no more than {self.channel.filled} bytes" if self.channel.filled else "said nothing"


class Listener:
    """A server that accepts processes that know the secret; its user may register other channels with `selector`."""

    def __init__(self, address: str, secret: str, expected: int) -> None:
        self._secret, self._most = secret, _STRANGERS_MOST + expected
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family, backlog=2 * self._most)
        self._socket.settimeout(0.0)
        self.address: str = address
        self.port: int = self._socket.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._socket, selectors.EVENT_READ, self)
        self._strangers: dict[_Stranger, None] = {}  # in the order in which they came
        self._sent_away: Counter[tuple[str, str]] = Counter()

    def turn(self, seconds: float) -> tuple[list[Newcomer], list[tuple[Any, int]]]:
        """Wait at most `seconds` for an event; return the newcomers, and the data and events of the user's channels."""
        until = min((each.deadline for each in self._strangers), default=float("inf"))
        newcomers, others, more = [], [], False
        for key, events in self.selector.select(max(0.0, min(seconds, until - time.monotonic()))):
            if key.data is self:
                more = True
            elif not isinstance(key.data, _Stranger):
                others.append((key.data, events))
            elif newcomer := self._hear(key.data):
                newcomers.append(newcomer)
        if more:  # last: accepting may close the connection of a stranger that has just answered
            self._accept()
        for each in [each for each in self._strangers if each.deadline <= time.monotonic()]:
            self._send_away(each, each.fault())
        return newcomers, others

    def close(self) -> None:
        """Stop listening and close the strangers' connections; accepted channels stay open."""
        for each in list(self._strangers):
            self._send_away(each, each.fault())
        self.selector.close()
        self._socket.close()

    def strangers(self) -> str:
        """Return the sentence on who connected and was not accepted, and why; empty if there is nobody."""
        waiting = Counter((each.address, each.fault()) for each in list(self._strangers))
        words = [
            f"{address} {why}" + (f" ({times} times)" if times > 1 else "")
            for (address, why), times in (Counter(dict(self._sent_away)) + waiting).items()
        ]
        return f"others connected to {self.address}:{self.port}: {', '.join(words)}" if words else ""

    def _accept(self) -> None:
        for _ in range(_STRANGERS_MOST):
            try:
                connection, address = self._socket.accept()
            except OSError:  # there is no other connection, or it has gone already
                return
            if len(self._strangers) >= self._most:
                oldest = next(iter(self._strangers))
                self._send_away(oldest, oldest.fault())
            channel, nonce = over(connection), secrets.token_bytes(NONCE_BYTES)
            stranger = _Stranger(channel, str(address[0]), nonce, time.monotonic() + _HELLO_S)
            self._strangers[stranger] = None
            self.selector.register(channel, selectors.EVENT_READ, stranger)
            channel.queue_bytes(MAGIC + nonce)
            with suppress(ClosedError):  # it has gone: reading says so
                channel.flush()

    def _hear(self, stranger: _Stranger) -> Newcomer | None:
        """Read what a stranger has sent; return a newcomer if it has proved the secret and sent its first message."""
        try:
            if not stranger.knows_secret:
                self._examine(stranger)
            elif message := stranger.channel.arrived():
                self._forget(stranger)
                return Newcomer(stranger.channel, message.value)
        except StrangerError as error:
            self._send_away(stranger, str(error))
        except ClosedError:
            self._send_away(stranger, f"{stranger.fault()} and went away")
        return None

    def _examine(self, stranger: _Stranger) -> None:
        """Read the nonce and the proof of a stranger, no more; send our proof if its proof is right."""
        if (answer := stranger.channel.take(NONCE_BYTES + PROOF_BYTES)) is None:
            return
        theirs = bytes(answer[:NONCE_BYTES])
        if not hmac.compare_digest(answer[NONCE_BYTES:], proof(self._secret, CLIENT, stranger.nonce, theirs)):
            raise StrangerError("did not know the secret")
        stranger.channel.queue_bytes(proof(self._secret, SERVER, stranger.nonce, theirs))
        stranger.channel.flush()
        stranger.knows_secret = True

    def _send_away(self, stranger: _Stranger, why: str) -> None:
        self._forget(stranger)
        stranger.channel.close()
        key = (stranger.address, why)
        if key not in self._sent_away and len(self._sent_away) >= _NAMED_MOST:
            key = ("others", "were sent away, too")
        self._sent_away[key] += 1

    def _forget(self, stranger: _Stranger) -> None:
        del self._strangers[stranger]
        self.selector.unregister(stranger.channel)
