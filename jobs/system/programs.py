"""Run other programs: alone, or together with all processes that they start, which are ended with them.

Programs start without standard input of this process; their output is kept as text. A keeper stands between this
process and a user's program: a small process that is the subreaper of the program's descendants
(``PR_SET_CHILD_SUBREAPER``, prctl(2)). An orphan, even a daemon in a session of its own, becomes the keeper's child.
The keeper waits for it, ends it with the rest, and has its time, memory and bytes in its account. If the process that
started the keeper dies, the kernel signals the keeper, which ends all processes.

Processes that another program starts on request are not included: those of a container's daemon, ``systemd-run``,
``ssh``, or an earlier server. If a parent ignores SIGCHLD, only the kernel waits for its child, whose work is counted
for the whole machine only.
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

_CHECKOUT = Path(__file__).parents[2]
_KILLED_END_S = 1.0  # time in which a killed process ends, unless it waits for a device


def python_command(*words: str) -> list[str]:
    """Return a command of this Python that imports no module from the current folder.

    The exception is the root of a checkout, which may not be installed: there the modules of this project are needed.
    """
    return [sys.executable, *([] if Path().samefile(_CHECKOUT) else ["-P"]), *words]


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float | None = None,
    text: str | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with any exit code; its messages are in English unless `environment` is given.

    Its standard input is `text`, or empty.
    Bytes of its output that are no UTF-8 are replaced. Raises subprocess.TimeoutExpired after `timeout`
    seconds, even if the program cannot be killed because it waits for a device (`subprocess.run` would wait with it).
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
            process.communicate(timeout=_KILLED_END_S)
        raise
    return subprocess.CompletedProcess(command, process.returncode, *output)


_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_SECTOR_BYTES = 512  # of ru_inblock and ru_oublock, getrusage(2)
_GRACE_S = 5.0  # seconds between SIGTERM and SIGKILL
_KILL_S = 10.0  # seconds in which killed processes end, unless their storage does not answer
_TICK_S = 0.05  # seconds between two searches for processes to end
ENDING_S = _GRACE_S + _KILL_S + 5.0
"""Seconds after which all processes have ended on request."""

_libc = ctypes.CDLL(None)


class ProgramEnd(NamedTuple):
    """The end of a program and of all processes that it started, and their work together."""

    exit: int | None  # exit code of the program; None: a signal ended it
    signal: int | None  # the signal
    program_s: float  # from the start of the program to its end
    left_s: float  # from the end of the program to that of its last process
    stopped: bool  # whether the processes were ended before they ended by themselves
    alive: list[str]  # names of processes that could not be killed
    cpu_s: float  # of all processes
    largest_bytes: int  # memory (RSS) of the largest process
    read_bytes: int  # from devices, by the kernel's accounts of the processes
    written_bytes: int
    error: str  # why the program could not be started; empty if it was started


class ProgramKeeper:
    """The handle of the keeper of one program; `begin` starts the program."""

    def __init__(self, argv: Sequence[str], folder: str, environment: Mapping[str, str], output: int) -> None:
        """Start the keeper, which then waits for `begin`; the program's output goes to the descriptor `output`."""
        self._process = subprocess.Popen(
            python_command("-m", "jobs.system.programs", str(os.getpid()), str(output)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(output,),
            start_new_session=True,
            text=True,
        )
        request = {"argv": list(argv), "folder": folder, "environment": dict(environment)}
        self._answer = cast("IO[str]", self._process.stdout)
        self._send(json.dumps(request))
        self._answer.readline()  # the keeper is ready

    @property
    def answer(self) -> int:
        """Return a descriptor that becomes readable when all processes have ended."""
        return int(self._answer.fileno())

    def begin(self) -> None:
        """Start the program."""
        self._send("go")

    def stop(self) -> None:
        """Ask the keeper to end all processes: SIGTERM, and SIGKILL after some seconds."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> ProgramEnd:
        """Wait until all processes have ended; return their end and account."""
        line = self._answer.readline()
        self._process.wait()
        if not line:
            raise ChildProcessError("the keeper of the program was killed")
        return ProgramEnd(**json.loads(line))

    def close(self) -> None:
        """End the remaining processes and the keeper; a keeper that has not begun ends when its input is closed."""
        stdin: Any = self._process.stdin
        with suppress(BrokenPipeError):
            stdin.close()
        if self._process.poll() is None:
            self.stop()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)
        self._answer.close()

    def _send(self, line: str) -> None:
        stdin: Any = self._process.stdin
        with suppress(BrokenPipeError):
            stdin.write(line + "\n")
            stdin.flush()


def adopt_orphans() -> None:
    """Become the parent of each orphan among the descendants of this process."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_at_parents_end(parent: int, number: int) -> None:
    """Ask for the signal `number` when the process `parent`, which started this one, ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class _Processes:
    """All processes of a program, as the keeper sees them."""

    def __init__(self, request: Mapping[str, Any], output: int) -> None:
        self._request, self._output = request, output
        self._status: int | None = None
        self._stopped = False
        self._program_end_s = self._last_end_s = 0.0

    def run(self) -> ProgramEnd:
        """Start the program, and wait for it and all processes that it starts; SIGTERM ends them."""
        start_s, error = time.perf_counter(), ""
        try:
            self._program = self._start()
        except (OSError, subprocess.SubprocessError) as fault:
            error, self._program_end_s = str(fault), start_s
        alive = self._wait() if not error else []
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        program_end_s = self._program_end_s or time.perf_counter()
        return ProgramEnd(
            exit=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            program_s=program_end_s - start_s,
            left_s=max(0.0, self._last_end_s - program_end_s),
            stopped=self._stopped,
            alive=alive,
            cpu_s=usage.ru_utime + usage.ru_stime,
            largest_bytes=usage.ru_maxrss * 1024,
            read_bytes=usage.ru_inblock * _SECTOR_BYTES,
            written_bytes=usage.ru_oublock * _SECTOR_BYTES,
            error=error,
        )

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the program; the result must be kept, because a deleted Popen takes the exit status of the process."""
        keeper = os.getpid()

        def prepare_child() -> None:
            signal_at_parents_end(keeper, signal.SIGKILL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` ignores it, also for child processes
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        process = subprocess.Popen(
            self._request["argv"],
            cwd=self._request["folder"],
            env=self._request["environment"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
            preexec_fn=prepare_child,  # noqa: PLW1509 - this process has one thread
        )
        os.close(self._output)
        return process

    def _wait(self) -> list[str]:
        """Wait until no process is left; return the names of processes that cannot be ended."""
        kill_s = give_up_s = float("inf")
        while self._reap():
            now_s = time.perf_counter()
            if now_s >= give_up_s:
                return [_name_of_process(process) for process in _descendants()]
            if now_s >= kill_s:
                self._signal(signal.SIGKILL)
            wait_s = _TICK_S if now_s >= kill_s else min(kill_s - now_s, 3600.0)
            received = signal.sigtimedwait((signal.SIGCHLD, signal.SIGTERM), max(0.0, wait_s))
            if received and received.si_signo == signal.SIGTERM and not self._stopped:
                self._stopped = True
                kill_s = time.perf_counter() + _GRACE_S
                give_up_s = kill_s + _KILL_S
                self._signal(signal.SIGTERM)
        return []

    def _reap(self) -> bool:
        """Take the exit status of ended processes; return whether any process is left."""
        try:
            while (status := os.waitpid(-1, os.WNOHANG))[0]:
                self._last_end_s = time.perf_counter()
                if status[0] == self._program.pid:
                    self._status, self._program_end_s = status[1], self._last_end_s
        except ChildProcessError:
            return False
        return True

    def _signal(self, number: int) -> None:
        for process in _descendants():
            with suppress(psutil.Error):
                process.send_signal(number)
                if number == signal.SIGTERM:
                    process.send_signal(signal.SIGCONT)  # a stopped process gets it, too


def _descendants() -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process().children(recursive=True)
    return []


def _name_of_process(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.name()} ({process.pid})"
    return str(process.pid)


def main(parent: int, output: int) -> None:
    """Keep one program: read the request, wait for the line to begin, answer how the program ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
    adopt_orphans()
    signal_at_parents_end(parent, signal.SIGTERM)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    processes = _Processes(json.loads(sys.stdin.readline()), output)
    print("ready", file=answers)
    if not sys.stdin.readline():
        return  # the parent process has ended
    ended = processes.run()
    with suppress(OSError):
        print(json.dumps(ended._asdict()), file=answers)
    os._exit(0)  # at once, because the parent waits for this process


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
