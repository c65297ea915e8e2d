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
from jobs.system.layers import DEVICE, HANGS, MODEL_TYPE, SERVING, ask_server, is_valid_marker
from jobs.system.layers import MARKER as EMULATED

SCHEMA = 1
MARKER = ".tfio-testbed.json"
PROGRAM = "storage_model-"  # prefix of the name of the program that serves models; the program's version follows
_BEING_WRITTEN = f".{MARKER}."  # prefix of the names of incompletely written marker files (jobs.system.files)
_BLOCK_DEVICES = Path("/sys/block")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DELETED = " (deleted)"  # the kernel adds this suffix to the path of a removed file
_STAT_BLOCK = 512  # bytes per unit of st_blocks, stat(2)
_LOOP_MAJOR = 7  # major device number of loop devices, Documentation/admin-guide/devices.txt
_EXTRA_LOOPS = 8  # number of loop devices that the kernel can add if all existing loop devices are in use
_FAILED = {"ro", "emergency_ro", "shutdown"}  # mount options of a failed ext4; the option depends on the kernel version


class TestbedMarker(TypedDict):
    """The content of the marker file of a testbed; the file is written before any storage is made."""

    storages: dict[str, Node]  # speed limits and model of each storage, by the storage's name
    numbers: list[str]  # device numbers (``7:0``) of the loop devices that got speed limits since the last boot
    boot_id: str


@dataclass(frozen=True)
class LoopDevice:
    """A loop device with its path and its device number."""

    path: str
    number: str  # device number such as ``7:0``; control groups need this number to limit the device
    direct: bool = True  # whether the device uses direct I/O, without the page cache
    read_only: bool = False


@dataclass(frozen=True)
class ModelServer:
    """The process that serves the model of a storage."""

    pid: int
    program: str  # name of the program, which contains the program's version
    server_arguments: tuple[str, ...]  # KEY=VALUE arguments in the command line of the process
    faults: tuple[str, ...] | None = ()  # names of the injected faults; None: the server does not answer
    stopped: bool = False  # whether a signal or a debugger has stopped the process


@dataclass(frozen=True)
class StorageState:
    """The present state of one emulated storage."""

    image: Path  # path of the image file, which may not exist yet
    point: Path  # path of the mount point, which may not exist yet
    size_bytes: int | None = None  # size of the image file; None: there is no image file
    allocated_bytes: int = 0  # number of bytes that the image file occupies on the underlying disk
    inode: int | None = None  # inode of the image file; all emulated nodes have one image file with several names
    unfinished: bool = False  # whether an incomplete image file exists
    point_there: bool = False  # whether the folder of the mount point exists
    loops: tuple[LoopDevice, ...] = ()  # loop devices attached to the image file
    model_loops: tuple[LoopDevice, ...] = ()  # loop devices attached to the file that the model serves
    model_there: bool = False  # whether the folder of the model exists
    model_mounted: bool = False
    server: ModelServer | None = None
    mounted: str | None = None  # the device that is mounted at the mount point; None: nothing is mounted
    failed: bool = False  # whether the file system became read-only because it could not write its journal
    marker_facts: Node | None = None  # content of the marker file in the mounted file system
    costs: Node | None = None  # the kernel's CPU costs to serve the storage, with the boot id of the measurement
    owner: tuple[int, int] | None = None  # user id and group id of the data folder; None: the folder does not exist
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
        """Return all loop devices attached to the image file or to the file that the model serves."""
        return (*self.loops, *self.model_loops)

    @property
    def model(self) -> Path:
        """Return the folder in which the model's server provides the file `DEVICE`."""
        return self.point.with_name(f"{self.point.name}.model")

    @property
    def serving(self) -> Path:
        """Return the path of the file that stores `costs`."""
        return self.image.with_suffix(SERVING)

    @property
    def silent(self) -> bool:
        """Return whether the model is mounted and does not answer, so that an access to the storage would hang."""
        return self.stuck or bool(self.model_mounted and self.server and self.server.faults is None)

    @property
    def stuck(self) -> bool:
        """Return whether the model is mounted and will never answer: its server hangs, is stopped or has ended.

        A server that only does not answer may wait for the busy underlying disk. To kill such a server would lose data
        that are not written yet.
        """
        server = self.server
        return self.model_mounted and (server is None or server.stopped or HANGS in (server.faults or ()))


