"""Strangers at the listener of a job wait for themselves alone: they are bounded, named, and keep nobody out."""

import contextlib
import socket

import pytest

from jobs.ranks import listener as listeners
from jobs.ranks.channel import connect, new_secret
from jobs.ranks.listener import Listener
from tests.jobs.ranks.strangers import as_nobody, needs_root, silent
from tests.jobs.ranks.test_channel import SOON_S, client_of, entered


@pytest.fixture
def listener():
    with contextlib.closing(Listener("127.0.0.1", new_secret(), 1)) as opened:
        yield opened


@pytest.mark.parametrize("number", [9, 300])
def test_silent_connections_keep_no_rank_out_and_are_bounded(listener, number):
    with silent(number, "127.0.0.1", listener.port, lambda: listener.turn(0.0)), client_of(listener) as told:
        newcomer = entered(listener)
        newcomer.channel.send({"in": True})
        strangers = listener._strangers  # noqa: SLF001
        assert len(strangers) <= 65
        assert f"127.0.0.1:{listener.port}: 127.0.0.1 said nothing ({number} times)" in listener.strangers()
    newcomer.channel.close()

    assert told == {"in": True}


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
        while why not in listener.strangers():
            listener.turn(SOON_S)

    assert listener.strangers() == f"others connected to 127.0.0.1:{listener.port}: 127.0.0.1 {why}"


def test_a_silent_one_is_sent_away_when_its_time_is_up(listener, monkeypatch):
    monkeypatch.setattr(listeners, "_HELLO_S", 0.05)
    with silent(1, "127.0.0.1", listener.port) as (stranger,):
        while not listener._sent_away:  # noqa: SLF001
            listener.turn(SOON_S)
        stranger.settimeout(SOON_S)

        while stranger.recv(100):  # the greeting, and then the end
            pass
    assert not listener._strangers  # noqa: SLF001


def test_of_many_kinds_of_strangers_few_words_are_kept(listener):
    for length in range(1, 30):
        with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
            stranger.sendall(b"x" * length)
        before = sum(listener._sent_away.values())  # noqa: SLF001
        while sum(listener._sent_away.values()) == before:  # noqa: SLF001
            listener.turn(SOON_S)

    assert len(listener.strangers().split(", ")) < 12
    assert "others were sent away, too" in listener.strangers()


def test_it_listens_at_the_one_address_that_it_is_given():
    with contextlib.closing(Listener("127.0.0.2", new_secret(), 1)) as listener:
        assert listener._socket.getsockname() == ("127.0.0.2", listener.port)  # noqa: SLF001
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", listener.port))


@needs_root
def test_another_user_who_guesses_does_not_come_in(listener):
    def guess():
        try:
            connect("127.0.0.1", listener.port, "guessed", 1.0)
        except OSError:
            return 0
        return 1

    with as_nobody(guess) as ended:
        while "did not know the secret" not in listener.strangers():
            assert listener.turn(SOON_S)[0] == []
        listener.close()
        assert ended() == 0
