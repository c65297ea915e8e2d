"""Snapshots on disk: a folder that is complete and has its manifest, or is not there.

A snapshot is a folder ``<name>/`` with the user's files in ``files/`` and ``manifest.json`` beside them: names, sizes
and SHA-256.  While it is made it has a temporary name; the manifest is written into it when every file is durable and
verified, and one rename makes both visible.  So where a snapshot stands follows from the disk alone:

======================================  ===========  =================================================
on the fast storage                     staging      ``staging-<name>/``
                                        staged       ``<name>/``
on the slow storage                     copying      ``copying-<name>/`` without a manifest
                                        copied       ``copying-<name>/`` with its manifest
                                        committed    ``<name>/``; the fast copy is evictable
on either, on its way out               removing     ``removing-<name>/``
on the fast one, found wrong            damaged      ``damaged-<name>/``, kept until its room is needed
======================================  ===========  =================================================
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

from msgspec import Meta

from jobs.errors import DamageError, FolderError, RoomError
from jobs.model import reading
from jobs.system import durable, files, transfer

SCHEMA = 1
MANIFEST_NAME = "manifest.json"
FILES = "files"
PREFIX = "ckpt"  # of the names of the files that TensorFlow writes there
_NAME = re.compile(
    r"(?:(?P<state>staging|copying|removing|damaged)-)?(?P<name>(?P<sequence>\d{8,})-step(?P<step>\d+)-[0-9a-f]{8})"
)


class StoredFile(NamedTuple):
    """One file of a snapshot: its path relative to ``files/``, its size in bytes, its SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


class _Stored(TypedDict):
    name: str
    step: int
    files: Annotated[list[tuple[str, Annotated[int, Meta(ge=0)], str]], Meta(min_length=1)]
    facts: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class Manifest:
    """What a snapshot holds."""

    name: str
    step: int
    files: tuple[StoredFile, ...]
    # Times of the trainer (`saved_at`, seconds since 1970; `write_s`, `waited_s`) and, on the slow storage, of the
    # drain.
    facts: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def total_bytes(self) -> int:
        """Return the sum of the file sizes."""
        return sum(file.size for file in self.files)


def edge(_name: str) -> None:
    """Mark the boundary between two steps of the state machine. It does nothing; a test ends the process here."""


def new_name(sequence: int, step: int) -> str:
    """Name a snapshot: the order of saving, the step of the training, and a token, for a step may be saved again."""
    return f"{sequence:08d}-step{step}-{secrets.token_hex(4)}"


def sequence(name: str) -> int:
    """Return the place of a snapshot in the order of saving; higher is newer."""
    return int(name.partition("-")[0])


def step(name: str) -> int:
    """Return the step of the training that a snapshot is of."""
    return int(name.split("-")[1].removeprefix("step"))


def names(root: Path, state: str | None = None) -> list[str]:
    """Return the names of the snapshots in `root`, the newest last: the visible ones, or those in a `state`.

    Folders with other names are skipped.
    """
    return ordered(files.names(root), state)


def ordered(words: Iterable[str], state: str | None = None) -> list[str]:
    """Return those of the words that are the names of snapshots in a `state`, without it, the newest last."""
    visible = [match["name"] for match in map(_NAME.fullmatch, words) if match and match["state"] == state]
    return sorted(visible, key=lambda name: (sequence(name), name))


def read(folder: Path) -> Manifest:
    """Read the manifest of a snapshot; raises DamageError where none is good, FolderError for a newer version's."""
    path = folder / MANIFEST_NAME
    return parsed(lambda: reading.load(path), folder.name, path)


def parsed(load: Callable[[], Any], name: str, path: object) -> Manifest:
    """Return the manifest of a snapshot, which `load` gives as JSON says it; errors are those of `read`."""
    match = _NAME.fullmatch(name)
    try:
        value: Any = reading.checked(load(), _Stored, SCHEMA)
        manifest = Manifest(**{**value, "files": tuple(StoredFile(*file) for file in value["files"])})
        if strays := [file.name for file in manifest.files if not files.is_below(file.name)]:
            raise ValueError(f"{strays[0]!r} is no file in a snapshot")  # noqa: TRY301 - told as the rest
    except (FileNotFoundError, ValueError, TypeError) as error:
        raise DamageError(f"{path} cannot be read: {error}", "an older snapshot may be good") from error
    except reading.NewerFileError as error:
        raise FolderError(f"{path} has {error}, newer than {SCHEMA}", "use the newer version") from error
    ours = match and (match["name"], int(match["step"])) == (manifest.name, manifest.step)
    if not ours:
        raise DamageError(f"{path} is of another snapshot", "an older snapshot may be good")
    return manifest


def sealed(root: Path) -> list[str]:
    """Return the names of the visible snapshots that have their manifest, the newest last: others count for nothing."""

    def good(name: str) -> bool:
        with suppress(DamageError):
            return bool(read(root / name))
        return False

    return [name for name in names(root) if good(name)]


def refuse_newer(root: Path) -> None:
    """Raise FolderError where a newer version has written into `root`; damage is no matter of this check."""
    for name in names(root):
        with suppress(DamageError):
            read(root / name)


