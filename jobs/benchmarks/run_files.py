"""The files or objects that a run reads: their paths, their listed sizes, and their copies on a fast storage.

As in the jobs of CDB, the copies of a rank's files are made before the first epoch. The copies are removed at the end
of the run. If a run is killed, the next run uses the remaining copies, and the record of that run has their number.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.data import manifest, staged_copies
from jobs.errors import DatasetError
from jobs.events.time_log import TimeLog
from jobs.model.conduct import Limits
from jobs.model.results import Expectation
from jobs.model.work import RunRequest
from jobs.objects.run_objects import RunObjects, objects_of_dataset
from jobs.ready_run import ReadyRun
from jobs.system import files, page_cache


@dataclass(frozen=True)
class RunFiles:
    """The files below `folder` that a run reads, or the objects of an object store (`source`).

    `sizes` has the listed bytes of each file or object. For objects, `folder` is the empty path.
    """

    folder: Path
    sizes: Mapping[Path, int]
    source: RunObjects | None = None
    staged: staged_copies.StagedFiles | None = None

    def read_at(self, path: Path) -> Path:
        """Return the path from which to read a file: the path of its staged copy, or `path` if it has no copy.

        Raises DatasetError if the copy or its original is missing or has changed.
        """
        return self.staged.path_of(path) if self.staged else path

    def work(
        self,
        measure: Callable[[AbstractContextManager[Any]], dict[str, Any]],
        read: Mapping[Path, Path],
        proof: Sequence[Path],
        **facts: Any,
    ) -> ReadyRun:
        """Return a run that is ready to start.

        `read` maps each file to the path from which the run reads the file. `proof` has the paths that the check of a
        cold run looks at. `facts` are further fields of `ReadyRun`.
        """
        if self.source:
            facts = {"checkpoints": facts.get("checkpoints"), "source": self.source, "reading": self.source.pids}
            return ReadyRun(measure, self.folder, proof=proof, **facts)
        sizes = {path_to_read: self.sizes[path] for path, path_to_read in read.items()}
        copies = {"copies": self.staged.copies} if self.staged else {}
        return ReadyRun(measure, self.folder, [*sizes], proof, sizes, **{**copies, **facts})


@contextmanager
def files_of(request: RunRequest) -> Iterator[RunFiles]:
    """Yield the files or objects that the manifest of the run's data set lists."""
    folder, staged = Path(request["dataset"]), request.get("staged")
    listing = manifest.load_manifest(Path(request["manifest"] or folder))
    with _objects_of(request, listing) as source:
        folder = Path() if source else folder
        sizes = {folder / entry.name: entry.size for entry in listing.files}
        yield RunFiles(folder, sizes, source, staged_copies.load_map(Path(staged)) if staged else None)


def _objects_of(request: RunRequest, listing: manifest.Manifest) -> AbstractContextManager[RunObjects | None]:
    settings = request["settings"]
    storage = settings.get("storage", {})
    if storage.get("kind") != "s3":
        return nullcontext()
    threads = settings["threads"] if "threads" in settings else settings["benchmark"]["readers"]
    return objects_of_dataset(storage, request["dataset"], listing, request.get("disk"), threads)


@dataclass(frozen=True)
class FileCopies:
    """The copies of a rank's files in `folder`; a file without a copy is read from its original path."""

    source: Path  # the folder of the original files
    folder: Path | None = None  # the folder of the copies; None if there are no copies
    names: frozenset[str] = frozenset()  # file names of the copies, relative to `folder`
    figures: Mapping[str, Any] = field(default_factory=dict)  # metrics for the record: number of copies, bytes, seconds
    expected: Mapping[str, Expectation] = field(default_factory=dict)  # whether the copied files were cold
    newest_ns: int | None = None  # the latest change (ctime) of a copy; None without copies

    def path_of(self, path: Path) -> Path:
        """Return the path from which to read a file: the path of its copy, or `path` if it has no copy."""
        name = str(path.relative_to(self.source))
        return self.folder / name if self.folder and name in self.names else path


