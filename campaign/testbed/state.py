"""Inspect a testbed: its marker file, its storages, their loop devices and the servers of its models."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import psutil

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import s3, throttle
from campaign.testbed.spec import DATA, FIRST, is_linked_node, model_version
from jobs.model import reading
from jobs.model.settings import Node
from jobs.system import untrusted
from jobs.system.device import mounts
from jobs.system.layers import DEVICE, HANGS, MODEL_TYPE, SERVING, ask_server, is_whole
from jobs.system.layers import MARKER as EMULATED

SCHEMA = 1
MARKER = ".tfio-testbed.json"
PROGRAM = "storage_model-"  # prefix of the program's name; its version follows
_BEING_WRITTEN = f".{MARKER}."  # prefix of the names of unfinished markers (jobs.system.files)
_BLOCK_DEVICES = Path("/sys/block")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DELETED = " (deleted)"  # the kernel's suffix of the path of a removed file
_STAT_BLOCK = 512  # bytes of a unit of st_blocks, stat(2)
_LOOP_MAJOR = 7  # Documentation/admin-guide/devices.txt
_EXTRA_LOOPS = 8  # loop devices that the kernel makes if all present ones are in use
_FAILED = {"ro", "emergency_ro", "shutdown"}  # mount options of a failed ext4; which one depends on the kernel


class TestbedMarker(TypedDict):
    """The marker file of a testbed; it is written before any storage is made."""

    storages: dict[str, Node]  # the facts of each storage, by its name
    numbers: list[str]  # device numbers (``7:0``) of the loop devices that we limited since the boot
    boot_id: str


@dataclass(frozen=True)
class LoopDevice:
    """A loop device: its path, and its device number (``7:0``), by which control groups limit it."""

    path: str
    number: str
    direct: bool = True  # direct I/O, without the page cache
    read_only: bool = False


@dataclass(frozen=True)
class ModelServer:
    """The process that serves the model of a storage."""

    pid: int
    program: str  # its name, which contains its version
    server_arguments: tuple[str, ...]  # the KEY=VALUE arguments of its command line
    faults: tuple[str, ...] | None = ()  # names of injected faults; None: the server does not answer
    stopped: bool = False  # a signal or a debugger stopped the process


@dataclass(frozen=True)
class StorageState:
    """The present state of one emulated storage."""

    image: Path  # path of the image file, which may not exist yet
    point: Path  # path of the mount point, which may not exist yet
    size_bytes: int | None = None  # size of the image; None: there is no image
    allocated_bytes: int = 0  # bytes that the image takes on the disk beneath
    inode: int | None = None  # inode of the image; the images of emulated nodes are one file with several names
    unfinished: bool = False  # whether an unfinished image exists
    point_there: bool = False
    loops: tuple[LoopDevice, ...] = ()  # loop devices attached to the image file
    model_loops: tuple[LoopDevice, ...] = ()  # loop devices attached to the file that the model serves
    model_there: bool = False  # whether the folder of the model exists
    model_mounted: bool = False
    server: ModelServer | None = None
    mounted: str | None = None  # the device that is mounted at the mount point; None: nothing is mounted
    failed: bool = False  # whether the file system became read-only because it could not write its journal
    marker_facts: Node | None = None  # the facts in the marker of the mounted file system
    costs: Node | None = None  # the kernel's costs to serve the storage, with the storage and boot of the measurement
    owner: tuple[int, int] | None = None  # user and group of the data folder; None: the folder does not exist
    empty: bool = True  # whether the data folder is empty

    @property
    def root(self) -> Path:
        """Return the folder that campaigns use as the root of the storage."""
        return self.point / DATA

    @property
    def is_node(self) -> bool:
        """Return whether the storage is the mount of an emulated node."""
        return self.point.name == FIRST or is_linked_node(self.point.name)

    @property
    def ours_mounted(self) -> bool:
        """Return whether the mounted device is one of the storage's own loop devices."""
        return self.mounted in [loop.path for loop in self.attached]

    @property
    def attached(self) -> tuple[LoopDevice, ...]:
        """Return all loop devices of the storage: on the image, and on the file that the model serves."""
        return (*self.loops, *self.model_loops)

    @property
    def model(self) -> Path:
        """Return the folder in which the model's server shows the file `DEVICE`."""
        return self.point.with_name(f"{self.point.name}.model")

    @property
    def serving(self) -> Path:
        """Return the path of the file in which `costs` is kept."""
        return self.image.with_suffix(SERVING)

    @property
    def silent(self) -> bool:
        """Return whether the model is mounted and does not answer; an access to the storage would then hang."""
        return self.stuck or bool(self.model_mounted and self.server and self.server.faults is None)

    @property
    def stuck(self) -> bool:
        """Return whether the model is mounted and will never answer: its server hangs, is stopped or has ended.

        A server that is only silent may wait for a busy disk beneath; killing the server would lose unwritten data.
        """
        server = self.server
        return self.model_mounted and (server is None or server.stopped or HANGS in (server.faults or ()))


