"""What is to be made before cells can be run: data sets and baselines' files that are not there yet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from campaign.cells.cell import Cell
from campaign.cells.cell_plan import Entry
from campaign.storage import baseline_files, datasets, objects
from campaign.storage.roots import place
from jobs.benchmarks import baseline
from jobs.benchmarks.engines import datafile
from jobs.data import make, manifest, pool
from jobs.model.settings import Node, Settings
from jobs.system import durable

_SAMPLE_BYTES = 16 << 20  # of random bytes, to say how long a file of them takes


@dataclass
class ToMake:
    """A data set or a file that is not there yet: how much it is, where it is to lie, and which cells wait for it."""

    what: str
    place: str
    files: int
    bytes: int
    processor_s: float  # that one process takes
    shared: bool = True  # is it made once, and not on each node
    no_room: str = ""  # what its storage lacks, as far as is known here
    cells: set[str] = field(default_factory=set)


def to_make(entries: Sequence[Entry]) -> list[ToMake]:
    """List what these cells lack; nothing is written. Whether a bucket has it is asked for once, for 5 s at most."""
    of_data: dict[str, list[ToMake]] = {}
    things: dict[tuple[str, str], ToMake] = {}
    for entry in entries:
        key = datasets.data_key(entry.cell.settings)
        if key not in of_data:
            of_data[key] = [things.setdefault((each.what, each.place), each) for each in _missing(entry.cell)]
        for thing in of_data[key]:
            thing.cells.add(entry.cell.id)
    return list(things.values())


def _missing(cell: Cell) -> Iterator[ToMake]:
    settings = cell.settings
    storage, dataset = settings["storage"], settings.get("dataset", {"path": ""})
    if storage.get("kind") == "s3":
        if "path" not in dataset:
            yield from _dataset(dataset, *objects.lacking(storage, dataset))
        return
    root, shared = Path(storage["root"]).expanduser().resolve(), cell.access.get("shared", True)
    for thing in _files_below(root, settings, dataset):
        yield replace(thing, shared=shared, no_room=_no_room(root, thing.bytes) if shared else "")


def _files_below(root: Path, settings: Settings, dataset: Node) -> Iterator[ToMake]:
    layout = datasets.layout_of(settings["storage"])
    if "path" not in dataset:
        folders = datasets.folders_of(dataset, root, layout)
        if not any(os.access(folder / manifest.MANIFEST_NAME, os.F_OK) for folder in folders):
            missing = make.lacking(folders[-1], datasets.spec_of(dataset), dataset["name"])
            yield from _dataset(dataset, missing, str(folders[-1]))
    if baseline_files.has_file(settings) and baseline.reads(settings):
        size = baseline.file_bytes(settings)
        folder = place(root, f"{datafile.FOLDER}{layout.suffix}")
        if missing_bytes := datafile.lacking(folder, size):
            path = str(datafile.named(folder, size))
            yield ToMake("file of a baseline", path, 1, missing_bytes, _random_s(missing_bytes))


def _dataset(dataset: Node, missing: make.Lacking, where: str) -> Iterator[ToMake]:
    if missing.indices:
        took_s = pool.processor_s(datasets.spec_of(dataset), missing.indices)
        yield ToMake(f"data set {dataset['name']}", where, len(missing.indices), missing.bytes, took_s)


def _no_room(root: Path, size: int) -> str:
    """Say that a storage lacks the room; empty also where it is not here."""
    there = next(folder for folder in (root, *root.parents) if folder.is_dir())
    with suppress(OSError):
        return durable.lack_of_room(there, size)
    return ""


def _random_s(size: int) -> float:
    began = time.perf_counter()
    os.urandom(_SAMPLE_BYTES)
    return (time.perf_counter() - began) * size / _SAMPLE_BYTES
