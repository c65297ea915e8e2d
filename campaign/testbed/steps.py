"""The kinds of steps that make and remove a testbed: a step can be done, and its text is a line for a shell."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from campaign.errors import EnvironmentFaultError
from jobs.system import files, programs

_LIMIT_S, _LONG_LIMIT_S = 60.0, 600.0
_LONG_PROGRAMS = {"mkfs.ext4", "sync", "umount"}  # they may write much to a slow disk


@dataclass(frozen=True)
class ProgramStep:
    """A step that runs a program; with `may_fail` an error is ignored, and the next inspection shows the effect."""

    command: tuple[str, ...]
    may_fail: bool = False

    def __str__(self) -> str:
        """Return the line for a shell."""
        return shlex.join(self.command) + " || true" * self.may_fail

    def do(self) -> None:
        """Run the program."""
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
                f"{self}: it did not end within {limit_s:g} s", "see what it waits for, then repeat the same command"
            ) from error
        if process.returncode and not self.may_fail:
            fault = " ".join(process.stderr.split()) or f"it ended with {process.returncode}"
            raise EnvironmentFaultError(f"{self}: {fault}", "fix that, then repeat the same command")


@dataclass(frozen=True)
class WriteStep:
    """A step that writes a line into a file of the kernel, or (`ours`) into a file of ours, whole and durably."""

    path: Path
    text: str
    ours: bool = False

    def __str__(self) -> str:
        """Return the line for a shell."""
        return f"echo {shlex.quote(self.text)} > {shlex.quote(str(self.path))}"

    def do(self) -> None:
        """Write the line."""
        try:
            if self.ours:
                files.write_text(self.path.parent.resolve() / self.path.name, f"{self.text}\n")
            else:
                self.path.write_text(f"{self.text}\n", encoding="ascii")
        except OSError as error:
            raise EnvironmentFaultError(
                f"{self}: {error.strerror}", "fix that, then repeat the same command"
            ) from error


@dataclass(frozen=True)
class CallStep:
    """A step that calls a function; its line describes it."""

    line: str
    call: Callable[[], object] = field(compare=False)

    def __str__(self) -> str:
        """Return the line for a reader."""
        return self.line

    def do(self) -> None:
        """Call the function."""
        self.call()


Step = ProgramStep | WriteStep | CallStep
Group = list[Step]
"""Steps that are done together; then the testbed is inspected again."""


def program_step(*words: object, may_fail: bool = False) -> ProgramStep:
    """Return the step that runs a program."""
    return ProgramStep(tuple(map(str, words)), may_fail)
