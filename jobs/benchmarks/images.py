"""What benchmarks that read images have in common: how a run of one is made ready, and its rates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from jobs.benchmarks.benchmark import Figure
from jobs.checkpoints import run_snapshots as checkpoint
from jobs.data import manifest, pipeline, staged_copies
from jobs.errors import DatasetError
from jobs.model.request import Request
from jobs.model.settings import Settings
from jobs.objects.source import Source, of_dataset
from jobs.ranks import here
from jobs.ready_run import Work

Prepare = Callable[..., Callable[[AbstractContextManager[Any]], dict[str, Any]]]
ImagesAsked = Callable[[Settings, int], int]
ToSave = Callable[[Settings, Sequence[Path]], tuple[int, int]]

RATE = Figure("images_per_s", "images/s")


def begin_with(
    prepare: Prepare, images_asked: ImagesAsked, to_save: ToSave | None = None, *, labelled: bool = False
) -> Callable[[Request], AbstractContextManager[Work]]:
    """Return what makes a run ready.

    `prepare` starts TensorFlow, builds the pipeline and returns what runs the clock; `images_asked` counts the images
    that a run asks for, of so many files; `to_save` says how many snapshots it saves and the bytes of each. It is given
    the ``source`` of objects, or None; one that is `labelled` ``originals``, too: where files are read from
    copies, their folders are the classes.
    """
    return partial(_begun, prepare, images_asked, to_save, labelled=labelled)


@contextmanager
def _begun(
    prepare: Prepare, images_asked: ImagesAsked, to_save: ToSave | None, request: Request, *, labelled: bool
) -> Iterator[Work]:
    settings, folder = request["settings"], Path(request["dataset"])
    listed = manifest.load(Path(request["manifest"] or folder))
    with objects_of(request, listed) as source:
        folder = Path() if source else folder
        sizes = dict(here().share([(folder / entry.name, entry.size) for entry in listed.files]))
        if not sizes:
            raise DatasetError(
                f"there are fewer files than ranks: none is left for rank {here().rank}", "fewer nodes=…"
            )
        copies, originals = None, list(sizes)
        if staged := request.get("staged"):
            found = staged_copies.load(Path(staged))
            copies, sizes = found.copies, {found.path_of(path): size for path, size in sizes.items()}
        paths = list(sizes)
        asked = request.get("checkpoint") if to_save else None
        planned = partial(to_save, settings, originals) if to_save else (lambda: (0, 0))
        with checkpoint.opened(settings.get("checkpoint", {}), asked, planned) as checkpoints:
            more = {"originals": originals} if labelled else {}
            measure = prepare(settings, paths, *([checkpoints] if checkpoints else []), source=source, **more)

            def measured(watched: AbstractContextManager[Any]) -> dict[str, Any]:
                with _in_order(source, paths, settings["seed"]):
                    return _with_rates(measure(watched), folder)

            proof = requested(paths, images_asked(settings, len(paths)), settings["seed"])
            if source:
                yield Work(measured, folder, proof=proof, checkpoints=checkpoints, source=source, reading=source.pids)
            else:
                yield Work(measured, folder, paths, proof, sizes, checkpoints=checkpoints, copies=copies)


def objects_of(request: Request, listed: manifest.Manifest) -> AbstractContextManager[Source | None]:
    """Open the objects of a run's data set; None where it reads files."""
    settings = request["settings"]
    storage = settings.get("storage", {})
    if storage.get("kind") != "s3":
        return nullcontext()
    threads = settings["threads"] if "threads" in settings else settings["benchmark"]["readers"]
    return of_dataset(storage, request["dataset"], listed, request.get("disk"), threads)


def _in_order(source: Source | None, paths: Sequence[Path], seed: int) -> AbstractContextManager[None]:
    """Let an object store's engine know the order, outside the clock."""
    if source is None:
        return nullcontext()
    names = [str(path) for path in paths]
    return source.in_order([names[index] for index in pipeline.order(names, seed)])


def requested(paths: Sequence[Path], number: int, seed: int) -> Sequence[Path]:
    """List the files that a run is sure to ask for: the first ones in the seeded order.

    Their residency is what proves a cold run: those that only look-ahead reads would thin it out.
    """
    if number >= len(paths):
        return paths
    order = pipeline.order([str(path) for path in paths], seed)
    return [paths[index] for index in order[:number]]


def _with_rates(figures: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Add the rates, and name unreadable files as the manifest does."""
    for bad in figures["unreadable"]:
        bad["file"] = os.path.relpath(bad["file"], folder)
    return {
        **figures,
        "images_per_s": figures["images"] / figures["wall_s"],
        "read_mb_per_s": figures["bytes_read"] / 1e6 / figures["wall_s"],
    }
