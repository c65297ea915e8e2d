"""Run other programs, and end all processes that a program has started.

`run_program` runs a program without the standard input of this process, and returns the output of the program as text.

`ProgramKeeper` runs a user's program under a keeper: a small process between this process and the program. The keeper
is the subreaper of the program's descendants (``PR_SET_CHILD_SUBREAPER``, prctl(2)). So an orphan becomes a child of
the keeper, even a daemon in a session of its own. The keeper waits for orphans and ends them like all other processes.
The keeper also counts the time, the memory and the bytes of orphans. If the process that started the keeper dies, the
kernel sends a signal to the keeper, and the keeper ends all processes.

A process that another program starts on request is not included, for example a process of a container's daemon, of
``systemd-run``, of ``ssh`` or of an earlier server. If a parent process ignores SIGCHLD, only the kernel waits for its
child processes. The work of such child processes is counted only for the whole machine.
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
_KILLED_END_S = 1.0  # time in which a killed process ends, if it does not wait for a device


def python_command(*words: str) -> list[str]:
    """Return a command that runs this Python without importing modules from the current folder.

    If the current folder is the root of a checkout, modules are imported from it, because the project may not be
    installed.
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
    """Run a program to its end, and return its exit code and output; a non-zero exit code raises no error.

    The standard input of the program is `text`, or empty. Without `environment`, the messages of the program are in
    English. Bytes of the output that are not UTF-8 are replaced.

    Raises subprocess.TimeoutExpired after `timeout` seconds, even if the program waits for a device and cannot be
    killed. `subprocess.run` would wait for such a program.
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
_SECTOR_BYTES = 512  # unit of ru_inblock and ru_oublock, getrusage(2)
_GRACE_S = 5.0  # seconds between SIGTERM and SIGKILL
_KILL_S = 10.0  # seconds in which killed processes end, if their storage answers
_TICK_S = 0.05  # seconds between two searches for processes to kill
ENDING_S = _GRACE_S + _KILL_S + 5.0
"""The largest number of seconds that the keeper needs to end all processes."""

_libc = ctypes.CDLL(None)


class ProgramEnd(NamedTuple):
    """How a program and all its processes have ended, and the resources that all processes have used together."""

    exit: int | None  # exit code of the program; None if a signal ended the program
    signal: int | None  # the signal that ended the program; None if the program ended by itself
    program_s: float  # seconds from the start of the program to the end of the program
    descendants_s: float  # seconds from the end of the program to the end of its last process
    stopped: bool  # whether the keeper was asked to end the processes
    alive: list[str]  # names of processes that could not be killed
    cpu_s: float  # CPU seconds of all processes
    largest_bytes: int  # memory (RSS) of the largest process
    read_bytes: int  # bytes that all processes have read from devices, as counted by the kernel
    written_bytes: int
    asked_bytes: int  # bytes that all processes got from reads, from memory or a device; 0 if unknown
    error: str  # why the program could not be started; empty if the program was started


class ProgramKeeper:
    """A handle on the keeper process of one program; the method `begin` starts the program."""

    def __init__(
        self,
        argv: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        output: int,
        *,
        errors_only: bool = False,
    ) -> None:
        """Start the keeper, which then waits for `begin`.

        `output` is the file descriptor for the program's output, or with `errors_only` for its standard error.
        """
        self._process = subprocess.Popen(
            python_command("-m", "jobs.system.programs", str(os.getpid()), str(output)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(output,),
            start_new_session=True,
            text=True,
        )
        request = {"argv": list(argv), "folder": folder, "environment": dict(environment), "errors_only": errors_only}
        self._answer = cast("IO[str]", self._process.stdout)
        self._send(json.dumps(request))
        self._answer.readline()  # wait until the keeper is ready

    @property
    def end_fd(self) -> int:
        """Return a file descriptor that becomes readable when all processes have ended."""
        return int(self._answer.fileno())

    def begin(self) -> None:
        """Start the program."""
        self._send("go")

    def stop(self) -> None:
        """Ask the keeper to end all processes, with SIGTERM and, after 5 seconds, with SIGKILL."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> ProgramEnd:
        """Wait until all processes have ended, and return the keeper's report."""
        line = self._answer.readline()
        self._process.wait()
        if not line:
            raise ChildProcessError("the keeper of the program was killed")
        return ProgramEnd(**json.loads(line))

    def close(self) -> None:
        """End the remaining processes and the keeper. Without a call of `begin`, a closed input ends the keeper."""
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
    """Make this process the parent of all orphaned processes among its descendants."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_at_parents_end(parent: int, number: int) -> None:
    """Ask the kernel to send the signal `number` to this process when the process `parent`, its parent, ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class _Processes:
    """The program of a keeper, and all processes that the program starts."""

    def __init__(self, request: Mapping[str, Any], output: int) -> None:
        self._request, self._output = request, output
        self._status: int | None = None
        self._stopped = False
        self._program_end_s = self._last_end_s = 0.0

    def run(self) -> ProgramEnd:
        """Start the program, and wait until all its processes have ended; a SIGTERM ends the processes."""
        start_s, error, asked_before = time.perf_counter(), "", _asked_bytes()
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
            descendants_s=max(0.0, self._last_end_s - program_end_s),
            stopped=self._stopped,
            alive=alive,
            cpu_s=usage.ru_utime + usage.ru_stime,
            largest_bytes=usage.ru_maxrss * 1024,
            read_bytes=usage.ru_inblock * _SECTOR_BYTES,
            written_bytes=usage.ru_oublock * _SECTOR_BYTES,
            asked_bytes=_asked_bytes() - asked_before,
            error=error,
        )

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the program. The caller must store the result: a deleted Popen takes the exit status of the process."""
        keeper = os.getpid()

        def prepare_child() -> None:
            signal_at_parents_end(keeper, signal.SIGKILL)
            # A shell ignores SIGINT for a command with `&`, and child processes inherit this.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        process = subprocess.Popen(
            self._request["argv"],
            cwd=self._request["folder"],
            env=self._request["environment"],
            stdin=subprocess.DEVNULL,
            # grep and tar read less if they see that their output is /dev/null; /dev/zero takes it as fast.
            stdout=os.open("/dev/zero", os.O_WRONLY) if self._request["errors_only"] else self._output,
            stderr=self._output,
            start_new_session=True,
            preexec_fn=prepare_child,  # noqa: PLW1509 - this process has one thread
        )
        os.close(self._output)
        return process

    def _wait(self) -> list[str]:
        """Wait until all processes have ended; return the names of processes that cannot be killed."""
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
        """Take the exit status of ended processes; return whether another process still runs."""
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
                    process.send_signal(signal.SIGCONT)  # so that a stopped process handles SIGTERM, too


def _asked_bytes() -> int:
    """Return the bytes that this process and its ended child processes got from reads (``rchar``), 0 if unknown."""
    with suppress(OSError):
        return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])
    return 0


def _descendants() -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process().children(recursive=True)
    return []


def _name_of_process(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.name()} ({process.pid})"
    return str(process.pid)


def main(parent: int, output: int) -> None:
    """Run the keeper of one program: read the request, wait for the start command, report how the program ended."""
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