@contextmanager
def rank_copies(request: RunRequest, rank: int, sizes: Mapping[Path, int], log: TimeLog | None) -> Iterator[FileCopies]:
    """Copy a rank's files to the folder ``benchmark.stage``, yield the copies, and remove the copies at the end.

    If ``benchmark.stage`` is null, no copies are made. Raises DatasetError if one of the following is true:

    - the folder ``benchmark.stage`` is missing;
    - the rank's folder in ``benchmark.stage`` belongs to another user or is in use;
    - a file differs from its entry in the manifest;
    - the copies do not fit, or a copy reads back with other bytes.
    """
    settings, source = request["settings"], Path(request["dataset"])
    stage = settings["benchmark"].get("stage")
    if stage is None:
        yield FileCopies(source)
        return
    root = Path(stage.replace("{rank}", str(rank)))
    if not root.is_dir():
        raise DatasetError(
            f"the folder benchmark.stage={root} is missing", "mount the fast storage, or name another folder"
        )
    parent = root.resolve() / f"tfio-staged-{os.geteuid()}"
    files.make_folder(parent, exist_ok=True)
    if fault := files.reason_to_distrust(parent):
        raise DatasetError(fault, "name another folder: benchmark.stage=…")
    real_source, listed_ns = source.resolve(), request.get("listed_ns")
    folder = parent / f"{hashlib.sha256(os.fsencode(real_source)).hexdigest()[:10]}-{rank}"
    files_to_copy = [
        (str(path.relative_to(source)), *_check_listed(path, size, listed_ns)) for path, size in sizes.items()
    ]
    names = frozenset(name for name, *_ in files_to_copy)
    with staged_copies.lock_copies(folder, real_source, wait_s=0):
        try:
            staged_copies.remove_copies(real_source, folder, keep=names)  # copies of an earlier run with other files
            metrics, expected = _copy_missing(real_source, folder, files_to_copy, settings["cache"], log)
            newest_ns = max((folder / name).lstat().st_ctime_ns for name in names)
            yield FileCopies(source, folder, names, metrics, expected, newest_ns)
        finally:
            with suppress(OSError):  # if the storage does not answer now, the next run removes the copies
                staged_copies.remove_copies(real_source, folder)


def _check_listed(path: Path, size: int, listed_ns: int | None) -> tuple[int, int]:
    """Return the size (bytes) and the modification time (ns) of a file.

    Raises DatasetError if the file is a link, or has changed since the manifest was made.
    """
    identity = staged_copies.file_identity(path)
    if identity is None or identity[0] != size or (listed_ns and path.lstat().st_ctime_ns > listed_ns):
        raise DatasetError(
            f"{path} is a link, or differs from its entry in the manifest",
            "do not change the file any more, and list the data set again",
        )
    return identity


def _copy_missing(
    source: Path, folder: Path, files_to_copy: list[staged_copies.File], cache: str, log: TimeLog | None
) -> tuple[dict[str, Any], dict[str, Expectation]]:
    """Copy the files that have no copy yet, and return metrics of the copying.

    For a cold run, the second value says whether the original files were cold before they were copied.
    """
    missing = staged_copies.missing_copies(source, folder, files_to_copy)
    originals = [source / name for batch in missing for name, *_ in batch]
    fraction = (
        page_cache.drop_from_cache(originals, originals, source).fraction if cache == "cold" and originals else 0.0
    )
    start = time.perf_counter()
    for batch in missing:
        with log.event("stage", size_bytes=sum(size for _, size, _ in batch)) if log else nullcontext():
            staged_copies.copy_batch(source, folder, batch)
    elapsed_s, size = time.perf_counter() - start, sum(size for batch in missing for _, size, _ in batch)
    metrics = {
        "stage_s": elapsed_s,
        "stage_files": len(originals),
        "stage_bytes": size,
        "stage_found_files": len(files_to_copy) - len(originals),
        "stage_mb_per_s": size / 1e6 / elapsed_s,
    }
    if cache != "cold":
        return metrics, {}
    percent = "an unknown share" if fraction is None else f"{fraction:.1%}"
    copy_text = f"{len(originals)} files, {size / 1e6:,.1f} MB, were copied in {elapsed_s:.1f} s"
    message = f"{copy_text}; before the copying, {percent} of the files' pages was in memory"
    is_cold = None if fraction is None else fraction <= Limits().resident_max  # the limit of the check `cold`
    return metrics, {"staged_cold": {"expected": True, "found": is_cold, "message": message}}
