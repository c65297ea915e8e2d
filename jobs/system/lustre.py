"""Set and read back how Lustre stripes files over its targets."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.errors import DatasetError
from jobs.system import files, programs
from jobs.system.device import mount_of

FSTYPE = "lustre"  # in /proc/self/mountinfo
EVERY_TARGET = -1
_TIMEOUT_S = 60  # a Lustre that does not answer hangs for ever
_MIB = 2**20
_NUMBERS = {"stripe_count": "stripe_count", "stripe_size": "stripe_size_bytes", "stripe_offset": "offset"}
# lfs-getstripe(1) names the same thing lmm_stripe_count for a file and stripe_count for a folder's default.
_PAIR = re.compile(
    r"\b(?:lmm_)?(stripe_count|stripe_size|stripe_offset|pool):[ \t]+(\S+)(?=[ \t]*$|[ \t]+\w+:)", re.MULTILINE
)
_COMPOSITE = re.compile(r"\blcme?_\w+:")
_NO_STRIPES = "storage.stripe_count=null storage.stripe_size_mib=null leaves stripes as they are"


@dataclass(frozen=True)
class Layout:
    """The requested stripes."""

    # Targets (OSTs) that a file is spread over, -1 for all; None leaves it to the file system.
    stripe_count: int | None = None
    stripe_size_mib: int | None = None  # MiB that lie on one target before the next has its turn; None as above

    @property
    def is_requested(self) -> bool:
        """Return whether any layout is requested."""
        return self.stripe_count is not None or self.stripe_size_mib is not None

    @property
    def suffix(self) -> str:
        """Return what tells a data set's folder from those with other stripes; empty if none are requested."""
        count = "all" if self.stripe_count == EVERY_TARGET else self.stripe_count
        return ("" if count is None else f"-c{count}") + (
            "" if self.stripe_size_mib is None else f"-s{self.stripe_size_mib}MiB"
        )


def set_layout(folder: Path, layout: Layout) -> None:
    """Make a folder whose files will have a layout; a folder that already holds something keeps its own."""
    files.make_folder(folder, exist_ok=True, parents=True)
    if files.names(folder):  # files inherit when they are made: it is too late, or has been done
        return
    options = [] if layout.stripe_count is None else ["-c", str(layout.stripe_count)]
    options += [] if layout.stripe_size_mib is None else ["-S", f"{layout.stripe_size_mib}M"]
    _run_lfs("setstripe", *options, str(folder))


def read_layout(folder: Path, file: Path, layout: Layout) -> dict[str, Any] | None:
    """Return the layout that new files of `folder` get and the one that `file` has.

    Returns ``folder`` and ``file``, each as `parse_getstripe` has it; None if nothing was requested and lfs is silent.
    Raises DatasetError: what was asked cannot be read back, or `file` has another layout.
    """
    try:
        layouts = {
            "folder": parse_getstripe(_run_lfs("getstripe", "-d", str(folder))),
            "file": parse_getstripe(_run_lfs("getstripe", str(file))),
        }
    except DatasetError:
        if layout.is_requested:
            raise
        return None
    _require_layout(file, layouts["file"], layout)
    return layouts


def stripe_folder(folder: Path, file: Path, layout: Layout) -> dict[str, Any]:
    """Return how files lie on Lustre; nothing on another file system if no stripes are requested."""
    if not layout.is_requested and mount_of(folder).fstype != FSTYPE:
        return {}
    return {"stripe": read_layout(folder, file, layout)}


def parse_getstripe(text: str) -> dict[str, Any]:
    """Return the values in the output of ``lfs getstripe``.

    ``stripe_count`` (-1: every target), ``stripe_size_bytes``, ``offset`` (-1: any target), ``pool`` or None; for a
    layout with several components, and for what is no layout, the text as it is: ``raw``.
    """
    pairs = dict(_PAIR.findall(text))  # the path stands before them: should it look like one, the last counts
    pool = pairs.pop("pool", None)
    plain = not _COMPOSITE.search(text) and all(re.fullmatch(r"-?\d+", value) for value in pairs.values())
    if not plain or pairs.keys() != _NUMBERS.keys():
        return {"raw": text}
    return {ours: int(pairs[theirs]) for theirs, ours in _NUMBERS.items()} | {"pool": pool}


def _require_layout(file: Path, layouts: dict[str, Any], layout: Layout) -> None:
    count = None if layout.stripe_count == EVERY_TARGET else layout.stripe_count
    size = None if layout.stripe_size_mib is None else layout.stripe_size_mib * _MIB
    for key, wanted in (("stripe_count", count), ("stripe_size_bytes", size)):
        if wanted is not None and layouts.get(key) != wanted:
            has = f"{key}={layouts[key]}" if key in layouts else "a layout of several parts, or none"
            message = f"{file} has {has}, not the {key}={wanted} that was asked for"
            raise DatasetError(message, f"ask for what is there, or let `lfs migrate` change the files; {_NO_STRIPES}")


def _run_lfs(*arguments: str) -> str:
    """Return the output of ``lfs``; its complaints become a DatasetError."""
    program = shutil.which("lfs")
    if program is None:
        message = f"there is no program lfs on this machine for `lfs {arguments[0]}`"
        raise DatasetError(message, f"install or load the Lustre client's tools; {_NO_STRIPES}")
    try:
        done = programs.run([program, *arguments], timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        message = f"`lfs {' '.join(arguments)}` did not answer within {_TIMEOUT_S} s"
        raise DatasetError(message, "see whether the file system is well, then give the same command again") from error
    if done.returncode:
        message = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise DatasetError(f"`lfs {' '.join(arguments)}` failed: {message}", f"is this Lustre? {_NO_STRIPES}")
    return done.stdout
