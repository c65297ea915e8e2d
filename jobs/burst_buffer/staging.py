"""How a snapshot comes to be on a storage: written under a temporary name, made durable, then visible in one rename."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jobs.burst_buffer import snapshots, transfer
from jobs.burst_buffer.snapshots import FILES, Manifest, StoredFile, edge
from jobs.errors import DamageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def stage(
    folder: Path, write: Callable[[Path], object], facts: Callable[[], Mapping[str, Any]], streams: int = 1
) -> Manifest:
    """Call `write` to fill a snapshot; when this returns it is in `folder`, complete and durable.

    Parameters
    ----------
    folder
        What the snapshot is to be called, in a folder that is there: one that is gone is not made anew.
    facts
        Asked when every file is durable; what it says stands in the manifest.

    Raises
    ------
    Exception
        Whatever `write` raises, DamageError for files that could not be restored, OSError; nothing is left then.
    """
    staging = folder.with_name(f"staging-{folder.name}")
    try:
        staging.mkdir()
        (staging / FILES).mkdir()
        edge("staging")
        write(staging / FILES)
        edge("written")
        files = _fingerprint(staging / FILES, streams)
        edge("synced")
        manifest = Manifest(folder.name, snapshots.step(folder.name), files, facts())
        snapshots.seal(staging, manifest)
        edge("sealed")
        snapshots.publish(staging, folder.name)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell; the next trainer tidies up
            snapshots.remove(staging)
        raise
    edge("staged")
    return manifest


def _fingerprint(files: Path, streams: int) -> tuple[StoredFile, ...]:
    """Make all files below a folder durable and return their names, sizes and SHA-256.

    Raises
    ------
    DamageError
        There is no file, or something that is neither file nor folder: it could not be restored.
    """
    paths = sorted(files.rglob("*"))
    odd = [path for path in paths if path.is_symlink() or not (path.is_file() or path.is_dir())]
    found = [path for path in paths if path.is_file()]
    if odd or not found:
        raise DamageError(f"{odd[0]} is no regular file" if odd else f"nothing was written to {files}", "write files")
    folders = [path for path in paths if path.is_dir()] + [files, files.parent]
    with ThreadPoolExecutor(1) as pool:  # the storage writes while the processor hashes
        synced = pool.submit(transfer.sync, found, folders, streams)
        hashes = transfer.hashes(found, streams=streams)
        synced.result()
    return tuple(
        StoredFile(str(path.relative_to(files)), size, digest)
        for path, (size, digest) in zip(found, hashes, strict=True)
    )
