"""The marker of a folder of snapshots, or of a bucket: whose it is and what it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from jobs.errors import FolderError
from jobs.model import reading
from jobs.system import files, untrusted

SCHEMA = 1
MARKER_NAME = ".tfio-burst-buffer.json"
JOURNAL_NAME = ".tfio-burst-buffer.journal.jsonl"
LOG_NAME = ".tfio-burst-buffer.log"
ALONE = "only"  # role of the one folder of a training without a burst buffer
OURS = (".tfio-burst-buffer", "..tfio-burst-buffer")  # the second: a marker that was being written
_ELSEWHERE = "name folders of your own; in a campaign checkpoint.root=…, checkpoint.fast.root=…, checkpoint.slow.root=…"


class Marker(TypedDict):
    """What the marker of a folder says; ``options`` of its drain has the one of a fast folder alone."""

    id: str
    role: Literal["fast", "slow", "only"]
    options: NotRequired[Any]
    session: NotRequired[str | None]  # of the trainer that was the last to open a bucket, which has no locks


def of_folder(folder: Path) -> Marker | None:
    """Return the marker of a folder, None for an empty one; raises FolderError for any other, and touches nothing."""
    marker = folder / MARKER_NAME
    try:
        if fault := files.distrust(folder):
            raise FolderError(fault, _ELSEWHERE)
        return parsed(lambda: reading.load(marker), marker)
    except FileNotFoundError:
        _refuse_strangers(folder)
        return None
    except NotADirectoryError as error:
        raise FolderError(f"{folder} is no folder", "name a folder") from error


def parsed(load: Callable[[], Any], marker: object) -> Marker:
    """Return the marker that `load` gives as JSON says it; raises FolderError where it is none."""
    try:
        return reading.checked(load(), Marker, SCHEMA)
    except untrusted.UntrustedError as error:
        raise FolderError(f"{marker} is no marker of ours: {error}", "name an empty folder") from error
    except reading.NewerFileError as error:
        raise FolderError(
            f"{marker} has {error}, newer than {SCHEMA}", "use the newer version, or a new folder"
        ) from error


def _refuse_strangers(folder: Path) -> None:
    if not folder.is_dir():
        gone = next((above for above in reversed(folder.parents) if not above.exists()), folder)
        raise FolderError(f"{gone} is missing", "make it, or mount its file system")
    strangers = [name for name in files.names(folder) if not name.startswith(OURS)]
    if strangers:
        raise FolderError(
            f"{folder} is no folder of snapshots: it holds other files, {len(strangers)} in all, as {strangers[0]}",
            "name an empty folder, or a new one below it",
        )
