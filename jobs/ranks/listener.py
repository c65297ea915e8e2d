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

from jobs.ranks.channel import (
    CLIENT,
    MAGIC,
    NONCE_BYTES,
    PROOF_BYTES,
    SERVER,
    Channel,
    ClosedError,
    StrangerError,
    proof,
)  # fmt: skip

_HELLO_S = 10.0
_STRANGERS_MOST = 64
_NAMED_MOST = 8  # of those that were sent away


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
        """Say what was wrong with it until now."""
        if self.knows_secret:
            return "knew the secret and sent no message"
        return f"said no more than {self.channel.filled} bytes" if self.channel.filled else "said nothing"


class Listener:
    """Lets in who knows the secret, so many as are `expected`; who uses it may register with its `selector`, too."""

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
        self._socket.close()

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
                connection, place = self._socket.accept()
            except OSError:  # no more of them, or it has gone already
                return
            if len(self._strangers) >= self._most:
                oldest = next(iter(self._strangers))
                self._send_away(oldest, oldest.fault())
            channel, nonce = Channel(connection), secrets.token_bytes(NONCE_BYTES)
            stranger = _Stranger(channel, str(place[0]), nonce, time.monotonic() + _HELLO_S)
            self._strangers[stranger] = None
            self.selector.register(channel, selectors.EVENT_READ, stranger)
            channel.queue_bytes(MAGIC + nonce)
            with suppress(ClosedError):  # it has gone: reading says so
                channel.flush()

    def _hear(self, stranger: _Stranger) -> Newcomer | None:
        """Take what has come of a stranger; returns it where it is none any more."""
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
        """Read no more than a proof is long; answer the right one with ours."""
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
