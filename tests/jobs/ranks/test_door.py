"""Strangers at the door of a job wait for themselves alone: they are bounded, named, and keep nobody out."""

import contextlib
import socket

import pytest

from jobs.ranks import door as doors
from jobs.ranks.channel import connect, new_secret
from jobs.ranks.door import Door
from tests.jobs.ranks.strangers import as_nobody, needs_root, silent
from tests.jobs.ranks.test_channel import SOON_S, client_of, entered


@pytest.fixture
def door():
    with contextlib.closing(Door("127.0.0.1", new_secret(), 1)) as opened:
        yield opened


@pytest.mark.parametrize("number", [9, 300])
def test_silent_connections_keep_no_rank_out_and_are_bounded(door, number):
    with silent(number, "127.0.0.1", door.port, lambda: door.turn(0.0)), client_of(door) as told:
        newcomer = entered(door)
        newcomer.channel.send({"in": True})
        strangers = door._strangers  # noqa: SLF001
        assert len(strangers) <= 65
        assert f"127.0.0.1:{door.port}: 127.0.0.1 said nothing ({number} times)" in door.strangers()
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
def test_a_stranger_is_sent_away_and_named(door, said, why):
    with socket.create_connection(("127.0.0.1", door.port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        while why not in door.strangers():
            door.turn(SOON_S)

    assert door.strangers() == f"others connected to 127.0.0.1:{door.port}: 127.0.0.1 {why}"


def test_a_silent_one_is_sent_away_when_its_time_is_up(door, monkeypatch):
    monkeypatch.setattr(doors, "_HELLO_S", 0.05)
    with silent(1, "127.0.0.1", door.port) as (stranger,):
        while not door._sent_away:  # noqa: SLF001
            door.turn(SOON_S)
        stranger.settimeout(SOON_S)

        while stranger.recv(100):  # the greeting, and then the end
            pass
    assert not door._strangers  # noqa: SLF001


def test_of_many_kinds_of_strangers_few_words_are_kept(door):
    for length in range(1, 30):
        with socket.create_connection(("127.0.0.1", door.port)) as stranger:
            stranger.sendall(b"x" * length)
        before = sum(door._sent_away.values())  # noqa: SLF001
        while sum(door._sent_away.values()) == before:  # noqa: SLF001
            door.turn(SOON_S)

    assert len(door.strangers().split(", ")) < 12
    assert "others were sent away, too" in door.strangers()


def test_it_listens_at_the_one_address_that_it_is_given():
    with contextlib.closing(Door("127.0.0.2", new_secret(), 1)) as door:
        assert door._listener.getsockname() == ("127.0.0.2", door.port)  # noqa: SLF001
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", door.port))


@needs_root
def test_another_user_who_guesses_does_not_come_in(door):
    def guess():
        try:
            connect("127.0.0.1", door.port, "guessed", 1.0)
        except OSError:
            return 0
        return 1

    with as_nobody(guess) as ended:
        while "did not know the secret" not in door.strangers():
            assert door.turn(SOON_S)[0] == []
        door.close()
        assert ended() == 0
