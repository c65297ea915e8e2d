"""Run other programs: to their end, or with all processes that they start, which are ended as a whole.

Programs start without our standard input, and their output is kept as text. Between this process and a user's program
stands a keeper: a small process that is the subreaper of what the program starts (``PR_SET_CHILD_SUBREAPER``,
prctl(2)). An orphan, a daemon that has left its session included, becomes the keeper's child: the keeper waits for it,
its time, memory and bytes are in the keeper's account, and it is ended with the rest. If the process that asked for the
keeper dies, the kernel tells the keeper, which ends the tree.

What another program starts for this one is no part of the tree: a container's daemon, ``systemd-run``, ``ssh``, a
server that was there before. A child whose parent ignores SIGCHLD is waited for by the kernel alone; its work is in no
account but that of the whole machine.
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
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import psutil

_OURS = Path(__file__).parents[2]
_LAST_S = 1.0  # in which a killed process ends, unless it waits for a device


def python(*words: str) -> list[str]:
    """Return a command of this Python that takes no file of the current folder for a module.

    In the root of a checkout that is not installed our own modules are such files.
    """
    return [sys.executable, *([] if Path().samefile(_OURS) else ["-P"]), *words]


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float | None = None,
    text: str | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit code; its messages are in English unless `environment` is given.

    It reads `text`, or nothing.
    What is no UTF-8 in its output (a path of somebody's) is replaced. Raises subprocess.TimeoutExpired after `timeout`
    seconds, also where the program waits for a device and cannot be killed: `subprocess.run` would wait with it.
    """
    process = subprocess.Popen(
        command,
        env=os.environ | {"LC_ALL": "C"} if environment is None else environment,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        **options,
    )
    try:
        output = process.communicate(text, timeout=timeout)
    except BaseException:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LAST_S)
        raise
    return subprocess.CompletedProcess(command, process.returncode, *output)


_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_SECTOR_BYTES = 512  # of ru_inblock and ru_oublock, getrusage(2)
_GRACE_S = 5.0  # between SIGTERM and SIGKILL
_KILL_S = 10.0  # in which what is killed ends, unless it waits for a storage that does not answer
_TICK_S = 0.05  # of looking for what is to be ended
ENDING_S = _GRACE_S + _KILL_S + 5.0
"""Seconds in which a tree has ended after it was asked to."""

_libc = ctypes.CDLL(None)


class Ended(NamedTuple):
    """The end of a program and of all that it started, and their work together."""

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
        """Start the keeper, which waits; the program's output goes to the descriptor `output`."""
        self._process = subprocess.Popen(
            python("-m", "jobs.system.programs", str(os.getpid()), str(output)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(output,),
            start_new_session=True,
            text=True,
        )
        request = {"argv": list(argv), "folder": folder, "environment": dict(environment)}
        self._answer = cast("IO[str]", self._process.stdout)
        self._say(json.dumps(request))
        self._answer.readline()  # it is ready

    @property
    def answer(self) -> int:
        """Return the descriptor that can be read when the tree has ended."""
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
        """End the rest of the tree, and the keeper; one that has not begun ends with its input."""
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


def signal_at_parents_end(parent: int, number: int) -> None:
    """Get the signal `number` when the process `parent`, which started this one, has ended."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class _Tree:
    """The keeper's side."""

    def __init__(self, request: Mapping[str, Any], output: int) -> None:
        self._asked, self._output = request, output
        self._status: int | None = None
        self._stopped = False
        self._over_s = self._last_s = 0.0

    def run(self) -> Ended:
        """Start the program and wait for all that it starts; SIGTERM ends it."""
        began_s, error = time.perf_counter(), ""
        try:
            self._program = self._start()
        except (OSError, subprocess.SubprocessError) as fault:
            error, self._over_s = str(fault), began_s
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

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the program; the object must be kept: thrown away, it takes the status of one that ended already."""
        keeper = os.getpid()

        def become() -> None:
            signal_at_parents_end(keeper, signal.SIGKILL)
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
        return process

    def _wait(self) -> list[str]:
        """Wait until no process is left; return the names of those that cannot be ended."""
        kill_s = give_up_s = float("inf")
        while self._reap():
            now_s = time.perf_counter()
            if now_s >= give_up_s:
                return [_name_of_process(each) for each in _descendants()]
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
        """Take the status of processes that have ended; return whether any is left."""
        try:
            while (status := os.waitpid(-1, os.WNOHANG))[0]:
                self._last_s = time.perf_counter()
                if status[0] == self._program.pid:
                    self._status, self._over_s = status[1], self._last_s
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


def _name_of_process(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.name()} ({process.pid})"
    return str(process.pid)


def main(parent: int, output: int) -> None:
    """Keep one program: read the request, wait for the word to begin, answer with how the program ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
    adopt_orphans()
    signal_at_parents_end(parent, signal.SIGTERM)
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
