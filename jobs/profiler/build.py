"""Builds the hook library beside its source: when the project is installed, else at its first use.

Imports nothing of ours: the installer loads this file by itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
_SOURCES = ("hooks.c", "slots.c")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
_LINK = ("-Wl,-z,nodelete", "-ldl", "-lpthread")  # never unloaded: a thread may be inside a hook
_TIMEOUT_S = 120


class BuildError(Exception):
    """The library cannot be built here; says what to install."""


def library() -> Path:
    """Return where the library of just this source is, or would be."""
    sources = b"".join((HERE / name).read_bytes() for name in (*_SOURCES, "hooks.h"))
    return HERE / f"hooks-{hashlib.sha256(sources).hexdigest()[:12]}-{platform.machine()}.so"


def build() -> Path:
    """Compile it if it is not there; it appears whole. Raises BuildError."""
    target = library()
    if target.exists():
        return target
    found = next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), [])
    compiler = shlex.split(os.environ.get("CC", "")) or found
    if not compiler:
        raise BuildError("no C compiler was found: install gcc or clang with the C library's headers, or set $CC")
    try:
        with tempfile.TemporaryDirectory(prefix=".build-", dir=HERE) as folder:
            made = Path(folder, target.name)
            command = [*compiler, *_FLAGS, "-o", str(made), *(str(HERE / name) for name in _SOURCES), *_LINK]
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_TIMEOUT_S)
            for older in {*HERE.glob(f"hooks-*-{platform.machine()}.so")} - {target}:  # another may just have built it
                older.unlink(missing_ok=True)
            made.replace(target)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()[:2000]
        raise BuildError(
            f"{compiler[0]} cannot build the hook library (are the C library's headers there?): {said}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the hook library cannot be built in {HERE}: {error}; install the project anew") from error
    return target
