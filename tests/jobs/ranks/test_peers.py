"""Processes of a job find each other: the secret stays where it is, and strangers wait for themselves alone."""

import contextlib
import json
import secrets
import socket
import struct
import threading

import pytest

from jobs.channel import ClosedError
from jobs.ranks import peers
from jobs.ranks.peers import (
    CLIENT,
    MAGIC,
    NONCE_BYTES,
    SERVER,
    Listener,
    StrangerError,
    connect,
    secret_proof,
)
from tests.jobs.ranks.strangers import SECRET, SOON_S, silent, turned


def test_a_proof_is_of_one_connection_and_the_secret_on_no_wire(listener):
    with socket.create_connection(("127.0.0.1", listener.port), SOON_S) as rank:
        listener.turn(SOON_S)
        greeting, nonce = rank.recv(1000), secrets.token_bytes(NONCE_BYTES)
        said = nonce + secret_proof(SECRET, CLIENT, greeting[len(MAGIC) :], nonce)
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
    assert answer == secret_proof(SECRET, SERVER, greeting[len(MAGIC) :], nonce)


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
    assert heard == [
        nonce + secret_proof(SECRET, CLIENT, bytes(NONCE_BYTES), nonce) for nonce in nonces
    ]  # and nothing else
    assert len({*nonces}) == 2  # the answer to one connection is none to the next


def test_a_server_that_speaks_otherwise_or_says_nothing_and_where_there_is_none_are_told_apart(monkeypatch):
    def refused(act, seconds=SOON_S):
        with serving(act) as port, pytest.raises(ClosedError) as caught:
            connect("127.0.0.1", port, SECRET, seconds)
        return port, str(caught.value)

    port, why = refused(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2" * 10))
    assert f"127.0.0.1:{port} is no process of this job" in why
    monkeypatch.setattr(peers, "_HELLO_S", 1e6)  # who asks for less waits for less
    assert "does not accept this process" in refused(lambda connection: connection.recv(1), 0.2)[1]
    with pytest.raises(ClosedError, match=f"127.0.0.1:{port} does not answer"):
        connect("127.0.0.1", port, SECRET, SOON_S)


def test_who_is_sent_away_comes_again():
    def lets_in(connection):
        def proves(connection, said):
            connection.sendall(secret_proof(SECRET, SERVER, bytes(NONCE_BYTES), said[:NONCE_BYTES]))

        _greets(connection, proves)

    with serving(lambda _: None, lets_in) as port:
        connect("127.0.0.1", port, SECRET, SOON_S).close()


@contextlib.contextmanager
def client_of(listener, secret=SECRET, seconds=SOON_S):
    """A process that connects while the block runs; yields what becomes of it."""
    told = {}

    def come():
        try:
            with contextlib.closing(connect("127.0.0.1", listener.port, secret, seconds)) as channel:
                channel.send({"rank": 1})
                told.update(channel.receive(SOON_S).value)
        except OSError as error:
            told["error"] = type(error)

    thread = threading.Thread(target=come)
    thread.start()
    yield told
    thread.join(SOON_S)
    assert not thread.is_alive()


def inside(listener):
    """How many are there, let in or not."""
    return len(listener.selector.get_map()) - 1  # without its own socket


@pytest.mark.parametrize(("number", "each_is_heard"), [(9, True), (300, True), (130, False)])
def test_silent_connections_keep_no_rank_out_and_are_bounded(listener, number, each_is_heard):
    hear = (lambda: listener.turn(0.0)) if each_is_heard else lambda: None
    with silent(number, "127.0.0.1", listener.port, hear), client_of(listener) as told:
        newcomers = next(came for _ in range(number) if (came := listener.turn(SOON_S)[0]))
        newcomers[0].channel.send({"in": newcomers[0].hello})
        assert inside(listener) == min(number, 64)
        assert f"127.0.0.1:{listener.port}: 127.0.0.1 sent nothing ({number} times)" in listener.strangers()
    newcomers[0].channel.close()

    assert told == {"in": {"rank": 1}}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "sent only 18 bytes and disconnected"),
        (b"x" * 10_000, "did not know the secret"),
        (b"", "sent nothing and disconnected"),
    ],
)
def test_a_stranger_is_sent_away_and_named(listener, said, why):
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        turned(listener, lambda: why in listener.strangers())

    assert listener.strangers() == f"other processes connected to 127.0.0.1:{listener.port}: 127.0.0.1 {why}"


def test_a_silent_one_is_sent_away_when_its_time_is_up(listener, monkeypatch):
    monkeypatch.setattr(peers, "_HELLO_S", 0.05)
    with silent(1, "127.0.0.1", listener.port) as (stranger,):
        listener.turn(SOON_S)
        turned(listener, lambda: not inside(listener))

        while stranger.recv(100):  # the greeting, and then the end
            pass


def test_of_many_kinds_of_strangers_few_words_are_kept(listener):
    for length in range(1, 30):
        with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
            stranger.sendall(b"x" * length)
            listener.turn(SOON_S)
        turned(listener, lambda: not inside(listener))

    words = listener.strangers().partition(": ")[2].split(", 127")
    assert len(words) == 8
    assert words[-1].endswith(", others were refused, too (21 times)")


def test_it_listens_at_the_one_address_that_it_is_given():
    with (
        contextlib.closing(Listener("127.0.0.2", SECRET, 1)) as listener,
        silent(1, "127.0.0.2", listener.port),
        pytest.raises(ConnectionRefusedError),
    ):
        socket.create_connection(("127.0.0.1", listener.port))


def test_who_guesses_the_secret_does_not_come_in(listener):
    with client_of(listener, "guessed") as told:
        turned(listener, lambda: "did not know the secret" in listener.strangers())
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", listener.port))

    assert told == {"error": ClosedError}
