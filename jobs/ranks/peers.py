"""Authenticated TCP connections between the processes of one job.

The client and the server prove to each other that they know the job's secret, without sending the secret. The server is
the process that listens on one address of its machine, and the client is the process that connects. The first messages
have fixed lengths, so that no data of a stranger must be parsed::

    server -> client    MAGIC (8 bytes), a nonce (32)
    client -> server    a nonce (32), HMAC-SHA256(secret, "client" + both nonces)
    server -> client    HMAC-SHA256(secret, "server" + both nonces)

A nonce is random and used for only one connection, so a proof is useless in another connection. The words "client" and
"server" in the proofs prevent that a proof is sent back to its sender. The client trusts the server after the third
message. Then the client and the server exchange messages of `jobs.channel`.

Until the first such message of a client, the client is a stranger to the server. Strangers cannot delay the server for
long. A stranger has `_HELLO_S` seconds for its first message. The number of strangers is limited to `_STRANGERS_MOST`
more than the expected number of clients. If more strangers connect, the server closes the oldest connection; a process
of this job then connects again. The connections are not encrypted, because the network between the nodes is trusted to
deliver packets to their addresses.
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
_HELLO_S = 10.0  # seconds in which a new connection must prove the secret and send its first message
_STRANGERS_MOST = 64  # connections of strangers that are allowed in addition to the expected clients
_NAMED_MOST = 8  # number of different refused connections that a text names
_RETRY_S = 0.2  # seconds before a refused client connects again
# A node that has lost power sends nothing: the kernel probes a silent connection after 10 s, and closes it after 30 s
# (tcp(7)).
_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


class StrangerError(ClosedError):
    """Raised if the peer of a connection does not know the secret, because it is not a process of this job."""


def new_secret() -> str:
    """Return a new random secret in hexadecimal, which nobody can guess."""
    return secrets.token_hex(32)


def derived_secret(secret: str, purpose: str) -> str:
    """Return a second secret that is derived from `secret` for one purpose, and that reveals nothing about `secret`."""
    return hmac.digest(secret.encode(), b"purpose " + purpose.encode(), "sha256").hex()


def secret_proof(secret: str, role: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the proof that the process with this role (`CLIENT` or `SERVER`) knows the secret.

    The proof is valid only for the connection with these two nonces.
    """
    return hmac.digest(secret.encode(), role + server_nonce + client_nonce, "sha256")


def channel_over(connection: socket.socket) -> Channel:
    """Return a channel that takes over a connected socket, after setting keep-alive options on the socket."""
    for level, option, value in _ALIVE:
        with suppress(OSError):
            connection.setsockopt(level, option, value)
    return Channel(connection.detach())


