"""What disturbs a program that reads files, whichever program: ours, fio or a plain loop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lies import setup
from tests.lies.lie import MissingError

PLAIN, DISK, FLASH = "", "disk", "flash"  # a loop device past the page cache, or one on the testbed's model of that


@dataclass(frozen=True)
class Place:
    """What a program reads, and a folder on another device for what the disturbance needs."""

    stack: contextlib.ExitStack  # undoes all of it at the end
    scratch: Path
    paths: Sequence[Path]  # the files, all in one folder
    device: str  # name of the loop device that holds them

    @property
    def number(self) -> str:
        """Return major and minor number of the device."""
        return Path("/sys/block", self.device, "dev").read_text().strip()


@dataclass
class Start:
    """How a program is started so that it is disturbed, and what happened, by instruments of the disturbance's own."""

    environment: dict[str, str] = field(default_factory=dict)
    inside: tuple[str, ...] = ()  # a command that runs its arguments
    # What happened in words, asked before the disturbance ends; and whether it happened at all.
    happened: Callable[[], tuple[object, str]] = lambda: (True, "")


@dataclass(frozen=True)
class Disturbance:
    """One way to make a measured number wrong."""

    name: str
    sentence: str
    device: str  # `PLAIN`, `DISK` or `FLASH`: where it does most
    needs: tuple[str, ...]  # programs or files
    stage: Callable[[Place], Iterator[Start]]

    @contextlib.contextmanager
    def around(self, place: Place) -> Iterator[Start]:
        """Disturb what is started in the way that is yielded; MissingError where this machine cannot do it."""
        setup.need(*(program for program in self.needs if not program.startswith("/")))
        if gone := [file for file in self.needs if file.startswith("/") and not Path(file).exists()]:
            raise MissingError(f"there is no {gone[0]}")
        with contextlib.contextmanager(self.stage)(place) as start:
            yield start


ALL: dict[str, Disturbance] = {}


def disturbance(
    sentence: str, *, device: str = PLAIN, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Place], Iterator[Start]]], Callable[[Place], Iterator[Start]]]:
    """Register the generator function below under its name."""

    def register(stage: Callable[[Place], Iterator[Start]]) -> Callable[[Place], Iterator[Start]]:
        ALL[stage.__name__] = Disturbance(stage.__name__, sentence, device, needs, stage)
        return stage

    return register


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do something in a thread of this process, until the event that it is given."""
    end = threading.Event()
    thread = threading.Thread(target=work, args=(end,))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
