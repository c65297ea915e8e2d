"""Runs that read batches of images: prepare such a run, count the images that it reads, and find dropped images."""

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
    """The images that a rank reads from `paths`, which can be staged copies of the `originals`.

    The folder of an original is the class of the image.
    """

    folder: Path  # folder of the data set; file names in a record are relative to this folder
    paths: Sequence[Path]
    originals: Sequence[Path]
    source: RunObjects | None = None  # the object store, if the images are objects


class ImageLoop(StepLoop):
    """A step loop over batches of images.

    A batch has the index of each image in the list of paths, the bytes of each image, and the input of the step.
    """

    whole_batches = False

    def __init__(
        self,
        settings: Settings,
        images: RankImages,
        spent: TimeSpent | None = None,
        checkpoints: RunSnapshots | None = None,
    ) -> None:
        """Prepare TensorFlow, and build the input pipeline and the training step."""
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
        """Return the number of images that a run requests: the images of ``iterations`` batches, or each file once.

        If ``iterations`` is not set and the benchmark uses only full batches, the run requests the full batches of one
        epoch, but at least one batch.
        """
        batch_size: int = settings["batch_size"]
        if settings["iterations"] is not None:
            return batch_size * int(settings["iterations"])
        return batch_size * max(1, files // batch_size) if cls.whole_batches else files

    @classmethod
    def count_snapshots(cls, _settings: Settings, _originals: Sequence[Path]) -> tuple[int, int]:
        """Return the number of snapshots of a run, and the bytes of one snapshot."""
        return 0, 0

    def build_pipeline(self) -> Iterable[Any]:
        """Build the training step, and return the input pipeline before it reads any image."""
        raise NotImplementedError

    def take(self, *payload: Any) -> float | None:
        """Run the step on the input of a batch, and return the loss, or None if no network is trained."""
        raise NotImplementedError

    def measure(self, watched: AbstractContextManager[Any]) -> dict[str, Any]:
        """Run all steps and return the metrics of the run.

        Objects of an object store are read in the order of the pipeline. Raises UnreadableImageError if an image cannot
        be read and the run must not drop images.
        """
        with self.error_with_file_name(), self._in_order():
            return super().measure(watched)

    def start_input(self) -> None:
        """Start the input pipeline, and count the time as ``startup``."""
        with self.spent.during("startup"):
            self._iterator = iter(self.batches)

    def next_batch(self) -> Any:
        """Wait for the next batch, and return the batch, or None after the last batch."""
        return next(self._iterator, None)

    def step(self, batch: Any) -> float | None:
        """Run the step on a batch and count the batch's images; return the loss, or None if no network is trained."""
        index, size, *payload = batch
        loss = self.take(*payload)
        self.delivered.extend(index.numpy().tolist())
        self.bytes_read += int(size.numpy().sum(dtype="int64"))
        return loss

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """Return the raw metrics of the run; names of unreadable files are relative to the data set's folder.

        A pipeline that ended before the requested number of images has requested every file of the list.
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
        """Replace TensorFlow's error about an unreadable image by an UnreadableImageError that names the file."""
        try:
            yield
        except tf.errors.OpError as error:
            complaint = pipeline.first_complaint(self.names, self.settings, self.images.source)
            if complaint is None:
                raise  # all images can be read, so the error has another cause
            raise UnreadableImageError(complaint) from error

    def _in_order(self) -> AbstractContextManager[None]:
        if self.images.source is None:
            return nullcontext()
        order = pipeline.reading_order(self.names, self.settings["seed"])
        return self.images.source.in_order([self.names[index] for index in order])


@contextmanager
def begin_image_run(kind: type[ImageLoop], request: RunRequest) -> Iterator[ReadyRun]:
    """Yield a run of the loop class `kind` on this rank's share of the files.

    Raises DatasetError if this rank has no file.
    """
    settings = request["settings"]
    with files_of(request) as files, open_time_spent(request) as spent:
        originals = this_rank().share([*files.sizes])
        if not originals:
            message = f"the data set has fewer files than the run has ranks, so rank {this_rank().rank} has no file"
            raise DatasetError(message, "use fewer nodes (nodes=…)")
        read_paths = {path: files.read_at(path) for path in originals}
        count_snapshots = partial(kind.count_snapshots, settings, originals)
        with run_snapshots.open_target(
            settings.get("checkpoint", {}), request.get("checkpoint"), count_snapshots
        ) as checkpoints:
            images = RankImages(files.folder, [*read_paths.values()], originals, files.source)
            loop = kind(settings, images, spent, checkpoints)
            proof = first_files(images.paths, loop.wanted, settings["seed"])
            yield files.work(loop.measure, read_paths, proof, checkpoints=checkpoints)


def first_files(paths: Sequence[Path], number: int, seed: int) -> Sequence[Path]:
    """Return the files that a run certainly reads: the first `number` files in the random order of the seed.

    The check of a cold run looks only at the pages of the returned files, because the run may not read other files.
    """
    if number >= len(paths):
        return paths
    order = pipeline.reading_order([str(path) for path in paths], seed)
    return [paths[index] for index in order[:number]]
