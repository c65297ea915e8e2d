"""Whether a file system only emulates a storage: those of a testbed (`python -m campaign testbed`) have a marker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jobs.system import files, versioned
from jobs.system.device import UNKNOWN, mount_of

MARKER = ".tfio-emulated.json"
"""File at the top of an emulated file system; what it says is read with it, so it cannot be lost on the way."""

ROOT = 0
_LARGEST_BYTES = 1 << 16
BOUNDS = frozenset({"read_mb_per_s", "write_mb_per_s", "read_iops", "write_iops"})


def emulated(path: Path) -> dict[str, Any] | None:
    """Return what is emulated where `path` lies; None for a real storage.

    Returns ``name`` of the storage that it emulates and its `BOUNDS`, each None where it is as fast as what lies
    beneath. A marker that is not whole is one all the same: of a storage whose name is unknown, and no bounds are
    known. One that is not root's means nothing: only root can make a testbed.
    """
    marker = Path(mount_of(path).point, MARKER)
    try:
        facts = versioned.parsed(files.read(marker, _LARGEST_BYTES, owner=ROOT))
    except (FileNotFoundError, NotADirectoryError, files.OddFileError):
        return None
    except (OSError, ValueError):
        facts = None
    return facts if is_whole(facts) else {"name": UNKNOWN}


def is_whole(facts: object) -> bool:
    """Return whether a marker has a name, and every bound as None or as a number that can be written down."""
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str) or not facts.keys() >= BOUNDS:
        return False
    bounds = [facts[key] for key in BOUNDS if facts[key] is not None]
    return all(type(bound) in (int, float) and 0 < bound <= sys.float_info.max for bound in bounds)
