"""Who connects where ranks meet and is none of them."""

import contextlib
import os
import socket
import threading

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@contextlib.contextmanager
def silent(number, address, port, after_each=lambda: None):
    """So many connections that say nothing."""
    with contextlib.ExitStack() as stack:
        strangers = []
        for _ in range(number):
            strangers.append(stack.enter_context(socket.create_connection((address, port))))
            after_each()
        yield strangers


@contextlib.contextmanager
def between(address, port):
    """A relay to a server that keeps all that passes it, as ``(from the client, from the server)``; yields its port."""
    heard = bytearray(), bytearray()

    def pump(source, target, kept):
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                kept.extend(chunk)
                target.sendall(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve():
        with listener.accept()[0] as near, socket.create_connection((address, port)) as far:
            back = threading.Thread(target=pump, args=(far, near, heard[1]))
            back.start()
            pump(near, far, heard[0])
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], heard
    thread.join()


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
