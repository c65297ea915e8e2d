"""Runs over batches of images: their preparation, the images that they read, and the images that were dropped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jobs.benchmarks import accelerator
from jobs.benchmarks.benchmark import Figure
from jobs.benchmarks.run_files import files_of
from jobs.benchmarks.step_loop import StepLoop, TimeSpent, open_time_spent
from jobs.checkpoints import run_snapshots
from jobs.checkpoints.run_snapshots import RunSnapshots
from jobs.data import pipeline
from jobs.errors import DatasetError, UnreadableImageError
from jobs.lazy_imports import tf
from jobs.model.settings import Settings
from jobs.model.work import RunRequest
from jobs.objects.run_objects import RunObjects
from jobs.ranks import this_rank
from jobs.ready_run import ReadyRun

RATE = Figure("images_per_s", "images/s")


@dataclass(frozen=True)
class RankImages:
    """The images that a rank reads; if they are staged copies, the folders of the `originals` give the classes."""

    folder: Path  # folder of the data set; a record names files relative to it
    paths: Sequence[Path]
    originals: Sequence[Path]
    source: RunObjects | None = None  # the object store, for objects


class ImageLoop(StepLoop):
    """A step loop over batches of images; a batch has image indices, bytes per image, and the input of the step."""

    whole_batches = False

    def __init__(
        self,
        settings: Settings,
        images: RankImages,
        spent: TimeSpent | None = None,
        checkpoints: RunSnapshots | None = None,
    ) -> None:
        """Start TensorFlow, and build the pipeline and the step."""
        self.wanted = self.count_images_read(settings, len(images.paths))
        super().__init__(settings, -(-self.wanted // settings["batch_size"]), spent)
        self.chosen = accelerator.start_tensorflow(settings)
        self.images, self.names, self.checkpoints = images, [str(path) for path in images.paths], checkpoints
        self.delivered: list[int] = []
        self.bytes_read = 0
        with self.error_with_file_name():
            self.batches = self.build_pipeline()

    @classmethod
    def count_images_read(cls, settings: Settings, files: int) -> int:
        """Return the number of images that a run requests: ``iterations`` batches, or each file once.

        A benchmark with only full batches requests the full batches of one epoch, at least one batch.
        """
        batch_size: int = settings["batch_size"]
        if settings["iterations"] is not None:
            return batch_size * int(settings["iterations"])
        return batch_size * max(1, files // batch_size) if cls.whole_batches else files

    @classmethod
    def to_save(cls, _settings: Settings, _originals: Sequence[Path]) -> tuple[int, int]:
        """Return the number of snapshots of a run, and the bytes of one."""
        return 0, 0

    def build_pipeline(self) -> Iterable[Any]:
        """Return the pipeline, which has not read any image yet, and build the step."""
        raise NotImplementedError

    def take(self, *payload: Any) -> float | None:
        """Run the step on the payload of a batch; return the loss, if there is one."""
        raise NotImplementedError

    def measure(self, watched: AbstractContextManager[Any]) -> dict[str, Any]:
        """Return the metrics of the run, with the reads of an object store in order. Raises UnreadableImageError."""
        with self.error_with_file_name(), self._in_order():
            return super().measure(watched)

    def start_input(self) -> None:
        """Start the pipeline."""
        with self.spent.during("startup"):
            self._iterator = iter(self.batches)

    def next_batch(self) -> Any:
        """Wait for the next batch and return it; None at the end."""
        return next(self._iterator, None)

    def step(self, batch: Any) -> float | None:
        """Run the step on a batch and count its images; return the loss, if there is one."""
        index, size, *payload = batch
        loss = self.take(*payload)
        self.delivered.extend(index.numpy().tolist())
        self.bytes_read += int(size.numpy().sum(dtype="int64"))
        return loss

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """Return the raw metrics; unreadable files are named relative to the data set's folder.

        A run that reached the end of the list has requested every file, for any `iterations`.
        """
        exhausted, whole_batches = len(self.delivered) < self.wanted, self.whole_batches
        source, settings = self.images.source, self.settings
        errors, unreadable = pipeline.dropped_files(
            self.names, self.delivered, settings, source, exhausted=exhausted, whole_batches=whole_batches
        )
        return {
            **super().metrics(wall_s),
            "images": len(self.delivered),
            "images_asked": self.wanted,
            "image_errors": errors,
            "unreadable": [
                {**image, "file": os.path.relpath(image["file"], self.images.folder)} for image in unreadable
            ],
            "bytes_read": self.bytes_read,
            "images_per_s": len(self.delivered) / wall_s,
            "read_mb_per_s": self.bytes_read / 1e6 / wall_s,
        }

    @contextmanager
    def error_with_file_name(self) -> Iterator[None]:
        """Raise an UnreadableImageError that names the bad file; TensorFlow's own error does not name it."""
        try:
            yield
        except tf.errors.OpError as error:
            complaint = pipeline.first_complaint(self.names, self.settings, self.images.source)
            if complaint is None:
                raise  # the input is not the cause
            raise UnreadableImageError(complaint) from error

    def _in_order(self) -> AbstractContextManager[None]:
        if self.images.source is None:
            return nullcontext()
        order = pipeline.reading_order(self.names, self.settings["seed"])
        return self.images.source.in_order([self.names[index] for index in order])


@contextmanager
def begin_image_run(kind: type[ImageLoop], request: RunRequest) -> Iterator[ReadyRun]:
    """Yield a run of this kind of loop on this rank's share of the files."""
    settings = request["settings"]
    with files_of(request) as files, open_time_spent(request) as spent:
        originals = this_rank().share([*files.sizes])
        if not originals:
            message = f"there are fewer files than ranks: there is none for rank {this_rank().rank}"
            raise DatasetError(message, "fewer nodes=…")
        read_paths = {path: files.read_at(path) for path in originals}
        count_snapshots = partial(kind.to_save, settings, originals)
        with run_snapshots.open_target(
            settings.get("checkpoint", {}), request.get("checkpoint"), count_snapshots
        ) as checkpoints:
            images = RankImages(files.folder, [*read_paths.values()], originals, files.source)
            loop = kind(settings, images, spent, checkpoints)
            proof = first_files(images.paths, loop.wanted, settings["seed"])
            yield files.work(loop.measure, read_paths, proof, checkpoints=checkpoints)


def first_files(paths: Sequence[Path], number: int, seed: int) -> Sequence[Path]:
    """Return the files that a run certainly reads: the first files of the seeded order.

    Their share in memory proves a cold run; files that may only be read ahead would distort it.
    """
    if number >= len(paths):
        return paths
    order = pipeline.reading_order([str(path) for path in paths], seed)
    return [paths[index] for index in order[:number]]
