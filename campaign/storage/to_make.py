"""What is to be made before cells can be run: data sets and baselines' files that are not there yet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from campaign.cells.plan import Entry
from campaign.storage import baseline_files, datasets, objects
from campaign.storage.roots import place
from jobs.benchmarks import baseline
from jobs.benchmarks.engines import datafile
from jobs.data import make, manifest, pool
from jobs.settings import Settings
from jobs.system import durable

_SAMPLE_BYTES = 16 << 20  # of random bytes, to say how long a file of them takes


class Lacking(NamedTuple):
    """A data set or a file: where it is to lie, how much it is, and how long one process takes to make it."""

    what: str
    place: str
    files: int
    bytes: int
    lack: str  # of room; empty where it has room, as far as is known
    processor_s: float


@dataclass
class ToMake:
    """Something that is to be made, and the cells that wait for it."""

    lacking: Lacking
    shared: bool  # is it made once, and not on each node
    cells: set[str] = field(default_factory=set)


def to_make(entries: Sequence[Entry]) -> list[ToMake]:
    """List what these cells lack; nothing is written. Whether a bucket has it is asked for once, for 5 s at most."""
    known: dict[str, list[Lacking]] = {}
    found: dict[tuple[str, str], ToMake] = {}
    for entry in entries:
        settings, shared = entry.cell.settings, entry.cell.access.get("shared", True)
        key = datasets.data_key(settings)
        if key not in known:
            known[key] = list(_lacking(settings))
        for each in known[key]:
            found.setdefault((each.what, each.place), ToMake(each, shared)).cells.add(entry.cell.id)
    return list(found.values())


def _lacking(settings: Settings) -> Iterator[Lacking]:
    storage, wanted = settings["storage"], settings.get("dataset", {"path": ""})
    if storage.get("kind") == "s3":
        if "path" not in wanted:
            left, address = objects.lacking(storage, wanted)
            yield from _dataset(settings, left, address, "")
        return
    root = Path(storage["root"]).expanduser().resolve()
    layout = datasets.layout_of(storage)
    if "path" not in wanted:
        folders = datasets.folders_of(wanted, root, layout)
        if not any(os.access(folder / manifest.MANIFEST_NAME, os.F_OK) for folder in folders):
            left = make.lacking(folders[-1], datasets.spec_of(wanted), wanted["name"])
            yield from _dataset(settings, left, str(folders[-1]), _lack(root, left.bytes))
    if baseline_files.has_file(settings) and baseline.reads(settings):
        size = baseline.file_bytes(settings)
        folder = place(root, f"{datafile.FOLDER}{layout.suffix}")
        if missing := datafile.lacking(folder, size):
            yield Lacking(
                "file of a baseline",
                str(datafile.named(folder, size)),
                1,
                missing,
                _lack(root, missing),
                _random_s(missing),
            )


def _dataset(settings: Settings, left: make.Lacking, where: str, lack: str) -> Iterator[Lacking]:
    if left.indices:
        wanted = settings["dataset"]
        took_s = pool.processor_s(datasets.spec_of(wanted), left.indices)
        yield Lacking(f"data set {wanted['name']}", where, len(left.indices), left.bytes, lack, took_s)


def _lack(root: Path, size: int) -> str:
    """Say that a storage lacks the room; empty also where it is not here."""
    there = next(folder for folder in (root, *root.parents) if folder.is_dir())
    with suppress(OSError):
        return durable.lack_of_room(there, size)
    return ""


def _random_s(size: int) -> float:
    began = time.perf_counter()
    os.urandom(_SAMPLE_BYTES)
    return (time.perf_counter() - began) * size / _SAMPLE_BYTES
