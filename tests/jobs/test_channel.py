"""A channel between two processes of ours: messages come whole, and what comes is bounded, over sockets and pipes."""

import contextlib
import os
import secrets
import socket
import struct
import threading

import pytest

from jobs.channel import Channel, ClosedError, wait_for_channels
from tests.jobs.ranks.strangers import SOON_S

LONGEST_JSON = 1 << 24


@pytest.fixture(params=["socket", "pipes"])
def ends(request):
    """Both ends of one connection, past the greeting."""
    if request.param == "socket":
        both = [Channel(end.detach()) for end in socket.socketpair()]
    else:
        (receives, answers), (asked, sends) = os.pipe(), os.pipe()
        both = [Channel(receives, sends), Channel(asked, answers)]
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
    with far, contextlib.closing(Channel(near.detach())) as channel:
        channel.payload_longest = longest or channel.payload_longest
        far.sendall(sent)

        with pytest.raises(ClosedError, match="received"):
            channel.receive(SOON_S)


def test_who_sends_a_byte_now_and_then_is_waited_for_no_longer_than_who_is_silent():
    near, far = socket.socketpair()
    over = threading.Event()

    def trickle():
        for _ in range(1000):  # for ten seconds or more
            far.send(b"\0")
            if over.wait(0.01):
                return

    with far, contextlib.closing(Channel(near.detach())) as channel:
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


def test_of_several_those_are_ready_at_which_something_comes_or_whose_other_side_has_gone(ends):
    one, other = ends
    with contextlib.closing(Channel(os.eventfd(0))) as silent:
        assert wait_for_channels([one, silent], 0.0) == []
        other.send({})
        assert wait_for_channels([one, silent], SOON_S) == [one]
        assert one.receive(0.0).value == {}
        other.close()
        assert wait_for_channels([silent, one], SOON_S) == [one]