@dataclass(frozen=True)
class TestbedState:
    """The present state of a testbed."""

    folder: Path
    exists: bool  # whether the folder exists
    marker: TestbedMarker | None  # None: the folder is no testbed of this program
    leftovers: tuple[str, ...]  # names of incompletely written marker files in the folder
    foreign_names: tuple[str, ...]  # names of files in the folder that this program has not made
    storages: Mapping[str, StorageState]
    device_limits: throttle.CgroupV1Limits | throttle.CgroupV2Limits
    free_loops: tuple[LoopDevice, ...]  # free loop devices, in the order in which the kernel assigns them
    free_bytes: int  # free space on the underlying disk
    boot_id: str
    programs: tuple[str, ...] = ()  # names of the programs in the folder that serve models
    # Device numbers of the loop devices that now belong to another testbed. Only that testbed may remove their limits.
    foreign_devices: frozenset[str] = frozenset()

    @property
    def limited_devices(self) -> list[str]:
        """Return the device numbers (``7:0``) of this testbed's loop devices that got speed limits since the boot.

        A reboot removes all earlier limits.
        """
        numbers = self.marker["numbers"] if self.marker and self.marker["boot_id"] == self.boot_id else []
        return [number for number in numbers if number not in self.foreign_devices]

    @property
    def storage_facts(self) -> Mapping[str, Node]:
        """Return the speed limits and the model of each storage from the testbed's marker, by the storage's name."""
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
    """Return the temporary path of an image file that is being made; the finished file is renamed to `image`."""
    return image.with_name(f"{image.name}.new")


def inspect_testbed(folder: Path, names: Iterable[str] = (), patience_s: float | None = None) -> TestbedState:
    """Return the state of the testbed in `folder`, with the storages in its marker and the storages in `names`.

    Neither the folder nor the storages need to exist. `patience_s` is the number of seconds to wait for the answer of a
    model's server (`jobs.system.layers.ask_server`).
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
    """Return the paths of the files and folders that this program has made for a storage.

    The mount point is left out if it contains files of other programs.
    """
    holds_foreign_files = storage.point_there and not storage.mounted and not _is_empty(storage.point)
    return [
        storage.image,
        unfinished_image(storage.image),
        storage.serving,
        storage.model,
        *([] if holds_foreign_files else [storage.point]),
    ]


def _is_own_folder(folder: Path) -> bool:
    """Return whether the folder of a testbed exists.

    Raise UsageError if users other than root could replace the folder, or could put a link into the folder.
    """
    path = folder.absolute()
    for ancestor in (*reversed(path.parents), path):
        try:
            facts = ancestor.lstat()
        except FileNotFoundError:
            return False
        relation = "" if ancestor == path else f", above {path},"
        if not stat.S_ISDIR(facts.st_mode):
            raise UsageError(f"{ancestor}{relation} is no folder", "choose a path without links: --folder DIR")
        # In a sticky folder only root can rename root's files (inode(7)), so /tmp and /dev/shm are allowed as parents.
        is_sticky = relation and facts.st_mode & stat.S_ISVTX
        if facts.st_uid != 0 or (facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky):
            raise UsageError(
                f"{ancestor}{relation} can be written by users other than root, who could put a link into the folder"
                " that root would follow",
                "choose a new folder whose parents only root can write: --folder DIR",
            )
    return True


def _read_marker(folder: Path) -> TestbedMarker | None:
    path = folder / MARKER
    try:
        marker = reading.read_json(path, TestbedMarker, SCHEMA)
        if not all(map(is_valid_marker, marker["storages"].values())):
            raise untrusted.UntrustedError("storages without name or limits")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise EnvironmentFaultError(
            f"{path} is no marker file of this program: {error}", "restore the file, or move it away"
        ) from error
    except reading.NewerFileError as error:
        raise EnvironmentFaultError(
            f"{path} was written by a newer version of this program (schema {error.schema})", "use the newer version"
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
    except OSError:  # this user may not read the folder (all users may call `status`), or the device was removed
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
            # Any user can start a process with such a command line, but a server is a process of root. The command line
            # of a waiting sudo process looks the same, so the executable of the process is checked, too.
            if process.uids().real == 0 and _is_running(process.pid, path):
                stopped = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
                faults = None if stopped else _read_faults(Path(arguments[0]), patience_s)
                servers[arguments[0]] = ModelServer(process.pid, Path(path).name, tuple(arguments[2:]), faults, stopped)
    return servers


def _is_running(pid: int, program: str) -> bool:
    """Return whether a process runs the executable `program`.

    Also return True if the process belongs to another user, because then the executable cannot be inspected.
    """
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
    """Return the used loop devices by the path of the backing file, and the free loop devices."""
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
        except OSError:  # the device is free, or was detached during this inspection
            free_loops.append(loop)
        else:
            used_loops.setdefault(file, []).append(replace(loop, direct=direct, read_only=read_only))
    extra_minors = range(len(names), len(names) + _EXTRA_LOOPS)
    return used_loops, (
        *free_loops,
        *(LoopDevice(f"/dev/loop{minor}", f"{_LOOP_MAJOR}:{minor}") for minor in extra_minors),
    )
