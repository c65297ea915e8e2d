"""Whether a file system only plays a storage: those of a testbed (`python -m campaign testbed`) say so themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.device import UNKNOWN, mount_of

MARKER = ".tfio-emulated.json"
"""File at the top of an emulated file system; what it says is read with it, so it cannot be lost on the way."""


def emulated(path: Path) -> dict[str, Any] | None:
    """Return what is emulated where `path` lies; None for a real storage.

    Returns
    -------
    dict
        ``name`` of the storage that it plays and its bounds: ``read_mb_per_s``, ``write_mb_per_s``, ``read_iops``,
        ``write_iops``, each None where it is as fast as what lies beneath. A marker that cannot be read is one too.
    """
    marker = Path(mount_of(path).point, MARKER)
    try:
        facts = json.loads(marker.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return {"name": UNKNOWN}
    return facts if isinstance(facts, dict) else {"name": UNKNOWN}