def require_room(folder: Path, size: int, copies: int = 1) -> None:
    """Raise RoomError where so many snapshots of `size` bytes do not fit, though older ones of ours made way."""
    ours = 0
    for name in names(folder):
        with suppress(FileNotFoundError):  # the drainer of an earlier trainer takes it away
            ours += sum(status.st_size for status in files.tree(folder / name).values())
    free = durable.free_bytes(folder) + ours
    if free < size * copies:
        what = "a snapshot of {:.0f} MB does" if copies == 1 else f"{copies} snapshots of {{:.0f}} MB do"
        raise RoomError(
            f"{what.format(size / 1e6)} not fit on {folder}: {free / 1e6:.0f} MB are free",
            "free some room, " + ("or name another folder" if copies == 1 else "keep fewer, or name another folder"),
        )


def told(manifest: Manifest) -> dict[str, Any]:
    """Return what is written of a manifest."""
    return {**asdict(manifest), "files": [list(file) for file in manifest.files]}


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
        manifest = Manifest(folder.name, step(folder.name), stored, facts())
        seal(staging, manifest)
        edge("sealed")
        publish(staging, folder.name)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell; the next trainer tidies up
            remove(staging)
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


def seal(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into a folder whose files are durable and verified."""
    files.write_json(folder / MANIFEST_NAME, told(manifest))


def publish(folder: Path, name: str) -> None:
    """Make a sealed folder visible under its name, durably."""
    files.rename(folder, folder.with_name(name))
    files.sync_folder(folder.parent)


def problems(folder: Path, expected: Sequence[StoredFile], *, direct: bool = False, streams: int = 1) -> list[str]:
    """Return which files below a folder are not what a manifest says, having read all of them; empty for a good one.

    The pages are dropped first, so that the storage answers and not the memory, where the file system lets us.
    """
    kinds = {name: stat.S_IFMT(status.st_mode) for name, status in files.tree(folder).items()}
    found = {name for name, kind in kinds.items() if kind != stat.S_IFDIR}
    wrong = [f"{file.name} is missing" for file in expected if file.name not in found]
    wrong += [f"{name} is not in the manifest" for name in sorted(found - {file.name for file in expected})]
    wrong += [f"{name} is no regular file" for name in sorted(found) if kinds[name] != stat.S_IFREG]
    present = [file for file in expected if kinds.get(file.name) == stat.S_IFREG]
    paths = [folder / file.name for file in present]
    hashes = transfer.hashes(paths, direct=direct, streams=streams, cold=True)
    for file, (size, digest) in zip(present, hashes, strict=True):
        if size != file.size:
            wrong.append(f"{file.name} has {size} bytes of {file.size}")
        elif digest != file.sha256:
            wrong.append(f"{file.name} has other bytes: its SHA-256 differs")
    return wrong


def blame(wrong: list[str], source: Path, manifest: Manifest, how: transfer.How, target: object) -> None:
    """Raise OSError for a copy that is `wrong`, DamageError where its source is, too."""
    if not wrong:
        return
    if damaged := problems(source, manifest.files, streams=how.streams):
        raise DamageError(f"{source.parent}: {', '.join(damaged)}", "an older snapshot may be good")
    raise OSError(errno.EIO, f"read back otherwise than written: {', '.join(wrong)}", str(target))


def verify(folder: Path) -> list[str] | None:
    """Return what is wrong with a snapshot, file by file; empty for a complete and verified one.

    None for one that is not there, or was removed meanwhile: a drainer at work removes fast copies.
    """
    try:
        wrong = ["it is a link"] if folder.is_symlink() else problems(folder / FILES, read(folder).files)
    except DamageError as error:
        wrong = [error.message]
    except files.OddFileError as error:
        wrong = [f"{error.filename}: {error.strerror}"]
    except FileNotFoundError as error:
        wrong = [f"{error.filename} is missing"]
    return None if wrong and not os.path.lexists(folder) else wrong


def remove(folder: Path) -> None:
    """Take a snapshot away: invisible in one rename, then file by file; nothing where somebody else was faster."""
    match = _NAME.fullmatch(folder.name)
    if match is None:
        raise ValueError(f"{folder} is no snapshot of ours")
    doomed = folder.with_name(f"removing-{match['name']}")
    try:
        files.rename(folder, doomed)
    except FileNotFoundError:
        return
    edge("removing")
    files.sync_folder(folder.parent)
    _delete(doomed)
    edge("removed")


def set_aside(folder: Path) -> None:
    """Rename a snapshot that is damaged; one that was set aside before under its name makes way."""
    damaged = folder.with_name(f"damaged-{folder.name}")
    remove(damaged)
    files.rename(folder, damaged)


def recover(root: Path, states: Iterable[str]) -> None:
    """Finish or roll back what a process that died has left: a sealed folder becomes visible, any other one goes."""
    for state in states:
        for name in names(root, state):
            folder = root / f"{state}-{name}"
            try:
                read(folder)
            except DamageError:
                remove(folder)
            else:
                publish(folder, name)
    for name in names(root, "removing"):
        _delete(root / f"removing-{name}")


def _delete(folder: Path) -> None:
    while os.path.lexists(folder):
        with suppress(FileNotFoundError):  # another process deletes the same folder
            files.remove_tree(folder)
