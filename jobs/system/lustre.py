"""Stripes: over how many targets Lustre spreads a file; set before a dataset is made, read back for its record."""

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
    """What is asked of Lustre."""

    # Targets (OSTs) that a file is spread over, -1 for all; None leaves it to the file system.
    stripe_count: int | None = None
    stripe_size_mib: int | None = None  # MiB that lie on one target before the next has its turn; None as above

    @property
    def asked(self) -> bool:
        """Whether any layout is asked for."""
        return self.stripe_count is not None or self.stripe_size_mib is not None

    @property
    def suffix(self) -> str:
        """Return what distinguishes a dataset's folder from those with other stripes; empty where nothing is asked."""
        count = "all" if self.stripe_count == EVERY_TARGET else self.stripe_count
        return ("" if count is None else f"-c{count}") + (
            "" if self.stripe_size_mib is None else f"-s{self.stripe_size_mib}MiB"
        )


def set_layout(folder: Path, layout: Layout) -> None:
    """Make a folder whose files will have a layout; one that already holds something keeps its own."""
    files.make_folder(folder, exist_ok=True, parents=True)
    if files.names(folder):  # files inherit when they are made: it is too late, or has been done
        return
    options = [] if layout.stripe_count is None else ["-c", str(layout.stripe_count)]
    options += [] if layout.stripe_size_mib is None else ["-S", f"{layout.stripe_size_mib}M"]
    _lfs("setstripe", *options, str(folder))


def read_back(folder: Path, file: Path, layout: Layout) -> dict[str, Any] | None:
    """Read the layout that new files of `folder` get and the one that `file` has.

    Returns ``folder`` and ``file``, each as `parse` has it; None where nothing was asked and lfs does not answer.
    Raises DatasetError: what was asked cannot be read back, or `file` has another layout.
    """
    try:
        found = {"folder": parse(_lfs("getstripe", "-d", str(folder))), "file": parse(_lfs("getstripe", str(file)))}
    except DatasetError:
        if layout.asked:
            raise
        return None
    _refuse_another(file, found["file"], layout)
    return found


def stripe(folder: Path, file: Path, layout: Layout) -> dict[str, Any]:
    """Return how files lie on Lustre; nothing where it is another file system and no stripes are asked for."""
    if not layout.asked and mount_of(folder).fstype != FSTYPE:
        return {}
    return {"stripe": read_back(folder, file, layout)}


def parse(text: str) -> dict[str, Any]:
    """Take the output of ``lfs getstripe`` apart.

    ``stripe_count`` (-1: every target), ``stripe_size_bytes``, ``offset`` (-1: any target), ``pool`` or None; for a
    layout with several components, and for what is no layout, the text as it is: ``raw``.
    """
    pairs = dict(_PAIR.findall(text))  # the path stands before them: should it look like one, the last counts
    pool = pairs.pop("pool", None)
    plain = not _COMPOSITE.search(text) and all(re.fullmatch(r"-?\d+", value) for value in pairs.values())
    if not plain or pairs.keys() != _NUMBERS.keys():
        return {"raw": text}
    return {ours: int(pairs[theirs]) for theirs, ours in _NUMBERS.items()} | {"pool": pool}


def _refuse_another(file: Path, found: dict[str, Any], layout: Layout) -> None:
    count = None if layout.stripe_count == EVERY_TARGET else layout.stripe_count
    size = None if layout.stripe_size_mib is None else layout.stripe_size_mib * _MIB
    for key, wanted in (("stripe_count", count), ("stripe_size_bytes", size)):
        if wanted is not None and found.get(key) != wanted:
            has = f"{key}={found[key]}" if key in found else "a layout of several parts, or none"
            message = f"{file} has {has}, not the {key}={wanted} that was asked for"
            raise DatasetError(message, f"ask for what is there, or let `lfs migrate` change the files; {_NO_STRIPES}")


def _lfs(*arguments: str) -> str:
    """Return what ``lfs`` prints; what it complains of becomes a DatasetError."""
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
        said = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise DatasetError(f"`lfs {' '.join(arguments)}` failed: {said}", f"is this Lustre? {_NO_STRIPES}")
    return done.stdout
