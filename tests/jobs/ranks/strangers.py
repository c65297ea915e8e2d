"""Who connects where ranks meet and is none of them."""

import contextlib
import os
import socket
import time

import pytest

from jobs.ranks.peers import new_secret

NOBODY = 65534
SECRET, SOON_S = new_secret(), 20.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def turned(listener, until):
    """Let a listener go on, to whom nobody comes in, until something holds."""
    deadline = time.monotonic() + SOON_S
    while not until():
        assert time.monotonic() < deadline
        assert listener.turn(1.0)[0] == []


@contextlib.contextmanager
def silent(number, address, port, after_each=lambda: None):
    """So many connections that say nothing."""
    with contextlib.ExitStack() as stack:
        strangers = []
        for _ in range(number):
            strangers.append(stack.enter_context(socket.create_connection((address, port), SOON_S)))
            after_each()
        yield strangers
