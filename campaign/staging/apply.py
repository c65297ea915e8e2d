"""Copies the files of a plan to the fast storage, and takes the copies away.

A copy has its name only when it was read back as it was copied; then it has the size and the time of change of its
original, by which it is known again. So what a kill leaves is gone on with, and a map names whole copies only.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import plan as plans
from jobs.burst_buffer import transfer
from jobs.data import staging
from jobs.system import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from campaign.console import Progress

_MARKER, _LOCK, _INCOMING = ".tfio-staged", ".tfio-lock", ".incoming"
_BATCH_FILES, _BATCH_BYTES = 256, 256 << 20
_HOW = transfer.How(streams=4)
_File = tuple[str, int, int]


def apply(folder: Path, rules: Sequence[str], progress: Progress) -> dict[str, Path]:
    """Copy what the rules of the plan in `folder` name, and write a map for each; returns these by rule."""
    plan = plans.load(folder)
    listed = {rule: [_file(*plan["listed"][place]) for place in plan["rules"][rule]["files"]] for rule in rules}
    if empty := [rule for rule, those in listed.items() if not those]:
        why = plan["why_not"] or "the capacity holds none of its files"
        raise UsageError(f"the plan stages nothing by the rule {empty[0]}: {why}", "--rule all copies all the same")
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    wanted = sorted(set().union(*listed.values()))
    with _ours(copies, source):
        missing = [each for each in wanted if staging.identity(copies / each[0]) != each[1:]]
        _require(source, copies, missing)
        done = len(wanted) - len(missing)
        for batch in _batches(missing):
            progress("copying", done, len(wanted), "files")
            _copy(source, copies, batch)
            done += len(batch)
        progress("copying", done, len(wanted), "files")
        for rule, those in listed.items():
            found = {"schema": staging.SCHEMA, "source": str(source), "copies": str(copies), "root": plan["root"]}
            files.write_json(folder / f"{rule}.json", {**found, "files": those}, indent=None)
    return {rule: folder / f"{rule}.json" for rule in rules}


def undo(folder: Path) -> tuple[int, list[Path]]:
    """Remove the maps and the copies of a plan; returns how many, and what was left.

    Left is what is no copy of a file that is still there as it was copied: it may be the last.
    """
    plan = plans.load(folder)
    source, copies = Path(plan["source"]), plans.copies_of(plan)
    for rule in plans.RULES:
        files.remove(folder / f"{rule}.json", missing_ok=True)
    if not copies.is_dir():
        return 0, []
    left, removed = [], 0
    with _ours(copies, source):
        names = [name for name in files.tree(copies) if name not in (_MARKER, _LOCK)]
        for name in sorted(names, reverse=True):  # what is in a folder before the folder
            path = copies / name
            if (found := staging.identity(path)) is None:
                try:
                    files.remove_empty(path)
                except OSError:
                    left += [path] if not path.is_dir() or path.is_symlink() else []
            elif found == staging.identity(source / name):
                files.remove(path)
                removed += 1
            else:
                left.append(path)
    if not left:
        files.remove_tree(copies)
    return removed, sorted(left)


@contextmanager
def _ours(copies: Path, source: Path) -> Iterator[None]:
    """Hold the folder of the copies, which is made and marked; one that somebody else made is refused."""
    files.make_folder(copies, exist_ok=True)
    if fault := files.distrust(copies):
        raise EnvironmentFaultError(fault, "--fast gives another place")
    names = set(files.names(copies)) - {_LOCK}
    if _MARKER not in names and names:
        raise EnvironmentFaultError(f"{copies} has files that are not ours", "move them, or give another --fast")
    if _MARKER in names and files.read(copies / _MARKER) != os.fsencode(source):
        raise EnvironmentFaultError(f"{copies} holds copies of another folder", "move it, or give another --fast")
    with FileLock(copies / _LOCK):
        if _MARKER not in names:
            files.write(copies / _MARKER, str(source))
        if _INCOMING in names:  # of an apply that was cut
            files.remove_tree(copies / _INCOMING)
        yield


def _file(name: str | int, size: str | int, changed_ns: str | int) -> _File:
    return str(name), int(size), int(changed_ns)


def _require(source: Path, copies: Path, missing: Sequence[_File]) -> None:
    """See that the originals are what was planned and that there is room."""
    changed = [name for name, *wanted in missing if staging.identity(source / name) != tuple(wanted)]
    if changed:
        raise EnvironmentFaultError(
            f"{len(changed)} files changed since the plan was made, such as {source / changed[0]}", "plan again"
        )
    needed, free = sum(size for _, size, _ in missing), shutil.disk_usage(copies).free
    if needed > free:
        raise EnvironmentFaultError(
            f"{copies} needs {needed / 1e6:,.0f} MB more, and its storage has {free / 1e6:,.0f} MB free",
            "free some space, or plan with a smaller --capacity; what is copied is kept",
        )


def _batches(missing: Sequence[_File]) -> Iterator[list[_File]]:
    batch: list[_File] = []
    for each in missing:
        if batch and (len(batch) == _BATCH_FILES or sum(size for _, size, _ in batch) + each[1] > _BATCH_BYTES):
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch


def _copy(source: Path, copies: Path, batch: Sequence[_File]) -> None:
    """Copy files, read the copies back from the storage, and give them their names; EnvironmentFaultError: damaged."""
    incoming, names = copies / _INCOMING, [name for name, *_ in batch]
    files.make_folder(incoming)
    try:
        transfer.copy(source, incoming, [(name, size) for name, size, _ in batch], _HOW)
        arrived = [incoming / name for name in names]
        transfer.sync(arrived, [], _HOW.streams)
        before, after = transfer.hashes([source / name for name in names]), transfer.hashes(arrived, cold=True)
        for path, (name, *wanted), one, other in zip(arrived, batch, before, after, strict=True):
            if one != other or staging.identity(source / name) != tuple(wanted):
                raise EnvironmentFaultError(
                    f"{source / name} changed while it was copied, or its copy is damaged",
                    "leave it alone and plan again",
                )
            os.utime(path, ns=(wanted[1], wanted[1]), follow_symlinks=False)
            files.make_folder((copies / name).parent, exist_ok=True, parents=True)
            files.rename(path, copies / name)
        for folder in {(copies / name).parent for name in names}:
            files.sync_folder(folder)
    finally:
        files.remove_tree(incoming)
