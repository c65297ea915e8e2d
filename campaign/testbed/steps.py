"""The steps that make and unmake a testbed: each is a line for a shell, and is done as it is written."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from campaign.errors import EnvironmentFaultError
from jobs.system import files, programs

_LIMIT_S, _LONG_S = 60.0, 600.0
_LONG = {"mkfs.ext4", "sync", "umount"}  # they write what is to be on a slow disk


@dataclass(frozen=True)
class Run:
    """A program; where it may fail, what it changes is seen by who looks afterwards."""

    words: tuple[str, ...]
    may_fail: bool = False

    def __str__(self) -> str:
        """Return the line."""
        return shlex.join(self.words) + " || true" * self.may_fail

    def do(self) -> None:
        """Run it."""
        limit_s = _LONG_S if self.words[0] in _LONG else _LIMIT_S
        try:
            done = programs.run(self.words, timeout=limit_s)
        except FileNotFoundError as error:
            raise EnvironmentFaultError(
                f"{self.words[0]} is not installed", "install util-linux and e2fsprogs, and have them on PATH"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFaultError(
                f"{self}: it did not end within {limit_s:g} s", "see what it waits for, then repeat the same command"
            ) from error
        if done.returncode and not self.may_fail:
            why = " ".join(done.stderr.split()) or f"it ended with {done.returncode}"
            raise EnvironmentFaultError(f"{self}: {why}", "fix what it names, then repeat the same command")


@dataclass(frozen=True)
class Write:
    """A line for a file: of the kernel's, or one of ours, which is then written whole and durably."""

    path: Path
    text: str
    ours: bool = False

    def __str__(self) -> str:
        """Return the line."""
        return f"echo {shlex.quote(self.text)} > {shlex.quote(str(self.path))}"

    def do(self) -> None:
        """Write it."""
        try:
            if self.ours:
                files.write(self.path.parent.resolve() / self.path.name, f"{self.text}\n")
            else:
                self.path.write_text(f"{self.text}\n", encoding="ascii")
        except OSError as error:
            raise EnvironmentFaultError(
                f"{self}: {error.strerror}", "fix what it names, then repeat the same command"
            ) from error


@dataclass(frozen=True)
class Call:
    """What no program does alone; its line tells a reader what it is."""

    line: str
    call: Callable[[], object] = field(compare=False)

    def __str__(self) -> str:
        """Return the line."""
        return self.line

    def do(self) -> None:
        """Do it."""
        self.call()


Step = Run | Write | Call
Group = list[Step]
"""Steps that are done together, before everything is inspected again."""


def run(*words: object, may_fail: bool = False) -> Run:
    """Make the step that runs a program."""
    return Run(tuple(map(str, words)), may_fail)
