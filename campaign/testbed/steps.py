"""Define the steps that make or remove a testbed; the text of a step is the equivalent shell command."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from campaign.errors import EnvironmentFaultError
from jobs.system import files, programs

_LIMIT_S, _LONG_LIMIT_S = 60.0, 600.0
_LONG_PROGRAMS = {"mkfs.ext4", "sync", "umount"}  # these programs may write a lot of data to a slow disk


@dataclass(frozen=True)
class ProgramStep:
    """A step that runs a program.

    With `may_fail`, an error of the program is ignored, because the next inspection of the testbed shows the effect.
    """

    command: tuple[str, ...]
    may_fail: bool = False

    def __str__(self) -> str:
        """Return the equivalent shell command."""
        return shlex.join(self.command) + " || true" * self.may_fail

    def do(self) -> None:
        """Run the program; raise EnvironmentFaultError if the program fails."""
        limit_s = _LONG_LIMIT_S if self.command[0] in _LONG_PROGRAMS else _LIMIT_S
        try:
            process = programs.run_program(self.command, timeout=limit_s)
        except FileNotFoundError as error:
            raise EnvironmentFaultError(
                f"{self.command[0]} is not installed",
                "install util-linux and e2fsprogs, and put them on PATH",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFaultError(
                f"{self}: the program did not end within {limit_s:g} s",
                "find out what the program waits for, then repeat the command",
            ) from error
        if process.returncode and not self.may_fail:
            fault = " ".join(process.stderr.split()) or f"exit code {process.returncode}"
            raise EnvironmentFaultError(f"{self}: {fault}", "correct this error, then repeat the command")


@dataclass(frozen=True)
class WriteStep:
    """A step that writes a line into a file.

    A file of the kernel is opened and written. With `ours`, the file is a regular file of the testbed, which is
    replaced atomically and durably.
    """

    path: Path
    text: str
    ours: bool = False

    def __str__(self) -> str:
        """Return the equivalent shell command."""
        return f"echo {shlex.quote(self.text)} > {shlex.quote(str(self.path))}"

    def do(self) -> None:
        """Write the line into the file; raise EnvironmentFaultError if the file cannot be written."""
        try:
            if self.ours:
                files.write_text(self.path.parent.resolve() / self.path.name, f"{self.text}\n")
            else:
                self.path.write_text(f"{self.text}\n", encoding="ascii")
        except OSError as error:
            raise EnvironmentFaultError(
                f"{self}: {error.strerror}", "correct this error, then repeat the command"
            ) from error


@dataclass(frozen=True)
class CallStep:
    """A step that calls a function; `line` describes the effect of the function."""

    line: str
    call: Callable[[], object] = field(compare=False)

    def __str__(self) -> str:
        """Return the line that describes the step."""
        return self.line

    def do(self) -> None:
        """Call the function of the step."""
        self.call()


Step = ProgramStep | WriteStep | CallStep
Group = list[Step]
"""A list of steps that are done without an inspection between them; afterwards the testbed is inspected again."""


def program_step(*words: object, may_fail: bool = False) -> ProgramStep:
    """Return a step that runs a program; `words` are the program and its arguments."""
    return ProgramStep(tuple(map(str, words)), may_fail)
