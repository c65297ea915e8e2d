"""Compile the hook library into the folder of its source, at the installation of the project or at the first use.

This module imports no other module of this project, because the installer loads only this file.
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
_SOURCES = ("counters.c", "hooks.c", "names.c", "plugin.c", "preload.c", "slots.c")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LINK = ("-Wl,-z,nodelete", "-ldl", "-lpthread")  # nodelete: a thread may be in a hook, so never unload
_TIMEOUT_S = 120


class BuildError(Exception):
    """Raised if the library cannot be built; the message says what to install."""


def library_path() -> Path:
    """Return the path of the library for the current source and the installed C library; the file may be missing."""
    sources = b"".join((HERE / name).read_bytes() for name in (*_SOURCES, "hooks.h", Path(__file__).name))
    libc = "CS_GNU_LIBC_VERSION"
    sources += (os.confstr(libc) or "").encode() if libc in os.confstr_names else b""
    return HERE / f"hooks-{hashlib.sha256(sources).hexdigest()[:12]}-{platform.machine()}.so"


def _is_trusted(target: Path) -> bool:
    """Return whether the library exists, and whether no untrusted user can have written the library.

    Trusted are root, the current user and the owner of this Python file.
    """
    try:
        status = target.lstat()
    except FileNotFoundError:
        return False
    owners = {0, os.geteuid(), Path(__file__).stat().st_uid}
    others_may_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(status.st_mode) and status.st_uid in owners and not others_may_write


def build_library() -> Path:
    """Compile the library if it is missing, and return the path of the library.

    A new library is renamed into place, so that no process sees an incomplete file. Older libraries are not removed,
    because other machines may use these libraries in a shared folder. Raises BuildError if the compilation fails.
    """
    target = library_path()
    if _is_trusted(target):
        return target
    installed = next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), [])
    compiler = shlex.split(os.environ.get("CC", "")) or installed
    if not compiler:
        raise BuildError("no C compiler was found: install gcc or clang with the C library's headers, or set $CC")
    try:
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
            library_file = Path(folder, target.name)
            command = [*compiler, *_FLAGS, "-o", str(library_file), *(str(HERE / name) for name in _SOURCES), *_LINK]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_TIMEOUT_S)
            library_file.chmod(0o755)  # the umask must not restrict the permissions
            library_file.replace(target)
    except subprocess.CalledProcessError as error:
        compiler_output = error.stderr.decode(errors="replace").strip()[:2000]
        raise BuildError(
            f"{compiler[0]} cannot build the hook library (are the C library's headers installed?): {compiler_output}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(
            f"the hook library cannot be built in {target.parent}: {error}; install the project again"
        ) from error
    return target
