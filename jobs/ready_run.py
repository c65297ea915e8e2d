"""Define a run that is ready to start: the function that runs the benchmark, and the facts that observers need."""

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
    """A run that is ready to start; the benchmark makes this object, and observers read it."""

    # A function that runs the clock and returns the raw metrics. The function enters the given context before the first
    # access to the storage, and leaves the context after the last access. Observers start and stop with this context,
    # while the clock does not run. If the run has several ranks, a rank leaves the context after the clocks of all
    # ranks have stopped (`jobs.benchmarks.step_loop`).
    measure: Callable[[AbstractContextManager[Any]], dict[str, Any]]
    folder: Path  # the folder of the files that the run reads or writes
    files: Sequence[Path] = ()  # the files that are loaded into or removed from the page cache (setting ``cache``)
    proof: Sequence[Path] = ()  # the files that the run certainly reads; checks count their pages in memory
    # The size of each file in bytes, as in the list of files; empty without a list.
    sizes: Mapping[Path, int] = field(default_factory=dict)
    whole: bool = False  # whether `files` has all files below `folder`, so that any other file must be new
    writes: bool = False  # whether the run writes a file and flushes the file while the clock runs
    may_write: bool = False  # whether the run may write files that are unknown before the run
    checkpoints: RunSnapshots | None = None  # the snapshots that the run saves; None for a run without snapshots
    # The number of bytes to read from each file that is not read completely.
    asked: Mapping[Path, int] = field(default_factory=dict)
    reading: Callable[[], Sequence[int]] = tuple  # returns the ids of other processes that read for this run
    copies: Path | None = None  # the folder of the copies that the run reads instead of some files of `folder`
    newest_ns: int | None = None  # the latest time at which the run changed a file (ctime) after the files were listed
    source: RunObjects | None = None  # the objects that the run reads instead of files
    # A function that returns the profiled POSIX calls of child processes; None if the run has no child processes.
    calls: Callable[[], Window] | None = None

    @cached_property
    def below(self) -> Layers:
        """The storage layers below the devices of `folders`; cached after the first call."""
        return layers_below(*self.folders)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders with the files of the run or, for objects, folders on the disks that hold the objects."""
        if self.source:
            return self.source.disks
        return (self.folder, self.copies) if self.copies else (self.folder,)