@dataclass(frozen=True)
class TestbedState:
    """The present state of a testbed."""

    folder: Path
    exists: bool  # whether the folder exists
    marker: TestbedMarker | None  # None: the folder is no testbed of ours
    leftovers: tuple[str, ...]  # names of unfinished marker files in the folder
    foreign_names: tuple[str, ...]  # names of files in the folder that are not ours
    storages: Mapping[str, StorageState]
    device_limits: throttle.CgroupV1Limits | throttle.CgroupV2Limits
    free_loops: tuple[LoopDevice, ...]  # free loop devices, in the order in which the kernel assigns them
    free_bytes: int  # on the disk beneath
    boot_id: str
    programs: tuple[str, ...] = ()  # names of the programs in the folder that serve models
    # Device numbers of the loop devices that now belong to another testbed, which alone may remove their limits.
    foreign_devices: frozenset[str] = frozenset()

    @property
    def limited_devices(self) -> list[str]:
        """Return the device numbers (``7:0``) of our loop devices that got limits since the boot.

        The kernel forgets older limits.
        """
        numbers = self.marker["numbers"] if self.marker and self.marker["boot_id"] == self.boot_id else []
        return [number for number in numbers if number not in self.foreign_devices]

    @property
    def storage_facts(self) -> Mapping[str, Node]:
        """Return the facts of each storage in the testbed's marker, by the storage's name."""
        return self.marker["storages"] if self.marker else {}

    @property
    def nodes(self) -> list[StorageState]:
        """Return the mounts of the emulated nodes."""
        return [storage for storage in self.storages.values() if storage.is_node]

    @property
    def program(self) -> Path:
        """Return the path of the program that serves models; the file may not exist yet."""
        return self.folder / f"{PROGRAM}{model_version()}"


def unfinished_image(image: Path) -> Path:
    """Return the path of an image while it is made; a finished image gets the name `image`."""
    return image.with_name(f"{image.name}.new")


def inspect_testbed(folder: Path, names: Iterable[str] = (), patience_s: float | None = None) -> TestbedState:
    """Return the state of the testbed in `folder`: of the storages in its marker, and of those in `names`.

    Neither the folder nor the storages need to exist. `patience_s`: seconds to wait for the answer of a model's server
    (`jobs.system.layers.ask_server`).
    """
    exists = _is_own_folder(folder)
    marker = _read_marker(folder) if exists else None
    marked_names = list(marker["storages"]) if marker else []
    storage_names = dict.fromkeys([*marked_names, *names])
    used_loops, free_loops = _find_loops()
    servers = _find_servers(folder, patience_s) if storage_names and exists else {}
    storages = {name: _find_storage(folder, name, used_loops, servers) for name in storage_names}
    own_names = {path.name for name in marked_names for path in _own_files(storages[name])}
    own_names |= {s3.FOLDER} if exists and s3.gateway_in(folder).facts else set()
    file_names = sorted(path.name for path in folder.iterdir()) if exists else []
    leftovers = [name for name in file_names if name.startswith(_BEING_WRITTEN)]
    programs = [name for name in file_names if marker and name.startswith(PROGRAM)]
    return TestbedState(
        folder=folder,
        exists=exists,
        marker=marker,
        leftovers=tuple(leftovers),
        foreign_names=tuple(name for name in file_names if name not in (*own_names, *leftovers, *programs, MARKER)),
        storages=storages,
        device_limits=throttle.find_throttle(),
        free_loops=free_loops,
        free_bytes=shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free,
        boot_id=_BOOT_ID.read_text(encoding="ascii").strip(),
        programs=tuple(programs),
        foreign_devices=frozenset(
            loop.number for file, loops in used_loops.items() if _is_of_another(file, folder) for loop in loops
        ),
    )


