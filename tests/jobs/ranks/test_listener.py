"""Strangers at the listener of a job wait for themselves alone: they are bounded, named, and keep nobody out."""

import contextlib
import socket
import threading

import pytest

from jobs.ranks import listener as listeners
from jobs.ranks.channel import ClosedError, connect
from jobs.ranks.listener import Listener
from tests.jobs.ranks.strangers import SECRET, SOON_S, silent, turned


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
        assert f"127.0.0.1:{listener.port}: 127.0.0.1 said nothing ({number} times)" in listener.strangers()
    newcomers[0].channel.close()

    assert told == {"in": {"rank": 1}}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "said no more than 18 bytes and went away"),
        (b"x" * 10_000, "did not know the secret"),
        (b"", "said nothing and went away"),
    ],
)
def test_a_stranger_is_sent_away_and_named(listener, said, why):
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        turned(listener, lambda: why in listener.strangers())

    assert listener.strangers() == f"others connected to 127.0.0.1:{listener.port}: 127.0.0.1 {why}"


def test_a_silent_one_is_sent_away_when_its_time_is_up(listener, monkeypatch):
    monkeypatch.setattr(listeners, "_HELLO_S", 0.05)
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
    assert words[-1].endswith(", others were sent away, too (21 times)")


def test_it_listens_at_the_one_address_that_it_is_given():
    with (
        contextlib.closing(Listener("127.0.0.2", SECRET, 1)) as listener,
        silent(1, "127.0.0.2", listener.port),
        pytest.raises(ConnectionRefusedError),
    ):
        socket.create_connection(("127.0.0.1", listener.port))


def test_who_guesses_the_secret_does_not_come_in(listener):
    with client_of(listener, "guessed", 0.5) as told:
        turned(listener, lambda: "did not know the secret" in listener.strangers())
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", listener.port))

    assert told == {"error": ClosedError}
