"""What lies are made of: loop devices, file systems, FUSE servers, preloaded libraries; a stack undoes each."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from campaign.testbed import spec
from tests.campaign.testbed.models import KINDS
from tests.lies.lie import MissingError

SOURCES = Path(__file__).parent / "c"
_MOUNTED_WITHIN_S = 20
_SEES_NO_MOUNTS = 'mount --bind /dev/null /proc/$$/mounts && exec "$0" "$@"'
"""A shell's command: mkfs.btrfs looks at every mounted file, and gives up where the server of one of them died."""
_AT_ONCE = ("-E", "lazy_itable_init=0,lazy_journal_init=0")  # else the kernel writes on after the first mount


class Disk(NamedTuple):
    """A file system on a loop device, and where it is mounted."""

    device: str
    point: Path

    def read_bytes(self) -> int:
        """Return the bytes read from the device by everybody, as the kernel counts them."""
        return int(Path("/sys/block", self.device, "stat").read_text().split()[2]) * 512


class Server(NamedTuple):
    """A FUSE file system, and the file in which its server counts."""

    point: Path
    counts: Path

    def served(self) -> tuple[int, int]:
        """Return the bytes that the server gave, and those that it read from its disk."""
        given, fetched = struct.unpack("QQ", self.counts.read_bytes())
        return given, fetched


def need(*programs: str) -> None:
    """Raise MissingError unless we are root and have these programs."""
    if os.geteuid() != 0:
        raise MissingError("it needs root")
    for program in programs:
        if not shutil.which(program):
            raise MissingError(f"there is no {program}")


def call(*words: str | Path) -> str:
    """Run a program and return what it prints; where it fails, the sandbox forbids it: MissingError."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"`{' '.join(map(str, words))}` failed: {done.stderr.strip()}")
    return done.stdout.strip()


def attach(stack: contextlib.ExitStack, file: Path, *options: str) -> str:
    """Attach a file to a loop device and return the device's name."""
    need("losetup")
    node = call("losetup", *options, "--find", "--show", file)
    stack.callback(_try, "losetup", "--detach", node)
    return Path(node).name


def mount(stack: contextlib.ExitStack, what: str | Path, point: Path, *options: str) -> Path:
    """Mount something and return the mount point."""
    need("mount", "umount")
    point.mkdir(parents=True, exist_ok=True)
    call("mount", *options, what, point)
    stack.callback(_try, "umount", "--lazy", point)
    return point


def memory(stack: contextlib.ExitStack, point: Path, mib: int) -> Path:
    """Mount a file system in memory of so many MiB."""
    return mount(stack, "none", point, "-t", "tmpfs", "-o", f"size={mib}m,mode=755")


def disk(
    stack: contextlib.ExitStack, file: Path, point: Path, *options: str, mib: int = 32, fs: str = "ext4", **below: Any
) -> Disk:
    """Make a file system in `file`, attach it to a loop device, and mount it; `below` is as of `device`."""
    need("unshare", f"mkfs.{fs}")
    with file.open("wb") as made:
        made.truncate(mib << 20)
    call(
        "unshare", "--mount", "sh", "-c", _SEES_NO_MOUNTS, f"mkfs.{fs}", "-q", *(_AT_ONCE if fs == "ext4" else ()), file
    )
    name = device(stack, file, **below)
    mount(stack, f"/dev/{name}", point, *options)
    return Disk(name, point)


def device(stack: contextlib.ExitStack, file: Path, *, model: str = "", direct: bool = False) -> str:
    """Return the loop device of a file; by direct I/O past the page cache, or through a testbed's model of a device."""
    if not model:
        return attach(stack, file, *(["--direct-io=on"] if direct else []))
    program, point = file.with_name("model"), file.with_name(f"{file.name}-model")
    _compile("-o", program, spec.model_source(), "-lm")
    point.mkdir()
    call(program, point, file, f"kind={model}", *(f"{key}={value}" for key, value in KINDS[model].items()))
    stack.callback(_try, "umount", "--lazy", point)
    return attach(stack, point / "device", "--direct-io=on")


def overlay(stack: contextlib.ExitStack, lower: Path, folder: Path) -> Path:
    """Mount an overlay on the folder `lower`, as containers do."""
    point, upper, work = (folder / name for name in ("merged", "upper", "work"))
    upper.mkdir(parents=True)
    work.mkdir()
    return mount(stack, "overlay", point, "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}")


def library(folder: Path, name: str) -> str:
    """Compile a library that is to be preloaded, and return its path."""
    made = folder / f"{name}.so"
    _compile("-shared", "-fPIC", "-o", made, SOURCES / f"{name}.c", "-ldl")
    return str(made)


def fuse(stack: contextlib.ExitStack, folder: Path, mode: str, source: Path, point: Path) -> Server:
    """Serve the files of `source` in one of the modes of ``c/server.c``."""
    need("fusermount3", "pkg-config")
    program, counts = folder / "server", folder / "counts"
    _compile("-o", program, SOURCES / "server.c", *call("pkg-config", "--cflags", "--libs", "fuse3").split())
    point.mkdir(parents=True)
    counts.write_bytes(bytes(16))
    server = subprocess.Popen([program, mode, source, counts, point, "-f", "-s"])
    stack.callback(_end_server, server, point)
    deadline = time.monotonic() + _MOUNTED_WITHIN_S
    while not os.path.ismount(point):
        if server.poll() is not None or time.monotonic() > deadline:
            raise MissingError("no FUSE file system can be mounted")
        time.sleep(0.02)
    return Server(point, counts)


def repeat(stack: contextlib.ExitStack, *words: str) -> None:
    """Run a command over and over."""
    loop = subprocess.Popen(["sh", "-c", 'while "$@" 2>/dev/null; do :; done', "sh", *words], start_new_session=True)
    stack.callback(loop.wait)
    stack.callback(os.killpg, loop.pid, signal.SIGKILL)


def mounts_below(folder: Path) -> list[str]:
    """List the mount points below a folder."""
    lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    return [point for line in lines if (point := line.split()[4]).startswith(f"{folder}/")]


def _compile(*words: str | Path) -> None:
    need("cc")
    call("cc", "-O2", "-Wall", "-Wextra", "-Werror", *words)


def _end_server(server: subprocess.Popen[bytes], point: Path) -> None:
    _try("fusermount3", "-uz", point)
    server.kill()
    server.wait()


def _try(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], capture_output=True, check=False)
