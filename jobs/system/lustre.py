"""Set the stripe layout of files on Lustre with the program ``lfs``, and read the layout back."""

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

FSTYPE = "lustre"  # type of the file system in /proc/self/mountinfo
EVERY_TARGET = -1
_TIMEOUT_S = 60  # time limit of ``lfs``, which hangs if Lustre does not answer
_MIB = 2**20
_NUMBERS = {"stripe_count": "stripe_count", "stripe_size": "stripe_size_bytes", "stripe_offset": "offset"}
# lfs-getstripe(1) prints lmm_stripe_count for a file, but stripe_count for the default layout of a folder.
_PAIR = re.compile(
    r"\b(?:lmm_)?(stripe_count|stripe_size|stripe_offset|pool):[ \t]+(\S+)(?=[ \t]*$|[ \t]+\w+:)", re.MULTILINE
)
_COMPOSITE = re.compile(r"\blcme?_\w+:")
_NO_STRIPES = "or request no stripe layout: storage.stripe_count=null storage.stripe_size_mib=null"


@dataclass(frozen=True)
class StripeLayout:
    """The stripe layout that the user requests for files on Lustre."""

    # Number of storage targets (OSTs) for a file. -1: all targets; None: the default of the file system.
    stripe_count: int | None = None
    stripe_size_mib: int | None = None  # MiB on one target before the next target; None: the file system's default

    @property
    def is_requested(self) -> bool:
        """Return whether the user requests a stripe count or a stripe size."""
        return self.stripe_count is not None or self.stripe_size_mib is not None

    @property
    def suffix(self) -> str:
        """Return the suffix of a dataset's folder name for this layout, or "" if no layout is requested."""
        count = "all" if self.stripe_count == EVERY_TARGET else self.stripe_count
        return ("" if count is None else f"-c{count}") + (
            "" if self.stripe_size_mib is None else f"-s{self.stripe_size_mib}MiB"
        )


def set_layout(folder: Path, layout: StripeLayout) -> None:
    """Make a folder, and set the layout of its future files. The layout of a folder with files is not changed."""
    files.make_folder(folder, exist_ok=True, parents=True)
    if files.names_in_folder(folder):  # the layout of a file is decided when the file is made
        return
    options = [] if layout.stripe_count is None else ["-c", str(layout.stripe_count)]
    options += [] if layout.stripe_size_mib is None else ["-S", f"{layout.stripe_size_mib}M"]
    _run_lfs("setstripe", *options, str(folder))


def read_layout(folder: Path, file: Path, layout: StripeLayout) -> dict[str, Any] | None:
    """Return the default layout of `folder` (key ``folder``) and the layout of `file` (key ``file``).

    The values have the format of `parse_getstripe`. Returns None if no layout was requested and ``lfs`` fails. Raises
    DatasetError if a requested layout cannot be read back, or if `file` has another layout.
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


def striping_of(folder: Path, file: Path, layout: StripeLayout) -> dict[str, Any]:
    """Return the stripe layout of a folder and a file on Lustre, under the key ``stripe``.

    On another file system, the result is empty if no layout is requested.
    """
    if not layout.is_requested and mount_of(folder).fstype != FSTYPE:
        return {}
    return {"stripe": read_layout(folder, file, layout)}


def parse_getstripe(text: str) -> dict[str, Any]:
    """Return the values in the output of ``lfs getstripe``.

    The values are ``stripe_count`` (-1: every target), ``stripe_size_bytes``, ``offset`` (-1: any target) and ``pool``
    (None: no pool). For a layout with several components, and for an unknown text, the only key is ``raw``, with the
    text.
    """
    # A path at the start of the text may look like a pair. The real pair comes later, and replaces the wrong pair.
    pairs = dict(_PAIR.findall(text))
    pool = pairs.pop("pool", None)
    plain = not _COMPOSITE.search(text) and all(re.fullmatch(r"-?\d+", value) for value in pairs.values())
    if not plain or pairs.keys() != _NUMBERS.keys():
        return {"raw": text}
    return {name: int(pairs[lfs_name]) for lfs_name, name in _NUMBERS.items()} | {"pool": pool}


def _require_layout(file: Path, layouts: dict[str, Any], layout: StripeLayout) -> None:
    count = None if layout.stripe_count == EVERY_TARGET else layout.stripe_count
    size = None if layout.stripe_size_mib is None else layout.stripe_size_mib * _MIB
    for key, requested in (("stripe_count", count), ("stripe_size_bytes", size)):
        if requested is not None and layouts.get(key) != requested:
            layout_text = f"{key}={layouts[key]}" if key in layouts else "a layout of several components, or no layout"
            message = f"{file} has {layout_text}, not the requested {key}={requested}"
            raise DatasetError(message, f"request this layout, or change the files with `lfs migrate`; {_NO_STRIPES}")


def _run_lfs(*arguments: str) -> str:
    """Run ``lfs`` and return its output; raise DatasetError if ``lfs`` fails."""
    program = shutil.which("lfs")
    if program is None:
        message = f"there is no program lfs on this machine for `lfs {arguments[0]}`"
        raise DatasetError(message, f"install or load the Lustre client's tools; {_NO_STRIPES}")
    try:
        completed = programs.run_program([program, *arguments], timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        message = f"`lfs {' '.join(arguments)}` did not answer within {_TIMEOUT_S} s"
        raise DatasetError(message, "check that the file system works, then give the same command again") from error
    if completed.returncode:
        message = " ".join((completed.stderr or completed.stdout).split()) or f"exit code {completed.returncode}"
        cure = f"check that the folder is on Lustre, {_NO_STRIPES}"
        raise DatasetError(f"`lfs {' '.join(arguments)}` failed: {message}", cure)
    return completed.stdout
