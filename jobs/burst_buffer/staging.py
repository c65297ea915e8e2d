"""How a snapshot comes to be on a storage: written under a temporary name, made durable, then visible in one rename."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs.burst_buffer import snapshots
from jobs.burst_buffer.snapshots import FILES, Manifest, StoredFile, edge
from jobs.errors import DamageError
from jobs.system import files, transfer


def stage(
    folder: Path, write: Callable[[Path], object], facts: Callable[[], Mapping[str, Any]], streams: int = 1
) -> Manifest:
    """Call `write` to fill a snapshot; when this returns it is in `folder`, complete and durable.

    `facts` is asked when every file is durable, for the manifest. Where `write` raises, files could not be restored or
    a storage fails, nothing is left. The folder above is not made anew.
    """
    staging = folder.with_name(f"staging-{folder.name}")
    try:
        files.make_folder(staging)
        files.make_folder(staging / FILES)
        edge("staging")
        write(staging / FILES)
        edge("written")
        stored = _fingerprint(staging / FILES, streams)
        edge("synced")
        manifest = Manifest(folder.name, snapshots.step(folder.name), stored, facts())
        snapshots.seal(staging, manifest)
        edge("sealed")
        snapshots.publish(staging, folder.name)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell; the next trainer tidies up
            snapshots.remove(staging)
        raise
    edge("staged")
    return manifest


def _fingerprint(folder: Path, streams: int) -> tuple[StoredFile, ...]:
    """Make all files below a folder durable and return them; DamageError without any, or where one is no file."""
    kinds = {name: stat.S_IFMT(status.st_mode) for name, status in files.tree(folder).items()}
    odd = [name for name, kind in kinds.items() if kind not in (stat.S_IFREG, stat.S_IFDIR)]
    found = sorted(name for name, kind in kinds.items() if kind == stat.S_IFREG)
    if odd or not found:
        why = f"{folder / odd[0]} is no regular file" if odd else f"nothing was written to {folder}"
        raise DamageError(why, "write files")
    paths = [folder / name for name in found]
    folders = [folder / name for name, kind in kinds.items() if kind == stat.S_IFDIR] + [folder, folder.parent]
    with ThreadPoolExecutor(1) as pool:  # the storage writes while the processor hashes
        synced = pool.submit(transfer.sync, paths, folders, streams)
        hashes = transfer.hashes(paths, streams=streams)
        synced.result()
    return tuple(StoredFile(name, size, digest) for name, (size, digest) in zip(found, hashes, strict=True))
