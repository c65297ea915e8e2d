"""A run that is ready to start: the functions of its benchmark, and the facts that its observers need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.checkpoints.run_snapshots import RunSnapshots
from jobs.objects.run_objects import RunObjects
from jobs.system.layers import Layers, layers_below

if TYPE_CHECKING:
    from jobs.events.posix_window import Window


@dataclass(frozen=True)
class ReadyRun:
    """A run that is ready to start."""

    # A function that runs the clock and returns the raw metrics. It enters the given context before the first access to
    # the storage and leaves it after the last, both outside the clock: observers start and stop there. One of several
    # ranks leaves it when the clocks of all have stopped (`jobs.benchmarks.step_loop`).
    measure: Callable[[AbstractContextManager[Any]], dict[str, Any]]
    folder: Path  # the folder of the files that it reads or writes
    files: Sequence[Path] = ()  # the files whose pages are put into the state of the setting ``cache``
    proof: Sequence[Path] = ()  # the files that it certainly reads; their share in memory is the proof of a cold run
    # The size in bytes of each file, by the list of files; empty without a list.
    sizes: Mapping[Path, int] = field(default_factory=dict)
    whole: bool = False  # whether `files` has all files below `folder`; then any other file is new
    writes: bool = False  # whether it writes a file of its own and flushes it within the clock
    may_write: bool = False  # whether it may write files that are not known beforehand
    checkpoints: RunSnapshots | None = None  # the snapshots that it saves, if any
    # The number of bytes to read, for each file that is not read completely.
    asked: Mapping[Path, int] = field(default_factory=dict)
    reading: Callable[[], Sequence[int]] = tuple  # returns the ids of the processes that read for this one
    copies: Path | None = None  # the folder of copies that it reads instead of some files of `folder`
    newest_ns: int | None = None  # the latest change (ctime) that the run made to a file after the list
    source: RunObjects | None = None  # the objects that it reads instead of files
    # A function that returns the POSIX calls of its child processes, if they are profiled; None: there are no children.
    calls: Callable[[], Window] | None = None

    @cached_property
    def below(self) -> Layers:
        """The layers below the devices of the folders that are read; looked up once."""
        return layers_below(*self.folders)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that hold, or whose devices hold, all files that are read or written."""
        if self.source:
            return self.source.disks
        return (self.folder, self.copies) if self.copies else (self.folder,)