def _is_of_another(file: str, folder: Path) -> bool:
    """Return whether `file`, the backing file of a loop device, belongs to a testbed in another folder."""
    path = Path(file.removesuffix(_DELETED))
    testbed_folder = path.parent.parent if path.name == DEVICE else path.parent
    if str(testbed_folder) == os.path.realpath(folder):
        return False
    return os.path.exists(testbed_folder / MARKER)  # noqa: PTH110 - Path.exists raises without permission


def _own_files(storage: StorageState) -> list[Path]:
    """Return the paths of a storage's files that are ours, without a mount point that holds files of others."""
    holds_foreign_files = storage.point_there and not storage.mounted and not _is_empty(storage.point)
    return [
        storage.image,
        unfinished_image(storage.image),
        storage.serving,
        storage.model,
        *([] if holds_foreign_files else [storage.point]),
    ]


def _is_own_folder(folder: Path) -> bool:
    """Return whether a testbed's folder exists.

    Raise UsageError if users other than root could replace the folder, or put a link into it.
    """
    path = folder.absolute()
    for ancestor in (*reversed(path.parents), path):
        try:
            facts = ancestor.lstat()
        except FileNotFoundError:
            return False
        relation = "" if ancestor == path else f", above {path},"
        if not stat.S_ISDIR(facts.st_mode):
            raise UsageError(f"{ancestor}{relation} is no folder", "name another folder without links: --folder DIR")
        # In a sticky folder only root can rename root's files (inode(7)), so /tmp and /dev/shm are allowed as parents.
        is_sticky = relation and facts.st_mode & stat.S_ISVTX
        if facts.st_uid != 0 or (facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky):
            raise UsageError(
                f"{ancestor}{relation} can be written by users other than root: they could put a link there, which root"
                " would follow",
                "name a new folder below folders of root: --folder DIR; it is made for root alone",
            )
    return True


def _read_marker(folder: Path) -> TestbedMarker | None:
    path = folder / MARKER
    try:
        marker = reading.read_json(path, TestbedMarker, SCHEMA)
        if not all(map(is_whole, marker["storages"].values())):
            raise untrusted.UntrustedError("storages without name or limits")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise EnvironmentFaultError(f"{path} is no marker of ours: {error}", "restore it, or move it away") from error
    except reading.NewerFileError as error:
        raise EnvironmentFaultError(
            f"{path} was written by a newer version (schema {error.schema})", "use that version"
        ) from error
    return marker


