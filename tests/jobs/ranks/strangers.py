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


@contextlib.contextmanager
def as_nobody(act):
    """Run a function in a child that is another user; the block's value waits for it and returns its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = int(act() or 0)
        finally:
            os._exit(code)
    ended = []

    def wait():
        if not ended:
            ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return ended[0]

    try:
        yield wait
    finally:
        wait()
