"""Run a process that imports TensorFlow once, and that forks a new child process for each run.

Importing TensorFlow takes seconds; forking a process that has already imported TensorFlow takes a tenth of a second.
The process forks before it uses any op or device, so that every run starts with a clean runtime. Requests come on
standard input, and answers go to standard output (`jobs.channel`).

Request: ``{"job": "module:function", "arguments": [{…}, …], "logs": [path, …], "timeout_s": seconds}``.
Answer: ``{"result": {…} | null, "exit": code | null, "signal": number | null, "timed_out": bool, "left_alone": bool,
"elapsed_s": …}``, with one answer for each argument.

The answers are sent as soon as all results are complete. So the requester can write the record while the children
exit; the next child is forked only after their exit. The children of one request run at the same time. If one child
ends without a result, all other children are killed after a few seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.channel import JSON_LONGEST, Channel, ClosedError, LargeMessageError, wait_for_channels
from jobs.model.codes import End, RunEnd
from jobs.system import files

_PR_SET_PDEATHSIG = 1  # prctl(2)
_libc = ctypes.CDLL(None)
_KILL_TIMEOUT_S = 10.0  # a process in an uninterruptible wait (a dead NFS server) outlives SIGKILL
_RESULT_LONGEST = JSON_LONGEST - (1 << 20)  # bytes of JSON; leaves space for the end of the run and its log
_GRACE_S = 5.0  # seconds that a child has to exit after its answer before it is killed


def main() -> None:
    """Import the modules named on the command line, report ready, then serve requests until standard input closes.

    For a word ``module:function``, the function is also called, to prepare something that all children use.
    """
    die_with_parent()
    # No core file may be written, because the memory of a run contains the job's secret and the user's environment.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    requester = Channel(os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printed text of libraries must not break the protocol
    for word in sys.argv[1:]:
        module, _, function = word.partition(":")
        imported_module = importlib.import_module(module)
        if function:
            getattr(imported_module, function)()
    gc.collect()
    # Without `freeze`, garbage collection in a child takes tenths of a second and copies the pages of 300,000 objects.
    gc.freeze()
    with contextlib.suppress(ClosedError):
        requester.send({"ready": True})
        while True:
            with forked_children(requester.receive().value, requester) as ends:
                for end in ends:
                    requester.send(end)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the parent process ends for any reason."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Child:
    """A child process that runs one argument of a request, and the result of this child."""

    def __init__(self, job: str, argument: Any, log: str, requester: Channel) -> None:
        receives, sends = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(receives)
            requester.close()  # a run that writes to a wrong file descriptor must not send answers to the requester
            _run_child(job, argument, log, Channel(sends), parent)
        os.close(sends)
        self.channel, self.is_open = Channel(receives), True
        self.answer: dict[str, Any] | None = None
        self.timed_out = self.left_alone = False
        self.ended_at = 0.0

    def hear(self) -> None:
        """Receive available data from the child, and note whether the result is complete or the pipe is closed."""
        with contextlib.suppress(ClosedError):
            message = self.channel.message_if_arrived()
            self.answer = message.value if message else None
            self.is_open = message is None
            return
        self.is_open = False


@contextlib.contextmanager
def forked_children(request: dict[str, Any], requester: Channel) -> Iterator[list[dict[str, Any]]]:
    """Run one request for at most ``timeout_s``, and yield one answer for each child process.

    All processes of the children are killed at the end. A child that has sent its complete result counts as successful,
    whatever its exit code is.
    """
    started = time.perf_counter()
    children: list[_Child] = []
    try:
        for argument, log in zip(request["arguments"], request["logs"], strict=True):
            children.append(_Child(request["job"], argument, log, requester))
        _receive_all(children, requester, started + request["timeout_s"])
        succeeded = all(child.answer for child in children)
        if succeeded:
            yield [_describe_end(child, 0, started) for child in children]
        is_stopped = [child.timed_out or child.left_alone for child in children]
        statuses = [
            _wait_for_end(child.pid, 0.0 if stop else _GRACE_S)
            for child, stop in zip(children, is_stopped, strict=True)
        ]
    finally:
        for child in children:
            child.channel.close()
            _kill_group(child.pid)
    if not succeeded:
        yield [_describe_end(child, status, started) for child, status in zip(children, statuses, strict=True)]


def _describe_end(child: _Child, status: int | None, started: float) -> dict[str, Any]:
    """Return the answer about a child; ``left_alone`` is true if the child was stopped because another child failed."""
    code = 0 if child.answer else None if status is None else os.waitstatus_to_exitcode(status)  # negative for a signal
    return {
        "result": child.answer["result"] if child.answer else None,
        "exit": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "timed_out": child.timed_out,
        "left_alone": child.left_alone,
        "elapsed_s": (child.ended_at or time.perf_counter()) - started,
    }


def _run_child(job: str, argument: Any, log_path: str, channel: Channel, parent: int) -> None:
    """Run the job in the child process, in a new session and with a log of its own; this function never returns.

    The result goes to the parent process as JSON through the pipe.
    """
    code = 1
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != parent:  # the parent process ended before `die_with_parent` took effect
            os._exit(1)
        null = os.open(os.devnull, os.O_RDWR)
        log = null  # the run continues without a log if the disk is full
        with contextlib.suppress(OSError):
            log = files.open_new(Path(log_path))
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        module, _, function = job.partition(":")
        result = getattr(importlib.import_module(module), function)(argument)
        _flush()  # the log must be complete when the parent process receives the result
        channel.sent_longest = _RESULT_LONGEST
        try:
            channel.send({"result": result}, seconds=None)
        except LargeMessageError as error:
            end: End = {"code": RunEnd.LARGE_RESULT, "number": error.size, "limit": error.limit}
            channel.send({"result": {"status": "failed", "end": end}}, seconds=None)
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


def _receive_all(children: list[_Child], requester: Channel, deadline: float) -> None:
    """Receive the results of the children, until every child has sent a result or has ended, or until the deadline."""
    failure_deadline = float("inf")
    while waiting := {child.channel: child for child in children if child.is_open}:
        seconds = min(deadline, failure_deadline) - time.perf_counter()
        ready_channels = wait_for_channels([*waiting, requester], seconds)
        for channel in waiting.keys() & ready_channels:
            child = waiting[channel]
            child.hear()
            child.ended_at = time.perf_counter()
            if not child.is_open and not child.answer:  # the other ranks cannot go on without this child
                failure_deadline = min(failure_deadline, child.ended_at + _GRACE_S)
        if ready_channels == [requester]:
            # No new request comes before the answers, so that readable data can only be the end of standard input.
            raise ClosedError("standard input was closed while a run was under way")
        if not ready_channels and seconds <= 0:
            for child in waiting.values():
                child.timed_out, child.left_alone = deadline <= failure_deadline, failure_deadline < deadline
            return


def _wait_for_end(child: int, timeout_s: float) -> int | None:
    """Wait `timeout_s` for the end of a child, then kill the child; return its wait status.

    Return None if the child survives SIGKILL, which happens if its storage does not answer.
    """
    status = _poll_end(child, timeout_s)
    if status is None:
        os.kill(child, signal.SIGKILL)  # the child may not have its own session yet, so its group cannot be killed
        status = _poll_end(child, _KILL_TIMEOUT_S)
    return status


def _poll_end(child: int, seconds: float) -> int | None:
    deadline = time.perf_counter() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.perf_counter() >= deadline:
            return None
        time.sleep(0.001)


def _kill_group(child: int) -> None:
    """Kill all remaining processes of the child's session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