def _find_storage(
    folder: Path, name: str, used_loops: Mapping[str, list[LoopDevice]], servers: Mapping[str, ModelServer]
) -> StorageState:
    paths = StorageState(folder / f"{name}.img", folder / name)
    image, point = paths.image, paths.point
    status = image.lstat() if image.exists() else None
    real_paths = {path: f"{os.path.realpath(folder)}/{path.name}" for path in (image, point, paths.model)}
    real_image, real_model = real_paths[image], real_paths[paths.model]
    mount_table = mounts()
    mounted = next((mount.source for mount in reversed(mount_table) if mount.point == real_paths[point]), None)
    storage = replace(
        paths,
        size_bytes=status.st_size if status else None,
        allocated_bytes=status.st_blocks * _STAT_BLOCK if status else 0,
        inode=status.st_ino if status else None,
        unfinished=unfinished_image(image).exists(),
        costs=_read_node(paths.serving),
        loops=tuple(used_loops.get(real_image, []) + used_loops.get(real_image + _DELETED, [])),
        model_loops=tuple(used_loops.get(f"{real_model}/{DEVICE}", [])),
        model_mounted=any(mount.point == real_model and mount.fstype == MODEL_TYPE for mount in mount_table),
        server=servers.get(str(paths.model)),
        mounted=mounted,
        failed=any(
            partition.device == mounted and not _FAILED.isdisjoint(partition.opts.split(","))
            for partition in psutil.disk_partitions(all=True)
        ),
    )
    if storage.silent:
        return replace(storage, model_there=True, point_there=True)
    data = _status_of(point / DATA) if mounted else None
    return replace(
        storage,
        model_there=storage.model.is_dir(),
        point_there=point.is_dir(),
        marker_facts=_read_node(point / EMULATED) if mounted else None,
        owner=(data.st_uid, data.st_gid) if data else None,
        empty=data is None or _is_empty(point / DATA),
    )


def _status_of(folder: Path) -> os.stat_result | None:
    with suppress(OSError):
        return folder.stat() if folder.is_dir() else None
    return None


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:  # no permission (`status` is for everybody), or the device has gone
        return False


def _read_node(file: Path) -> Node | None:
    with suppress(OSError, ValueError):
        return reading.read_json(file, Node)
    return None


def _find_servers(folder: Path, patience_s: float | None) -> dict[str, ModelServer]:
    """Return the servers of a testbed's models, by the path of the model's folder."""
    servers: dict[str, ModelServer] = {}
    for process in psutil.process_iter(["cmdline"]):
        path, *arguments = process.info["cmdline"] or [""]
        if not (arguments and path.startswith(f"{folder}/{PROGRAM}")):
            continue
        with suppress(psutil.Error):  # the process has ended
            # Any user can start such a command line. A server is a process of root; a waiting sudo is not the server.
            if process.uids().real == 0 and _is_running(process.pid, path):
                stopped = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
                faults = None if stopped else _read_faults(Path(arguments[0]), patience_s)
                servers[arguments[0]] = ModelServer(process.pid, Path(path).name, tuple(arguments[2:]), faults, stopped)
    return servers


def _is_running(pid: int, program: str) -> bool:
    """Return whether a process runs a program; also true if the process is another user's and cannot be inspected."""
    try:
        return str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(_DELETED) == os.path.realpath(program)
    except PermissionError:
        return True
    except OSError:
        return False


def _read_faults(model: Path, patience_s: float | None) -> tuple[str, ...] | None:
    try:
        return tuple(name for name, value in ask_server(model, patience_s)["faults"].items() if value)
    except ValueError:
        return ()  # a server of another version answers in another format
    except OSError:
        return None


def _find_loops() -> tuple[dict[str, list[LoopDevice]], tuple[LoopDevice, ...]]:
    """Return the used loop devices by the path of their backing file, and the free loop devices."""
    used_loops: dict[str, list[LoopDevice]] = {}
    free_loops = []
    names = sorted((path.name for path in _BLOCK_DEVICES.glob("loop*")), key=lambda name: (len(name), name))
    for name in names:
        device = _BLOCK_DEVICES / name
        loop = LoopDevice(f"/dev/{name}", (device / "dev").read_text(encoding="ascii").strip())
        try:
            file = os.fsdecode((device / "loop/backing_file").read_bytes()).removesuffix("\n")
            direct, read_only = (
                (device / name).read_text(encoding="ascii").strip() == "1" for name in ("loop/dio", "ro")
            )
        except OSError:  # free, or detached during the inspection
            free_loops.append(loop)
        else:
            used_loops.setdefault(file, []).append(replace(loop, direct=direct, read_only=read_only))
    extra_minors = range(len(names), len(names) + _EXTRA_LOOPS)
    return used_loops, (
        *free_loops,
        *(LoopDevice(f"/dev/loop{minor}", f"{_LOOP_MAJOR}:{minor}") for minor in extra_minors),
    )
