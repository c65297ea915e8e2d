"""Find the state of a testbed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import s3, throttle
from campaign.testbed.spec import DATA
from campaign.testbed.state.found import MARKER, PROGRAM, SCHEMA, Loop, Marker, Seen, Server, Storage, unfinished
from jobs.model import reading
from jobs.model.settings import Node
from jobs.system import untrusted
from jobs.system.device import mounts
from jobs.system.emulated import DEVICE, MODEL_TYPE, is_whole, served
from jobs.system.emulated import MARKER as EMULATED

_BEING_WRITTEN = f".{MARKER}."  # how the names of markers begin that are not whole yet (jobs.system.durable)
_BLOCK_DEVICES = Path("/sys/block")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DELETED = " (deleted)"  # the kernel's word behind the path of a file that is gone
_STAT_BLOCK = 512  # bytes of a unit of st_blocks, stat(2)
_LOOP_MAJOR = 7  # Documentation/admin-guide/devices.txt
_FURTHER = 8  # loop devices that the kernel makes when all are in use
_FAILED = {"ro", "emergency_ro", "shutdown"}  # what ext4 says then, by the kernel's version


def inspect(folder: Path, names: Iterable[str] = (), patience_s: float | None = None) -> Seen:
    """Find the state of the testbed of a folder, and of storages it might get.

    `patience_s`: how long a model may take to answer (`jobs.system.emulated.served`).
    """
    there = _trusted(folder)
    marker = _marker(folder) if there else None
    ours = list(marker["storages"]) if marker else []
    known = dict.fromkeys([*ours, *names])
    backed, idle = _loops()
    servers = _servers(folder, patience_s) if known and there else {}
    storages = {name: _storage(folder, name, backed, servers) for name in known}
    mine = {path.name for name in ours for path in _files(storages[name])}
    mine |= {s3.FOLDER} if there and s3.gateway(folder).facts else set()
    present = sorted(path.name for path in folder.iterdir()) if there else []
    leftovers = [name for name in present if name.startswith(_BEING_WRITTEN)]
    programs = [name for name in present if marker and name.startswith(PROGRAM)]
    return Seen(
        folder=folder,
        there=there,
        marker=marker,
        leftovers=tuple(leftovers),
        strangers=tuple(name for name in present if name not in (*mine, *leftovers, *programs, MARKER)),
        storages=storages,
        bounds=throttle.find(),
        idle=idle,
        free_bytes=shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free,
        boot_id=_BOOT_ID.read_text(encoding="ascii").strip(),
        programs=tuple(programs),
        elsewhere=frozenset(
            loop.number for file, loops in backed.items() if _of_another(file, folder) for loop in loops
        ),
    )


def _of_another(file: str, folder: Path) -> bool:
    """Return whether a file that a loop device is attached to lies in a testbed of another folder."""
    path = Path(file.removesuffix(_DELETED))
    lies = path.parent.parent if path.name == DEVICE else path.parent
    if str(lies) == os.path.realpath(folder):
        return False
    return os.path.exists(lies / MARKER)  # noqa: PTH110 - that of Path raises where one may not look


def _files(storage: Storage) -> list[Path]:
    """Return what is ours of a storage that we wrote down before we made it; no folder in which somebody has files."""
    hides = storage.point_there and not storage.mounted and not _is_empty(storage.point)
    return [
        storage.image,
        unfinished(storage.image),
        storage.serving,
        storage.model,
        *([] if hides else [storage.point]),
    ]


def _trusted(folder: Path) -> bool:
    """Return whether the folder is there; refuse one that somebody else could put a link into, or in the place of."""
    path = folder.absolute()
    for each in (*reversed(path.parents), path):
        try:
            facts = each.lstat()
        except FileNotFoundError:
            return False
        above = "" if each == path else f", above {path},"
        if not stat.S_ISDIR(facts.st_mode):
            raise UsageError(f"{each}{above} is no folder", "name another one, without links: --folder DIR")
        # In a sticky folder only root renames what is root's (inode(7)): /tmp and /dev/shm will do as parents.
        guarded = above and facts.st_mode & stat.S_ISVTX
        if facts.st_uid != 0 or (facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not guarded):
            raise UsageError(
                f"{each}{above} is not root's alone to write: others could put a link there, and root would follow it",
                "name a folder that is not there yet, below folders of root (--folder DIR); it is made for root alone",
            )
    return True


def _marker(folder: Path) -> Marker | None:
    path = folder / MARKER
    try:
        marker = reading.read(path, Marker, SCHEMA)
        if not all(map(is_whole, marker["storages"].values())):
            raise untrusted.UntrustedError("storages without name or bounds")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise EnvironmentFaultError(f"{path} is no marker of ours: {error}", "restore it, or move it away") from error
    except reading.NewerFileError as error:
        raise EnvironmentFaultError(
            f"{path} was written by a newer version (schema {error.schema})", "use that version"
        ) from error
    return marker


def _storage(folder: Path, name: str, backed: Mapping[str, list[Loop]], servers: Mapping[str, Server]) -> Storage:
    bare = Storage(folder / f"{name}.img", folder / name)
    image, point = bare.image, bare.point
    facts = image.lstat() if image.exists() else None
    real = {path: f"{os.path.realpath(folder)}/{path.name}" for path in (image, point, bare.model)}
    file, model = real[image], real[bare.model]
    over = mounts()
    mounted = next((mount.source for mount in reversed(over) if mount.point == real[point]), None)
    each = replace(
        bare,
        size_bytes=facts.st_size if facts else None,
        allocated_bytes=facts.st_blocks * _STAT_BLOCK if facts else 0,
        inode=facts.st_ino if facts else None,
        unfinished=unfinished(image).exists(),
        costs=_node(bare.serving),
        loops=tuple(backed.get(file, []) + backed.get(file + _DELETED, [])),
        served=tuple(backed.get(f"{model}/{DEVICE}", [])),
        model_mounted=any(mount.point == model and mount.fstype == MODEL_TYPE for mount in over),
        server=servers.get(str(bare.model)),
        mounted=mounted,
        failed=any(
            part.device == mounted and not _FAILED.isdisjoint(part.opts.split(","))
            for part in psutil.disk_partitions(all=True)
        ),
    )
    if each.silent:
        return replace(each, model_there=True, point_there=True)
    data = _status(point / DATA) if mounted else None
    return replace(
        each,
        model_there=each.model.is_dir(),
        point_there=point.is_dir(),
        says=_node(point / EMULATED) if mounted else None,
        owner=(data.st_uid, data.st_gid) if data else None,
        empty=data is None or _is_empty(point / DATA),
    )


def _status(folder: Path) -> os.stat_result | None:
    with suppress(OSError):
        return folder.stat() if folder.is_dir() else None
    return None


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:  # `status` is for everybody; the device may have gone
        return False


def _node(file: Path) -> Node | None:
    with suppress(OSError, ValueError):
        return reading.read(file, Node)
    return None


def _servers(folder: Path, patience_s: float | None) -> dict[str, Server]:
    """Return the servers of the models of a folder, by the folder that each serves."""
    found: dict[str, Server] = {}
    for process in psutil.process_iter(["cmdline", "uids", "status"]):
        path, *words = process.info["cmdline"] or [""]
        # Anybody can have such a command line; only root's process serves, and it is no sudo that waits for a password.
        if (
            words
            and path.startswith(f"{folder}/{PROGRAM}")
            and process.info["uids"]
            and not process.info["uids"].real
            and _runs(process.pid, path)
        ):
            stopped = process.info["status"] in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
            faults = None if stopped else _faults(Path(words[0]), patience_s)
            found[words[0]] = Server(process.pid, Path(path).name, tuple(words[2:]), faults, stopped)
    return found


def _runs(pid: int, program: str) -> bool:
    """Return whether a process runs a program; who may not see that, for it is another user's, takes its word."""
    try:
        return str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(_DELETED) == os.path.realpath(program)
    except PermissionError:
        return True
    except OSError:
        return False


