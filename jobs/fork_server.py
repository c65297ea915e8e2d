"""A process that imports TensorFlow once and forks a fresh child for each run.

Importing TensorFlow costs seconds, forking a process that has imported it a tenth of one; and the fork is taken
before any op or device is touched, so that every run starts with a clean runtime. The protocol is one JSON object a
line: requests on standard input, answers on standard output.

Request: ``{"job": "module:function", "argument": {…}, "log": path, "timeout_s": seconds}``.
Answer: ``{"result": {…} | null, "exit": code | null, "signal": number | null, "timed_out": bool, "elapsed_s": …}``.
It comes with the result: a child gives its memory back while its record is written, and before the next one is forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1  # prctl(2)
_libc = ctypes.CDLL(None)
_CHUNK = 1 << 16
_END = b"\n"  # of a result
_KILL_TIMEOUT_S = 10.0  # a process in an uninterruptible wait (a dead NFS server) outlives SIGKILL
_GRACE_S = 5.0  # a child that has answered has this long to exit before it is killed


class _RequesterGoneError(Exception):
    """Standard input was closed while a run was under way."""


def main() -> None:
    """Import the modules that the command line names, report ready, then serve until standard input closes.

    Of ``module:function`` the function is called, too: it prepares what each child then finds.
    """
    die_with_parent()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not break the protocol
    for word in sys.argv[1:]:
        module, _, function = word.partition(":")
        found = importlib.import_module(module)
        if function:
            getattr(found, function)()
    gc.collect()
    gc.freeze()  # a third of a million objects: a collection of them costs a child tenths of a second, and copied pages
    print(json.dumps({"ready": True, "pid": os.getpid()}), file=answers)
    # One request at a time: behind it nothing is buffered that `select` in `_await` would miss. A torn one is the end.
    with contextlib.suppress(_RequesterGoneError):
        while (line := sys.stdin.buffer.readline()).endswith(b"\n"):
            with forked(json.loads(line)) as answer:
                print(json.dumps(answer), file=answers)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, however that happens."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def forked(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run one request in a child of its own, at most ``timeout_s``; yields the answer, and leaves nothing of the child.

    A child that has sent its whole result has succeeded, and only has to end.
    """
    started = time.perf_counter()
    receive, send = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(receive)
        _run_child(request, send, parent)
    os.close(send)
    try:
        text, timed_out = _await(receive, started + request["timeout_s"])
        whole = text.endswith(_END)
        if whole:
            yield {**_answer(0, started), "result": json.loads(text)}
        status = _reap(child, 0.0 if timed_out else _GRACE_S)
    finally:
        os.close(receive)
        _kill_group(child)
    if not whole:
        code = None if status is None else os.waitstatus_to_exitcode(status)
        yield {**_answer(code, started), "timed_out": timed_out}


def _answer(code: int | None, started: float) -> dict[str, Any]:
    """Return the answer of a child that ended so, without a result; a signal's number comes negative."""
    exited = code is not None and code >= 0
    return {
        "result": None,
        "exit": code if exited else None,
        "signal": -code if code is not None and not exited else None,
        "timed_out": False,
        "elapsed_s": time.perf_counter() - started,
    }


def _run_child(request: dict[str, Any], send: int, parent: int) -> None:
    """Become the run: own session, own log, the result as JSON down the pipe; never returns."""
    code = 1
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != parent:  # the template ended before the line above
            os._exit(1)
        null = os.open(os.devnull, os.O_RDWR)
        log = null  # a full disk takes the log away, not the run
        with contextlib.suppress(OSError):
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        module, _, function = request["job"].partition(":")
        result = getattr(importlib.import_module(module), function)(request["argument"])
        text = json.dumps(result, allow_nan=False).encode() + _END  # nor does a record take what is no number
        while text:
            text = text[os.write(send, text) :]
        code = 0
    except BaseException:  # noqa: BLE001 - a run may fail in any way; the log and the exit code say how
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _await(receive: int, deadline: float) -> tuple[bytes, bool]:
    """Collect what the child sends, to its end or to that of the child; return whether the deadline came first."""
    text = b""
    stdin = sys.stdin.fileno()
    while True:
        left = deadline - time.perf_counter()
        ready, _, _ = select.select([receive, stdin], [], [], max(0.0, left))
        if receive in ready:
            chunk = os.read(receive, _CHUNK)
            if not chunk:
                return text, False
            text += chunk
            if text.endswith(_END):
                return text, False
        elif stdin in ready:
            # One request at a time: more input now can only be the end of it.
            raise _RequesterGoneError
        elif left <= 0:
            return text, True


def _reap(child: int, timeout_s: float) -> int | None:
    """Wait for the child to end; past `timeout_s`, kill it. None where it cannot even be killed: dead storage."""
    status = _ended_within(child, timeout_s)
    if status is None:
        os.kill(child, signal.SIGKILL)  # by its own number too: it may not lead its session yet
        status = _ended_within(child, _KILL_TIMEOUT_S)
    return status


def _ended_within(child: int, seconds: float) -> int | None:
    deadline = time.perf_counter() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.perf_counter() >= deadline:
            return None
        time.sleep(0.001)


def _kill_group(child: int) -> None:
    """Kill what is left of the child's session, its own children too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
