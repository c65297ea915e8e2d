"""A channel between two processes of one job: the secret stays where it is, and what comes is bounded."""

import contextlib
import errno
import itertools
import json
import secrets
import socket
import struct
import threading

import pytest

from jobs.ranks import channel as channels
from jobs.ranks.channel import (
    CLIENT,
    MAGIC,
    NONCE_BYTES,
    Channel,
    ClosedError,
    StrangerError,
    connect,
    new_secret,
    proof,
)
from jobs.ranks.listener import Listener
from tests.jobs.jobs_factory import eventually
from tests.jobs.ranks.strangers import between

SOON_S = 20.0


@pytest.fixture
def ends():
    """Both ends of one connection, past the greeting."""
    both = [Channel(end) for end in socket.socketpair()]
    yield both
    for end in both:
        end.close()


@pytest.fixture
def listener():
    with contextlib.closing(Listener("127.0.0.1", new_secret(), 1)) as opened:
        yield opened


def entered(listener, rounds=200):
    """The next who comes in."""
    for _ in range(rounds):
        newcomers, _ = listener.turn(0.1)
        if newcomers:
            return newcomers[0]
    raise TimeoutError


@contextlib.contextmanager
def client_of(listener, port=None):
    """A process of the job that connects while the block runs; yields what becomes of it."""
    told = {}

    def come():
        try:
            with contextlib.closing(connect("127.0.0.1", port or listener.port, listener._secret, SOON_S)) as channel:  # noqa: SLF001
                channel.send({"rank": 1})
                told.update(channel.receive(SOON_S).value)
        except OSError as error:
            told["error"] = error

    thread = threading.Thread(target=come)
    thread.start()
    yield told
    thread.join(SOON_S)
    assert not thread.is_alive()


def test_messages_come_as_they_were_sent_with_all_their_bytes(ends):
    one, other = ends
    payload = secrets.token_bytes(5_000_000)  # more than a socket takes at once
    other.payload_longest = len(payload)

    sender = threading.Thread(target=lambda: [one.send({"a": 1}), one.send({"b": "é"}, payload), one.send({})])
    sender.start()
    came = [other.receive(SOON_S) for _ in range(3)]
    sender.join()

    assert [message.value for message in came] == [{"a": 1}, {"b": "é"}, {}]
    assert [bytes(message.payload) for message in came] == [b"", payload, b""]


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("!II", 11, 2),  # one byte beside the JSON more than is allowed
        struct.pack("!II", 0, (1 << 24) + 1),
        struct.pack("!II", 0, 0),
        struct.pack("!II", 0, 5) + b"[1,2]",
        struct.pack("!II", 0, 5) + b"{'a':",
        struct.pack("!II", 0, 100_000) + b"[" * 100_000,
    ],
)
def test_what_is_no_message_or_too_long_ends_the_connection_before_it_is_read(sent):
    near, far = socket.socketpair()
    with far, contextlib.closing(Channel(near)) as channel:
        channel.payload_longest = 10
        far.sendall(sent)

        with pytest.raises(ClosedError, match="what came is no"):
            channel.receive(SOON_S)


class Trickle:
    """A socket that gives a byte at each read, or fails."""

    def __init__(self, error=None):
        self.error = error

    def setsockopt(self, *_):
        pass

    def settimeout(self, _seconds):
        pass

    def fileno(self):
        return 0

    def recv_into(self, view):
        if self.error:
            raise self.error
        view[:1] = b"\1"
        self.error = BlockingIOError()
        return 1


def test_who_sends_a_byte_now_and_then_is_waited_for_no_longer_than_who_is_silent(monkeypatch):
    clock, slow = itertools.count(), Trickle()
    monkeypatch.setattr(channels.time, "monotonic", lambda: float(next(clock)))

    class Poll:
        def register(self, *_):
            pass

        def poll(self, _timeout):
            slow.error = None  # another byte

    monkeypatch.setattr(channels.select, "poll", Poll)
    with pytest.raises(TimeoutError):
        Channel(slow).receive(5.0)

    assert next(clock) < 10


def test_a_connection_that_the_kernel_has_given_up_is_closed():
    lost = TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    with pytest.raises(ClosedError, match="Connection timed out"):
        Channel(Trickle(lost)).receive(5.0)


def test_both_prove_that_they_know_the_secret_and_it_is_not_on_the_wire(listener):
    with between("127.0.0.1", listener.port) as (port, (upwards, downwards)), client_of(listener, port) as told:
        newcomer = entered(listener)
        with contextlib.closing(newcomer.channel) as channel:
            channel.send({"welcome": newcomer.hello["rank"]})

    secret = listener._secret  # noqa: SLF001
    assert told == {"welcome": 1}
    for wire in (bytes(upwards), bytes(downwards)):
        assert len(wire) > 2 * NONCE_BYTES
        assert secret.encode() not in wire
        assert bytes.fromhex(secret) not in wire


def test_what_proved_it_once_proves_nothing_in_another_connection(listener):
    with (
        between("127.0.0.1", listener.port) as (port, (upwards, _)),
        client_of(listener, port),
        contextlib.closing(entered(listener).channel) as first,
    ):
        first.send({})

    with socket.create_connection(("127.0.0.1", listener.port)) as thief:
        thief.sendall(bytes(upwards))
        assert eventually(lambda: listener.turn(0.1) == ([], []) and "did not know the secret" in listener.strangers())


def _reflects(connection, asked):
    """Prove it with the client's own proof."""
    connection.sendall(asked[NONCE_BYTES:])


def _orders(connection, _):
    """Prove nothing; say what is to be done."""
    order = json.dumps({"do": "run", "log": "/tmp/x"}).encode()  # noqa: S108 - no file is made
    connection.sendall(struct.pack("!II", 0, len(order)) + order)


@pytest.mark.parametrize("pretends", [_reflects, _orders])
def test_a_fake_server_learns_no_secret_and_is_not_obeyed(pretends):
    secret, heard = new_secret(), bytearray()

    def serve():
        with listener.accept()[0] as connection:
            connection.sendall(MAGIC + bytes(NONCE_BYTES))  # a nonce of its choice
            heard.extend(connection.recv(1000))
            pretends(connection, bytes(heard))
            with contextlib.suppress(ConnectionResetError):  # the order was not even read
                while chunk := connection.recv(1000):
                    heard.extend(chunk)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(StrangerError, match="does not know the job's secret"):
            connect("127.0.0.1", listener.getsockname()[1], secret, SOON_S)
        thread.join(SOON_S)

    nonce = bytes(heard[:NONCE_BYTES])
    assert bytes(heard) == nonce + proof(secret, CLIENT, bytes(NONCE_BYTES), nonce)  # and nothing else


def test_a_server_that_speaks_otherwise_is_named():
    def serve():
        with listener.accept()[0] as connection:
            connection.sendall(b"SSH-2.0-OpenSSH_9.2" * 10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(StrangerError, match=f"127.0.0.1:{port} is no process of this job"):
            connect("127.0.0.1", port, new_secret(), SOON_S)
        thread.join()