def _faults(model: Path, patience_s: float | None) -> tuple[str, ...] | None:
    try:
        return tuple(name for name, value in served(model, patience_s)["faults"].items() if value)
    except ValueError:
        return ()  # a server of another version answers in its own words
    except OSError:
        return None


def _loops() -> tuple[dict[str, list[Loop]], tuple[Loop, ...]]:
    """Find all loop devices: by the file that each is attached to, as the kernel names it, and those that are free."""
    backed: dict[str, list[Loop]] = {}
    idle = []
    names = sorted((path.name for path in _BLOCK_DEVICES.glob("loop*")), key=lambda name: (len(name), name))
    for name in names:
        device = _BLOCK_DEVICES / name
        loop = Loop(f"/dev/{name}", (device / "dev").read_text(encoding="ascii").strip())
        try:
            file = os.fsdecode((device / "loop/backing_file").read_bytes()).removesuffix("\n")
            direct, read_only = (
                (device / name).read_text(encoding="ascii").strip() == "1" for name in ("loop/dio", "ro")
            )
        except OSError:  # free, or let go while we looked
            idle.append(loop)
        else:
            backed.setdefault(file, []).append(replace(loop, direct=direct, read_only=read_only))
    further = range(len(names), len(names) + _FURTHER)
    return backed, (*idle, *(Loop(f"/dev/loop{minor}", f"{_LOOP_MAJOR}:{minor}") for minor in further))
