"""A channel between two processes of one job: the secret stays where it is, and what comes is bounded."""

import contextlib
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
    SERVER,
    Channel,
    ClosedError,
    StrangerError,
    connect,
    proof,
)
from tests.jobs.ranks.strangers import SECRET, SOON_S, turned

LONGEST_JSON = 1 << 24


@pytest.fixture
def ends():
    """Both ends of one connection, past the greeting."""
    both = [Channel(end) for end in socket.socketpair()]
    yield both
    for end in both:
        end.close()


def test_messages_come_as_they_were_sent_with_all_their_bytes(ends):
    one, other = ends
    payload = secrets.token_bytes(5_000_000)  # more than a socket takes at once
    longest = {"a": "x" * (LONGEST_JSON - len('{"a": ""}'))}
    other.payload_longest = len(payload)

    sender = threading.Thread(target=lambda: [one.send(longest), one.send({"b": "é"}, payload), one.send({})])
    sender.start()
    came = [other.receive(SOON_S) for _ in range(3)]
    sender.join()

    assert [message.value for message in came] == [longest, {"b": "é"}, {}]
    assert [bytes(message.payload) for message in came] == [b"", payload, b""]


@pytest.mark.parametrize(
    ("longest", "sent"),
    [
        (0, struct.pack("!II", 1, 2)),  # one byte beside the JSON more than is allowed
        (10, struct.pack("!II", 11, 2)),
        (10, struct.pack("!II", 0, LONGEST_JSON + 1)),
        (10, struct.pack("!II", 0, 0)),
        (10, struct.pack("!II", 0, 5) + b"[1,2]"),
        (10, struct.pack("!II", 0, 5) + b"{'a':"),
        (10, struct.pack("!II", 0, 100_000) + b"[" * 100_000),
    ],
)
def test_what_is_no_message_or_too_long_ends_the_connection_before_it_is_read(longest, sent):
    near, far = socket.socketpair()
    with far, contextlib.closing(Channel(near)) as channel:
        channel.payload_longest = longest or channel.payload_longest
        far.sendall(sent)

        with pytest.raises(ClosedError, match="what came is no"):
            channel.receive(SOON_S)


def test_who_sends_a_byte_now_and_then_is_waited_for_no_longer_than_who_is_silent():
    near, far = socket.socketpair()
    over = threading.Event()

    def trickle():
        for _ in range(1000):  # for ten seconds or more
            far.send(b"\0")
            if over.wait(0.01):
                return

    with far, contextlib.closing(Channel(near)) as channel:
        channel.payload_longest = 998
        far.sendall(struct.pack("!II", 998, 2))
        thread = threading.Thread(target=trickle)
        thread.start()
        with pytest.raises(TimeoutError):
            channel.receive(0.3)
        over.set()
        thread.join()


def test_a_connection_that_the_other_side_reset_is_closed(ends):
    one, other = ends
    one.send({})
    other.close()  # it had not read what came

    for act in (one.receive, lambda: one.send({})):
        with pytest.raises(ClosedError):
            act()


def test_a_proof_is_of_one_connection_and_the_secret_on_no_wire(listener):
    with socket.create_connection(("127.0.0.1", listener.port), SOON_S) as rank:
        listener.turn(SOON_S)
        greeting, nonce = rank.recv(1000), secrets.token_bytes(NONCE_BYTES)
        said = nonce + proof(SECRET, CLIENT, greeting[len(MAGIC) :], nonce)
        rank.sendall(said)
        listener.turn(SOON_S)
        answer = rank.recv(1000)
        rank.sendall(struct.pack("!II", 0, 2) + b"{}")
        ((newcomer,), _) = listener.turn(SOON_S)
        newcomer.channel.close()
    with socket.create_connection(("127.0.0.1", listener.port)) as thief:
        thief.sendall(said)
        turned(listener, lambda: "did not know the secret" in listener.strangers())

    assert (greeting[: len(MAGIC)], len(greeting)) == (MAGIC, len(MAGIC) + NONCE_BYTES)
    assert answer == proof(SECRET, SERVER, greeting[len(MAGIC) :], nonce)


@contextlib.contextmanager
def serving(*acts):
    """A server that does one of these with each connection, and then ends it; yields its port."""

    def serve():
        for act in acts:
            with listening.accept()[0] as connection, contextlib.suppress(OSError):
                act(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(SOON_S)


def _reflects(connection, asked):
    """Prove it with the client's own proof."""
    connection.sendall(asked[NONCE_BYTES:])


def _orders(connection, _):
    """Prove nothing; say what is to be done."""
    order = json.dumps({"do": "run", "log": "/tmp/x"}).encode()  # noqa: S108 - no file is made
    connection.sendall(struct.pack("!II", 0, len(order)) + order)


def _greets(connection, then):
    """Greet with a nonce of its choice; returns all that the client says."""
    connection.sendall(MAGIC + bytes(NONCE_BYTES))
    heard = connection.recv(1000)
    then(connection, heard)
    with contextlib.suppress(ConnectionResetError):  # what came was not even read
        while chunk := connection.recv(1000):
            heard += chunk
    return heard


@pytest.mark.parametrize("pretends", [_reflects, _orders])
def test_a_fake_server_learns_no_secret_and_is_not_obeyed(pretends):
    heard = []
    act = lambda connection: heard.append(_greets(connection, pretends))  # noqa: E731
    with serving(act, act) as port:
        for _ in "12":
            with pytest.raises(StrangerError, match="does not know the job's secret"):
                connect("127.0.0.1", port, SECRET, SOON_S)

    nonces = [each[:NONCE_BYTES] for each in heard]
    assert heard == [nonce + proof(SECRET, CLIENT, bytes(NONCE_BYTES), nonce) for nonce in nonces]  # and nothing else
    assert len({*nonces}) == 2  # the answer to one connection is none to the next


def test_a_server_that_speaks_otherwise_or_says_nothing_and_where_there_is_none_are_told_apart(monkeypatch):
    def refused(act, seconds=SOON_S):
        with serving(act) as port, pytest.raises(ClosedError) as caught:
            connect("127.0.0.1", port, SECRET, seconds)
        return port, str(caught.value)

    port, why = refused(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2" * 10))
    assert f"127.0.0.1:{port} is no process of this job" in why
    monkeypatch.setattr(channels, "_HELLO_S", 1e6)  # who asks for less waits for less
    assert "does not let this process in" in refused(lambda connection: connection.recv(1), 0.2)[1]
    with pytest.raises(ClosedError, match=f"127.0.0.1:{port} does not answer"):
        connect("127.0.0.1", port, SECRET, SOON_S)


def test_who_is_sent_away_comes_again():
    def lets_in(connection):
        def proves(connection, said):
            connection.sendall(proof(SECRET, SERVER, bytes(NONCE_BYTES), said[:NONCE_BYTES]))

        _greets(connection, proves)

    with serving(lambda _: None, lets_in) as port:
        connect("127.0.0.1", port, SECRET, SOON_S).close()
