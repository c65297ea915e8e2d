"""A process that imports TensorFlow once and forks a fresh child for each run.

Importing TensorFlow costs seconds, forking a process that has imported it a tenth of one; and the fork is taken
before any op or device is touched, so that every run starts with a clean runtime. The protocol is one JSON object a
line: requests on standard input, answers on standard output.

Request: ``{"job": "module:function", "arguments": [{…}, …], "logs": [path, …], "timeout_s": seconds}``.
Answer: a list of ``{"result": {…} | null, "exit": code | null, "signal": number | null, "timed_out": bool,
"left_alone": bool, "elapsed_s": …}``, one for each argument. It comes with the results: a child gives its memory back
while its record is written, and before the next one is forked. The children of a request run at once; where one of them
ends without a result, the others have a short while to do the same, and are killed then.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.system import files

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
    # A run's memory has the job's secret and the user's environment: it is not written beside the results.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
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


class _Child:
    """A child that runs one request, and what it has sent of its result."""

    def __init__(self, job: str, argument: Any, log: str) -> None:
        self.receive, send = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.receive)
            _run_child(job, argument, log, send, parent)
        os.close(send)
        self.text, self.is_open = b"", True
        self.timed_out = self.left_alone = False
        self.ended_at = 0.0

    @property
    def whole(self) -> bool:
        """Whether its result is complete."""
        return self.text.endswith(_END)

    def read(self) -> None:
        """Take what it sends, to the end of its result or to its own."""
        chunk = os.read(self.receive, _CHUNK)
        self.text += chunk
        self.is_open = bool(chunk) and not self.whole
        self.ended_at = time.perf_counter()


@contextlib.contextmanager
def forked(request: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Run one request, at most ``timeout_s``; yields the answer, leaves no process.

    A child that has sent its whole result has succeeded, and only has to end.
    """
    started = time.perf_counter()
    children: list[_Child] = []
    try:
        for argument, log in zip(request["arguments"], request["logs"], strict=True):
            children.append(_Child(request["job"], argument, log))
        _await(children, started + request["timeout_s"])
        well = all(child.whole for child in children)
        if well:
            yield [_end(child, 0, started) for child in children]
        stopped = [child.timed_out or child.left_alone for child in children]
        ends = [_reap(child.pid, 0.0 if stop else _GRACE_S) for child, stop in zip(children, stopped, strict=True)]
    finally:
        for child in children:
            os.close(child.receive)
            _kill_group(child.pid)
    if not well:
        yield [_end(child, status, started) for child, status in zip(children, ends, strict=True)]


def _end(child: _Child, status: int | None, started: float) -> dict[str, Any]:
    """Return the answer of a child that ended so; ``left_alone``: it was stopped because another one failed."""
    code = 0 if child.whole else None if status is None else os.waitstatus_to_exitcode(status)  # of a signal negative
    return {
        "result": json.loads(child.text) if child.whole else None,
        "exit": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "timed_out": child.timed_out,
        "left_alone": child.left_alone,
        "elapsed_s": (child.ended_at or time.perf_counter()) - started,
    }


def _run_child(job: str, argument: Any, log_path: str, send: int, parent: int) -> None:
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
            log = files.begin(Path(log_path))
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        module, _, function = job.partition(":")
        result = getattr(importlib.import_module(module), function)(argument)
        text = json.dumps(result, allow_nan=False).encode() + _END  # nor does a record take what is no number
        _flush()  # whoever has the result finds the log whole
        while text:
            text = text[os.write(send, text) :]
        code = 0
    except BaseException:  # noqa: BLE001 - a run may fail in any way; the log and the exit code say how
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()


def _await(children: list[_Child], deadline: float) -> None:
    """Collect what the children send, each to its end or to that of the child, or to the deadline."""
    stdin, alone_at = sys.stdin.fileno(), float("inf")
    while waiting := {child.receive: child for child in children if child.is_open}:
        left = min(deadline, alone_at) - time.perf_counter()
        ready, _, _ = select.select([*waiting, stdin], [], [], max(0.0, left))
        for receive in waiting.keys() & ready:
            child = waiting[receive]
            child.read()
            if not child.is_open and not child.whole:  # the others cannot go on without it
                alone_at = min(alone_at, child.ended_at + _GRACE_S)
        if ready == [stdin]:
            # One request at a time: more input now can only be the end of it.
            raise _RequesterGoneError
        if not ready and left <= 0:
            for child in waiting.values():
                child.timed_out, child.left_alone = deadline <= alone_at, alone_at < deadline
            return


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
