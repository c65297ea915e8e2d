"""Store files in a folder of a file system. Other users may own files there, so `jobs.system.files` opens all files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

from jobs.store import transfer
from jobs.store.store import PutResult, StoredFile, StoreEntry
from jobs.store.transfer import TransferOptions
from jobs.system import files, page_cache


@dataclass(frozen=True)
class Folder:
    """A store of files below an existing folder, with the interface `jobs.store.store.Store`."""

    root: Path
    incomplete_s: ClassVar[float] = 0.0
    more_room: ClassVar[str] = "free some space, or name another storage"

    def __str__(self) -> str:
        """Return the path of the folder."""
        return str(self.root)

    def reason_to_distrust(self) -> str:
        """Return why other users may have changed the files, or "" if only this user may write to the folder."""
        return files.reason_to_distrust(self.root)

    def names(self) -> list[str]:
        """Return the sorted names of the files and folders at the top of the folder."""
        return files.names_in_folder(self.root)

    def folders(self, accepts: Callable[[str], bool], file_names: Sequence[str]) -> dict[str, dict[str, StoreEntry]]:
        """Return the files with the names `file_names` in each top folder that `accepts` allows."""
        statuses = files.file_statuses(self.root, filter(accepts, self.names()), file_names)
        return {top: {name: _entry(status) for name, status in named.items()} for top, named in statuses.items()}

    def entries(self) -> dict[str, StoreEntry]:
        """Return all regular files, by relative name; links are not followed."""
        return {
            name: _entry(status)
            for name, status in files.folder_tree(self.root).items()
            if stat.S_ISREG(status.st_mode)
        }

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a regular file."""
        return files.read_file(self.root / name, most_bytes)

    def put(self, name: str, data: bytes) -> None:
        """Write a file under a temporary name, and rename the file. Content and name are then durable."""
        with files.write_whole(self.root / name) as file:
            file.write(data)

    def write(self, name: str, fill: Callable[[IO[bytes]], None]) -> PutResult:
        """Write a file under a temporary name, and rename the file. The file is durable only after `sync`."""
        with files.write_whole(self.root / name, durable=False) as file:
            fill(file)
            return PutResult(file.seek(0, os.SEEK_END))

    def sync(self) -> None:
        """Write all dirty pages of the folder's file system to the device."""
        page_cache.sync_file_system(self.root)

    def delete(self, *names: str) -> None:
        """Remove files durably; missing files are ignored, and links are not followed."""
        for name in names:
            try:
                files.remove(self.root / name)
                files.sync_folder((self.root / name).parent)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                    raise

    def clear(self, below: str) -> None:
        """Remove the folder or the link with the name `below`; another process may remove files at the same time."""
        while os.path.lexists(self.root / below):
            with suppress(FileNotFoundError):
                files.remove_tree(self.root / below)

    def free_bytes(self) -> int:
        """Return the number of bytes that this user may still write; quotas are not considered."""
        return files.free_bytes(self.root)

    def copy_in(self, below: str, source: Path, listed: Sequence[StoredFile], how: TransferOptions) -> None:
        """Copy files to the new folder `below`; make the files and the names of all folders above them durable."""
        target = self.root / below
        parents = [self.root / parent for parent in reversed(Path(below).parents[:-1])]
        for folder in (*parents, target):  # not with `parents=True`, which would also make a missing storage root
            files.make_folder(folder, exist_ok=True)
        transfer.copy_files(source, target, [(file.name, file.size) for file in listed], how)
        transfer.sync_tree(target, [*reversed(parents), self.root], how.streams)

    def verify_files(self, below: str, listed: Sequence[StoredFile], how: TransferOptions) -> list[str]:
        """Read the files below `below`, and return a text for each file that differs from `listed`.

        The pages of the files are dropped from the page cache first, if the file system supports this. So the files are
        read from the storage and not from memory.
        """
        folder = self.root / below
        kinds = {name: stat.S_IFMT(status.st_mode) for name, status in files.folder_tree(folder).items()}
        names = {name for name, kind in kinds.items() if kind != stat.S_IFDIR}
        problems = [f"{file.name} is missing" for file in listed if file.name not in names]
        problems += [f"{name} is not in the manifest" for name in sorted(names - {file.name for file in listed})]
        problems += [f"{name} is no regular file" for name in sorted(names) if kinds[name] != stat.S_IFREG]
        present = [file for file in listed if kinds.get(file.name) == stat.S_IFREG]
        hashes = transfer.hash_files([folder / file.name for file in present], streams=how.streams, cold=True)
        for file, (size, digest) in zip(present, hashes, strict=True):
            if size != file.size:
                problems.append(f"{file.name} has {size} bytes of {file.size}")
            elif digest != file.sha256:
                problems.append(f"{file.name} has other bytes: its SHA-256 differs")
        return problems

    def has_all_files(self, listed: Sequence[StoredFile], entries: dict[str, StoreEntry], below: str) -> bool:  # noqa: ARG002
        """Return True: a folder loses no file by itself, and `verify_files` finds damaged files."""
        return True


def _entry(status: os.stat_result) -> StoreEntry:
    return StoreEntry(status.st_size, (status.st_mtime_ns, status.st_ino, status.st_ctime_ns), status.st_mtime)
