"""Builds the hook library beside its source: when the project is installed, else at its first use.

Imports nothing of ours: the installer loads this file by itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
_SOURCES = ("hooks.c", "plugin.c", "preload.c", "slots.c")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LINK = ("-Wl,-z,nodelete", "-ldl", "-lpthread")  # never unloaded: a thread may be inside a hook
_TIMEOUT_S = 120


class BuildError(Exception):
    """The library cannot be built here; says what to install."""


def library() -> Path:
    """Return where the library of just this source and this C library is, or would be."""
    sources = b"".join((HERE / name).read_bytes() for name in (*_SOURCES, "hooks.h", Path(__file__).name))
    libc = "CS_GNU_LIBC_VERSION"
    sources += (os.confstr(libc) or "").encode() if libc in os.confstr_names else b""
    return HERE / f"hooks-{hashlib.sha256(sources).hexdigest()[:12]}-{platform.machine()}.so"


def _trusted(target: Path) -> bool:
    """Tell whether a library is there that only its owner can have written: one whose programs we run anyway."""
    try:
        found = target.lstat()
    except FileNotFoundError:
        return False
    owners = {0, os.geteuid(), Path(__file__).stat().st_uid}
    return stat.S_ISREG(found.st_mode) and found.st_uid in owners and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def build() -> Path:
    """Compile it if it is not there; it appears whole. Others stay: of a shared folder, other machines run from them.

    Raises BuildError.
    """
    target = library()
    if _trusted(target):
        return target
    found = next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), [])
    compiler = shlex.split(os.environ.get("CC", "")) or found
    if not compiler:
        raise BuildError("no C compiler was found: install gcc or clang with the C library's headers, or set $CC")
    try:
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
            made = Path(folder, target.name)
            command = [*compiler, *_FLAGS, "-o", str(made), *(str(HERE / name) for name in _SOURCES), *_LINK]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_TIMEOUT_S)
            made.chmod(0o755)  # whatever the umask
            made.replace(target)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()[:2000]
        raise BuildError(
            f"{compiler[0]} cannot build the hook library (are the C library's headers there?): {said}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(
            f"the hook library cannot be built in {target.parent}: {error}; install the project anew"
        ) from error
    return target
