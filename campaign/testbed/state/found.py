"""What there may be of a testbed: its marker, storages, loop devices and servers of models, as they were found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from campaign.testbed.spec import DATA, FIRST, is_link, version
from jobs.model.settings import Node
from jobs.system.emulated import HANGS, SERVING

if TYPE_CHECKING:
    from campaign.testbed import throttle

SCHEMA = 1
MARKER = ".tfio-testbed.json"
PROGRAM = "storage_model-"  # and its version


class Marker(TypedDict):
    """What we write down of a testbed: nothing is done by half of it."""

    storages: dict[str, Node]  # the bounds of each
    numbers: list[str]  # devices that we gave bounds since the boot
    boot_id: str


@dataclass(frozen=True)
class Loop:
    """A loop device: its path, and its number as control groups name it."""

    path: str
    number: str
    direct: bool = True  # past the page cache
    read_only: bool = False


@dataclass(frozen=True)
class Server:
    """The process that serves the model of a storage."""

    pid: int
    program: str  # its name, which tells its version
    words: tuple[str, ...]  # of its command line, KEY=VALUE
    faults: tuple[str, ...] | None = ()  # the names of those that are set; None: it does not answer
    stopped: bool = False  # by a signal or a debugger


@dataclass(frozen=True)
class Storage:
    """What there is of one emulated storage."""

    image: Path  # where its file is, or is to be
    point: Path  # where it is mounted, or is to be
    size_bytes: int | None = None  # of the image
    allocated_bytes: int = 0
    inode: int | None = None  # of the image: those of emulated nodes are one file with several names
    unfinished: bool = False  # an image was being made
    point_there: bool = False
    loops: tuple[Loop, ...] = ()  # the loop devices that the image is attached to
    served: tuple[Loop, ...] = ()  # those that the file of its model is attached to
    model_there: bool = False  # the folder of its model
    model_mounted: bool = False
    server: Server | None = None
    mounted: str | None = None  # what is mounted at the point; None for nothing
    failed: bool = False  # its file system is read-only since it could not write its journal
    says: Node | None = None  # what the mounted file system says of itself
    costs: Node | None = None  # what it takes the kernel to serve it, and of which storage and boot that was measured
    owner: tuple[int, int] | None = None  # user and group of the data folder; None where there is none
    empty: bool = True  # nothing is in that folder

    @property
    def root(self) -> Path:
        """The folder that a campaign takes for the storage's root."""
        return self.point / DATA

    @property
    def is_node(self) -> bool:
        """Whether it is what an emulated node has mounted."""
        return self.point.name == FIRST or is_link(self.point.name)

    @property
    def ours_mounted(self) -> bool:
        """Whether it is our device, and not somebody else's, that is mounted."""
        return self.mounted in [loop.path for loop in self.attached]

    @property
    def attached(self) -> tuple[Loop, ...]:
        """Its loop devices, with a model and without."""
        return (*self.loops, *self.served)

    @property
    def model(self) -> Path:
        """The folder whose one file is the device of a storage with a model."""
        return self.point.with_name(f"{self.point.name}.model")

    @property
    def serving(self) -> Path:
        """The file that says what it takes the kernel to serve it."""
        return self.image.with_suffix(SERVING)

    @property
    def silent(self) -> bool:
        """Whether its model is mounted and does not answer: nothing in the storage may be touched then."""
        return self.stuck or bool(self.model_mounted and self.server and self.server.faults is None)

    @property
    def stuck(self) -> bool:
        """Whether its model is mounted and known to answer nobody: it hangs, is stopped or has no process.

        A server that is only silent may wait for a busy disk beneath: to kill it loses what it was given to write.
        """
        server = self.server
        return self.model_mounted and (server is None or server.stopped or HANGS in (server.faults or ()))


@dataclass(frozen=True)
class Seen:
    """A testbed as it was found."""

    folder: Path
    there: bool
    marker: Marker | None  # None: it is no testbed of ours, or none yet
    leftovers: tuple[str, ...]  # names in the folder of markers that were being written
    strangers: tuple[str, ...]  # names in the folder that are not ours
    storages: Mapping[str, Storage]
    bounds: throttle.Blkio | throttle.Io
    idle: tuple[Loop, ...]  # loop devices that are free, in the order in which the kernel gives them away
    free_bytes: int
    boot_id: str
    programs: tuple[str, ...] = ()  # names in the folder of the programs that serve models
    # Numbers of the loop devices that are those of another testbed now, whose bounds are not ours to take.
    elsewhere: frozenset[str] = frozenset()

    @property
    def numbers(self) -> list[str]:
        """The devices that we gave bounds since the machine was started; the kernel forgets them with the rest."""
        given = self.marker["numbers"] if self.marker and self.marker["boot_id"] == self.boot_id else []
        return [number for number in given if number not in self.elsewhere]

    @property
    def marked(self) -> Mapping[str, Node]:
        """What the marker says of each storage."""
        return self.marker["storages"] if self.marker else {}

    @property
    def nodes(self) -> list[Storage]:
        """What emulated nodes have mounted."""
        return [each for each in self.storages.values() if each.is_node]

    @property
    def program(self) -> Path:
        """The program that serves models, where it is or is to be."""
        return self.folder / f"{PROGRAM}{version()}"


def unfinished(image: Path) -> Path:
    """Return where an image is made, before it has its name."""
    return image.with_name(f"{image.name}.new")
