"""A run that is ready to start: what its benchmark gives, and its observers look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jobs.checkpoints.run_snapshots import Checkpoints
from jobs.objects.source import Source
from jobs.system.layers import Layers, layers


@dataclass(frozen=True)
class Work:
    """A run that is ready to start."""

    # Runs the clock and returns the raw figures. Takes a context, which it enters before the first access to the
    # storage and leaves after the last, both outside the clock: observers start and stop there.
    measure: Callable[[AbstractContextManager[Any]], dict[str, Any]]
    folder: Path  # what it reads, or writes, lies here
    files: Sequence[Path] = ()  # the files whose pages are brought into the state that ``cache`` names
    proof: Sequence[Path] = ()  # those of them that it is sure to read: their residency is the proof of a cold run
    # The size in bytes of each of the files, as their list says; empty where there is none.
    sizes: Mapping[Path, int] = field(default_factory=dict)
    writes: bool = False  # whether it writes a file of its own and flushes it within the clock
    may_write: bool = False  # whether it may write anything, of which nothing is known before
    checkpoints: Checkpoints | None = None  # the snapshots that it saves, if any
    # Bytes that are asked for of each file, where that is not the whole of it.
    asked: Mapping[Path, int] = field(default_factory=dict)
    reading: Callable[[], Sequence[int]] = tuple  # numbers of the processes that read for this one
    copies: Path | None = None  # where the copies lie that it reads in place of some files of `folder`
    newest_ns: int | None = None  # the latest change (ctime) of any file, where the run made it after the list
    source: Source | None = None  # what it reads from an object store, and no files

    @cached_property
    def below(self) -> Layers:
        """What lies below the devices of the folders that are read; looked up once."""
        return layers(*self.folders)

    @property
    def folders(self) -> tuple[Path, ...]:
        """What is read, or written, lies below these, or on these devices."""
        if self.source:
            return self.source.disks
        return (self.folder, self.copies) if self.copies else (self.folder,)
