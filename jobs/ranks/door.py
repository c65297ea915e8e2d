"""Where processes of one job come in: a listener on one address of this machine, served by a selector.

Whoever connects is a stranger until it has proved that it knows the secret and has sent its first message
(`jobs.ranks.channel` has the protocol). Nobody waits for a stranger: each has `_HELLO_S`, and there are at most
`_STRANGERS_MOST` at once beside those that are expected. One more sends the oldest away, which comes again where it is
of this job.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.ranks.channel import CLIENT, MAGIC, NONCE_BYTES, PROOF_BYTES, SERVER, Channel, ClosedError, proof

_HELLO_S = 10.0
_STRANGERS_MOST = 64
_NAMED_MOST = 8  # of those that were sent away


class Newcomer(NamedTuple):
    """A process of this job, and its first message."""

    channel: Channel
    hello: dict[str, Any]


@dataclass(eq=False)
class _Stranger:
    connection: socket.socket
    address: str
    nonce: bytes
    deadline: float
    answer: bytes = b""
    channel: Channel | None = None  # when it has proved that it knows the secret

    def fault(self) -> str:
        """Say what was wrong with it until now."""
        if self.channel:
            return "knew the secret and said nothing more"
        return "said nothing" if not self.answer else f"said no more than {len(self.answer)} bytes"


class Door:
    """Lets in who knows the secret, so many as are `expected`; who uses it may register with its `selector`, too."""

    def __init__(self, address: str, secret: str, expected: int) -> None:
        self._secret, self._most = secret, _STRANGERS_MOST + expected
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=2 * self._most)
        self._listener.settimeout(0.0)
        self.address: str = address
        self.port: int = self._listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._listener, selectors.EVENT_READ, self)
        self._strangers: dict[_Stranger, None] = {}  # in the order in which they came
        self._sent_away: Counter[tuple[str, str]] = Counter()

    def turn(self, seconds: float) -> tuple[list[Newcomer], list[tuple[Any, int]]]:
        """Wait at most so long for anything; returns who came in, and the others' data with their events."""
        until = min((each.deadline for each in self._strangers), default=float("inf"))
        newcomers, others, more = [], [], False
        for key, events in self.selector.select(max(0.0, min(seconds, until - time.monotonic()))):
            if key.data is self:
                more = True
            elif not isinstance(key.data, _Stranger):
                others.append((key.data, events))
            elif newcomer := self._hear(key.data):
                newcomers.append(newcomer)
        if more:  # at last: who comes now may send somebody away that has just answered
            self._accept()
        for each in [each for each in self._strangers if each.deadline <= time.monotonic()]:
            self._send_away(each, each.fault())
        return newcomers, others

    def close(self) -> None:
        """Let nobody in any more; who came in stays."""
        for each in list(self._strangers):
            self._send_away(each, each.fault())
        self.selector.close()
        self._listener.close()

    def strangers(self) -> str:
        """Say who connected and was not let in, and why; empty for nobody."""
        waiting = Counter((each.address, each.fault()) for each in list(self._strangers))
        words = [
            f"{address} {why}" + (f" ({times} times)" if times > 1 else "")
            for (address, why), times in (Counter(dict(self._sent_away)) + waiting).items()
        ]
        return f"others connected to {self.address}:{self.port}: {', '.join(words)}" if words else ""

    def _accept(self) -> None:
        for _ in range(_STRANGERS_MOST):
            try:
                connection, place = self._listener.accept()
            except OSError:  # no more of them, or it has gone already
                return
            if len(self._strangers) >= self._most:
                oldest = next(iter(self._strangers))
                self._send_away(oldest, oldest.fault())
            connection.settimeout(0.0)
            nonce = secrets.token_bytes(NONCE_BYTES)
            stranger = _Stranger(connection, str(place[0]), nonce, time.monotonic() + _HELLO_S)
            self._strangers[stranger] = None
            self.selector.register(connection, selectors.EVENT_READ, stranger)
            with suppress(OSError):  # it has gone: reading says so
                connection.send(MAGIC + nonce)

    def _hear(self, stranger: _Stranger) -> Newcomer | None:
        """Take what has come of a stranger; returns it where it is none any more."""
        try:
            if stranger.channel is None:
                self._examine(stranger)
            elif message := stranger.channel.arrived():
                self._forget(stranger)
                return Newcomer(stranger.channel, message.value)
        except BlockingIOError:
            pass
        except ClosedError as error:
            self._send_away(stranger, str(error))
        except OSError:
            self._send_away(stranger, f"{stranger.fault()} and went away")
        return None

    def _examine(self, stranger: _Stranger) -> None:
        """Read no more than a proof is long; answer the right one with ours."""
        whole = NONCE_BYTES + PROOF_BYTES
        chunk = stranger.connection.recv(whole - len(stranger.answer))
        if not chunk:
            raise ClosedError(f"{stranger.fault()} and went away")
        stranger.answer += chunk
        if len(stranger.answer) < whole:
            return
        theirs, shown = stranger.answer[:NONCE_BYTES], stranger.answer[NONCE_BYTES:]
        if not hmac.compare_digest(shown, proof(self._secret, CLIENT, stranger.nonce, theirs)):
            raise ClosedError("did not know the secret")
        stranger.connection.send(proof(self._secret, SERVER, stranger.nonce, theirs))
        stranger.channel = Channel(stranger.connection)

    def _send_away(self, stranger: _Stranger, why: str) -> None:
        self._forget(stranger)
        stranger.connection.close()
        key = (stranger.address, why)
        if key not in self._sent_away and len(self._sent_away) >= _NAMED_MOST:
            key = ("others", "were sent away, too")
        self._sent_away[key] += 1

    def _forget(self, stranger: _Stranger) -> None:
        del self._strangers[stranger]
        self.selector.unregister(stranger.connection)