def connect(address: str, port: int, secret: str, seconds: float) -> Channel:
    """Connect to the server at an address, and return the channel; try again if the server closes the connection.

    Raises StrangerError if the server does not know the secret. Raises ClosedError if the server does not accept this
    process within `seconds`.
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
                raise ClosedError(f"{address}:{port} does not accept this process: {error}") from error
            time.sleep(_RETRY_S)
        else:
            return channel


def _greet(channel: Channel, secret: str, deadline: float) -> None:
    """Prove to the server that this process knows the secret, and check the server's proof.

    Raises StrangerError if the server does not know the secret.
    """

    def next_bytes(count: int) -> bytes:
        return bytes(channel.wait_for(lambda: channel.take(count), select.POLLIN, deadline))

    magic, server_nonce, client_nonce = (
        next_bytes(len(MAGIC)),
        next_bytes(NONCE_BYTES),
        secrets.token_bytes(NONCE_BYTES),
    )
    if magic != MAGIC:
        raise StrangerError("is no process of this job, because it uses another protocol")
    channel.queue_bytes(client_nonce + secret_proof(secret, CLIENT, server_nonce, client_nonce))
    channel.wait_for(channel.flush, select.POLLOUT, deadline)
    if not hmac.compare_digest(next_bytes(PROOF_BYTES), secret_proof(secret, SERVER, server_nonce, client_nonce)):
        raise StrangerError("is no process of this job, because it does not know the job's secret")


class Newcomer(NamedTuple):
    """A process of this job that was just accepted: its channel and its first message."""

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
        """Return a text that says why the stranger is not accepted so far."""
        if self.knows_secret:
            return "knew the secret, but sent no message"
        return f"sent only {self.channel.filled} bytes" if self.channel.filled else "sent nothing"


class Listener:
    """A server that accepts only processes that know the secret; its user may add other channels to `selector`."""

    def __init__(self, address: str, secret: str, expected: int) -> None:
        self._secret, self._strangers_max = secret, _STRANGERS_MOST + expected
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family, backlog=2 * self._strangers_max)
        self._socket.settimeout(0.0)
        self.address: str = address
        self.port: int = self._socket.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._socket, selectors.EVENT_READ, self)
        self._strangers: dict[_Stranger, None] = {}  # an ordered set, the oldest connection first
        self._refused: Counter[tuple[str, str]] = Counter()

    def turn(self, seconds: float) -> tuple[list[Newcomer], list[tuple[Any, int]]]:
        """Wait at most `seconds` for events, and handle the events of strangers.

        Return the newly accepted processes, and (data, events) for each of the user's channels that is ready.
        """
        deadline = min((stranger.deadline for stranger in self._strangers), default=float("inf"))
        newcomers, events_of_others, has_connection = [], [], False
        for key, events in self.selector.select(max(0.0, min(seconds, deadline - time.monotonic()))):
            if key.data is self:
                has_connection = True
            elif not isinstance(key.data, _Stranger):
                events_of_others.append((key.data, events))
            elif newcomer := self._read_from(key.data):
                newcomers.append(newcomer)
        # New connections are accepted last, because this may close the connection of a stranger that has just answered.
        if has_connection:
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
        """Return a text that names processes that were not accepted, with the reasons.

        The text is empty if all processes were accepted.
        """
        unanswered = Counter((stranger.address, stranger.fault()) for stranger in list(self._strangers))
        texts = [
            f"{address} {reason}" + (f" ({times} times)" if times > 1 else "")
            for (address, reason), times in (Counter(dict(self._refused)) + unanswered).items()
        ]
        return f"other processes connected to {self.address}:{self.port}: {', '.join(texts)}" if texts else ""

    def _accept(self) -> None:
        for _ in range(_STRANGERS_MOST):
            try:
                connection, address = self._socket.accept()
            except OSError:  # there is no further connection, or the client has already closed the connection
                return
            if len(self._strangers) >= self._strangers_max:
                oldest = next(iter(self._strangers))
                self._refuse(oldest, oldest.fault())
            channel, nonce = channel_over(connection), secrets.token_bytes(NONCE_BYTES)
            stranger = _Stranger(channel, str(address[0]), nonce, time.monotonic() + _HELLO_S)
            self._strangers[stranger] = None
            self.selector.register(channel, selectors.EVENT_READ, stranger)
            channel.queue_bytes(MAGIC + nonce)
            with suppress(ClosedError):  # a later read from the connection finds that it is closed
                channel.flush()

    def _read_from(self, stranger: _Stranger) -> Newcomer | None:
        """Read from a stranger; return a newcomer if the stranger has proved the secret and sent its first message."""
        try:
            if not stranger.knows_secret:
                self._examine(stranger)
            elif message := stranger.channel.message_if_arrived():
                self._forget(stranger)
                return Newcomer(stranger.channel, message.value)
        except StrangerError as error:
            self._refuse(stranger, str(error))
        except ClosedError:
            self._refuse(stranger, f"{stranger.fault()} and disconnected")
        return None

    def _examine(self, stranger: _Stranger) -> None:
        """Read the nonce and the proof of a stranger; if the stranger's proof is right, send the server's proof.

        Raises StrangerError if the stranger's proof is wrong.
        """
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
            key = ("others", "were refused, too")
        self._refused[key] += 1

    def _forget(self, stranger: _Stranger) -> None:
        del self._strangers[stranger]
        self.selector.unregister(stranger.channel)
