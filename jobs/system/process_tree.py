"""A program of somebody's with all that it starts: begun in a session of its own, waited for, and ended as a whole.

A keeper stands between: a small process that is the subreaper of what the program starts (``PR_SET_CHILD_SUBREAPER``,
prctl(2)). An orphan, a daemon that has left its session included, becomes the keeper's child: it is waited for, its
time, memory and bytes are in the keeper's account, and it is ended with the rest. Where the process that asked for the
keeper dies, however that happens, the kernel tells the keeper, which ends the tree.

What another program starts for this one is no part of the tree: a container's daemon, ``systemd-run``, ``ssh``, a
server that was there before. A child whose parent ignores SIGCHLD is waited for by the kernel alone; what it did is in
no account but that of the whole machine.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, NamedTuple, cast

import psutil

from jobs.system.programs import python

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_SECTOR_BYTES = 512  # of ru_inblock and ru_oublock, getrusage(2)
_GRACE_S = 5.0  # between SIGTERM and SIGKILL
_KILL_S = 10.0  # in which what is killed ends, unless it waits for a storage that does not answer
_TICK_S = 0.05  # of looking for what is to be ended
ENDING_S = _GRACE_S + _KILL_S + 5.0
"""Seconds in which a tree has ended after it was asked to."""

_libc = ctypes.CDLL(None)


class Ended(NamedTuple):
    """How a program and all that it started ended, and what they did together."""

    exit: int | None  # exit code of the program; None: a signal ended it
    signal: int | None  # the signal
    program_s: float  # from the start of the program to its end
    left_s: float  # from its end to that of the last process that it started
    stopped: bool  # whether the tree was ended before it ended by itself
    alive: list[str]  # processes that could not even be killed, by name
    cpu_s: float  # of all processes that were waited for
    largest_bytes: int  # the memory (RSS) of the largest of them
    read_bytes: int  # from devices, by the processes' accounts
    written_bytes: int
    error: str  # why the program could not be started; empty where it was


class Keeper:
    """The keeper of one program, as the process that asks for it sees it; `begin` starts the program."""

    def __init__(self, argv: Sequence[str], folder: str, environment: Mapping[str, str], output: int) -> None:
        """Start the keeper, which waits; what the program prints goes to the descriptor `output`."""
        self._process = subprocess.Popen(
            python("-m", "jobs.system.process_tree", str(os.getpid()), str(output)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(output,),
            start_new_session=True,
            text=True,
        )
        asked = {"argv": list(argv), "folder": folder, "environment": dict(environment)}
        self._answer = cast("IO[str]", self._process.stdout)
        self._say(json.dumps(asked))
        self._answer.readline()  # it is ready

    @property
    def answer(self) -> int:
        """The descriptor that can be read when the tree has ended."""
        return int(self._answer.fileno())

    def begin(self) -> None:
        """Start the program."""
        self._say("go")

    def stop(self) -> None:
        """Ask for the end of the whole tree: SIGTERM, and SIGKILL after some seconds."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> Ended:
        """Return how the tree ended, when it has; its account is then that of this process, too."""
        line = self._answer.readline()
        self._process.wait()
        if not line:
            raise ChildProcessError("the keeper of the program was killed")
        return Ended(**json.loads(line))

    def close(self) -> None:
        """End what is left of the tree, and the keeper; one that has not begun ends with its input."""
        stdin: Any = self._process.stdin
        with suppress(BrokenPipeError):
            stdin.close()
        if self._process.poll() is None:
            self.stop()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)
        self._answer.close()

    def _say(self, line: str) -> None:
        stdin: Any = self._process.stdin
        with suppress(BrokenPipeError):
            stdin.write(line + "\n")
            stdin.flush()


def adopt_orphans() -> None:
    """Become the parent of each orphan among the descendants of this process."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hear_of_parents_end(parent: int, number: int) -> None:
    """Get the signal `number` when the process `parent`, which started this one, has ended."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class _Tree:
    """The keeper's side."""

    def __init__(self, asked: Mapping[str, Any], output: int) -> None:
        self._asked, self._output = asked, output
        self._status: int | None = None
        self._stopped = False
        self._over_s = self._last_s = 0.0

    def run(self) -> Ended:
        """Start the program and wait for all that it starts; SIGTERM ends it."""
        began_s, error = time.perf_counter(), ""
        try:
            self._pid = self._start()
        except (OSError, subprocess.SubprocessError) as fault:
            self._pid, error, self._over_s = -1, str(fault), began_s
        alive = self._wait() if not error else []
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        over_s = self._over_s or time.perf_counter()
        return Ended(
            exit=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            program_s=over_s - began_s,
            left_s=max(0.0, self._last_s - over_s),
            stopped=self._stopped,
            alive=alive,
            cpu_s=used.ru_utime + used.ru_stime,
            largest_bytes=used.ru_maxrss * 1024,
            read_bytes=used.ru_inblock * _SECTOR_BYTES,
            written_bytes=used.ru_oublock * _SECTOR_BYTES,
            error=error,
        )

    def _start(self) -> int:
        keeper = os.getpid()

        def become() -> None:
            hear_of_parents_end(keeper, signal.SIGKILL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` leaves it ignored, for all that follow
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        process = subprocess.Popen(
            self._asked["argv"],
            cwd=self._asked["folder"],
            env=self._asked["environment"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
            preexec_fn=become,  # noqa: PLW1509 - this process has one thread
        )
        os.close(self._output)
        return process.pid

    def _wait(self) -> list[str]:
        """Wait until nothing is left; returns the names of what cannot be ended."""
        kill_s = give_up_s = float("inf")
        while self._reap():
            now_s = time.perf_counter()
            if now_s >= give_up_s:
                return [_name(each) for each in _descendants()]
            if now_s >= kill_s:
                self._signal(signal.SIGKILL)
            waits = _TICK_S if now_s >= kill_s else min(kill_s - now_s, 3600.0)
            heard = signal.sigtimedwait((signal.SIGCHLD, signal.SIGTERM), max(0.0, waits))
            if heard and heard.si_signo == signal.SIGTERM and not self._stopped:
                self._stopped = True
                kill_s = time.perf_counter() + _GRACE_S
                give_up_s = kill_s + _KILL_S
                self._signal(signal.SIGTERM)
        return []

    def _reap(self) -> bool:
        """Take the status of what has ended; returns whether anything is left."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._last_s = time.perf_counter()
                if found[0] == self._pid:
                    self._status, self._over_s = found[1], self._last_s
        except ChildProcessError:
            return False
        return True

    def _signal(self, number: int) -> None:
        for each in _descendants():
            with suppress(psutil.Error):
                each.send_signal(number)
                if number == signal.SIGTERM:
                    each.send_signal(signal.SIGCONT)  # what was stopped hears it, too


def _descendants() -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process().children(recursive=True)
    return []


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.name()} ({process.pid})"
    return str(process.pid)


def main(parent: int, output: int) -> None:
    """Be the keeper of one program: read what is asked for, wait for the word, answer with how it ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
    adopt_orphans()
    hear_of_parents_end(parent, signal.SIGTERM)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    tree = _Tree(json.loads(sys.stdin.readline()), output)
    print("ready", file=answers)
    if not sys.stdin.readline():
        return  # nobody is there any more
    ended = tree.run()
    with suppress(OSError):
        print(json.dumps(ended._asdict()), file=answers)
    os._exit(0)  # at once: who asked waits for this process, too


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
