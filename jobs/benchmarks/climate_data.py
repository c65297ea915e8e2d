"""CDB's data: the order in which files are read, the expected counts, and the input pipeline.

Source: NERSC/DL-Parallel-IO, mascarpone-tiramisu-tf-singlefile.py and tiramisu_helpers.py (290ed4a). Files are sorted,
permuted, and split 80/10/10; each rank has an equal share, and left-over files are unused; a shuffle buffer of 100;
only full batches. Training continues at the point where the last epoch stopped; a validation pass reads its whole
share.

The pipeline takes file numbers, reads the files by a parallel map, prefetches images and makes batches. As published
(2018), the map calls a Python function, here `Feed.load`. Scaling and class weights follow in the map as operations of
TensorFlow, which need no lock of Python.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from jobs.benchmarks.nersc_trainer import count_expectations, equality_expectations
from jobs.data import pipeline
from jobs.data.readers import Part, Reader
from jobs.errors import DatasetError
from jobs.events.time_log import TimeLog
from jobs.lazy_imports import np, tf
from jobs.model.results import Expectation
from jobs.model.settings import Node, Settings

Phase = Literal["train", "validation"]
TRAIN: Phase = "train"
VALIDATION: Phase = "validation"
SHUFFLE = 100  # files in the buffer from which the next one is drawn
_TRAIN_SHARE, _TEST_SHARE = 0.8, 0.1


@dataclass(frozen=True)
class ClimateRules:
    """The rules for one `rank` of a CDB run on `files` data files; `iterations` are batches per epoch, None for all."""

    files: int
    ranks: int
    rank: int
    epochs: int
    batch_size: int
    iterations: int | None
    seed: int

    def split(self, phase: Phase) -> list[int]:
        """Return the file numbers of a phase; a file number is an index into all data files sorted by name."""
        order = [*_permute(self.files, self.seed)]
        train, test = int(_TRAIN_SHARE * self.files), round(_TEST_SHARE * self.files)
        return order[:train] if phase == TRAIN else order[train + test :]

    def share(self, phase: Phase) -> list[int]:
        """Return the file numbers of this rank in a phase; all ranks have the same number."""
        files = self.split(phase)
        return files[self.rank : len(files) // self.ranks * self.ranks : self.ranks]

    def batches(self, phase: Phase) -> int:
        """Return the number of batches of one pass over this rank's files."""
        return len(self.share(phase)) // self.batch_size

    @property
    def steps(self) -> int:
        """Return the number of training steps per epoch."""
        return self.batches(TRAIN) if self.iterations is None else self.iterations

    @property
    def images(self) -> dict[Phase, int]:
        """Return the number of images that this rank consumes in the whole run, by phase."""
        validation_batches = self.epochs * self.batches(VALIDATION)
        return {TRAIN: self.epochs * self.steps * self.batch_size, VALIDATION: validation_batches * self.batch_size}

    def order(self, phase: Phase, number: int) -> list[int]:
        """Return the file numbers of a pass in reading order; the files of an incomplete last batch are left out."""
        draws = random.Random(f"{self.seed} {self.rank} {phase} {number}")  # noqa: S311 - no secret
        buffer, ordered = [], []
        for file in self.share(phase):
            buffer.append(file)
            if len(buffer) == SHUFFLE:
                ordered.append(buffer.pop(draws.randrange(SHUFFLE)))
        draws.shuffle(buffer)
        return (ordered + buffer)[: self.batches(phase) * self.batch_size]

    def consumed_files(self, phase: Phase) -> list[int]:
        """Return the file numbers of all consumed images, in order over all passes."""
        files = [file for number in range(self.epochs) for file in self.order(phase, number)]
        return files[: self.images[phase]]

    def most_images_read(self, prefetch: int, calls: int) -> int:
        """Return the largest possible number of training images read: consumed, `prefetch`, and parallel `calls`."""
        all_images = self.epochs * self.batches(TRAIN) * self.batch_size
        return min(all_images, self.images[TRAIN] + prefetch + calls)

    def readable_files(self, prefetch: int, calls: int) -> list[int]:
        """Return the sorted file numbers that this rank may read, consumed or only read ahead."""
        train = [file for number in range(self.epochs) for file in self.order(TRAIN, number)]
        validation = self.share(VALIDATION) if self.batches(VALIDATION) else []
        return sorted({*train[: self.most_images_read(prefetch, calls)], *validation})


@lru_cache(maxsize=4)
def _permute(files: int, seed: int) -> tuple[int, ...]:
    """Return the numbers of all files in the order that the seed gives."""
    order = list(range(files))
    random.Random(seed).shuffle(order)  # noqa: S311 - no secret
    return tuple(order)


def rank_expectations(
    rules: ClimateRules, found: Mapping[Phase, int], asked: Mapping[str, int], most_asked: int, size: tuple[int, int]
) -> dict[str, Expectation]:
    """Return the expectations for one rank: images consumed (`found`) and read (`asked`), and bytes (`size`)."""
    train, ahead = rules.images[TRAIN], asked[TRAIN] - found[TRAIN]
    message = f"{ahead} images of train were read ahead and not used, of at most {most_asked - train}"
    is_expected = train <= asked[TRAIN] <= most_asked
    return {
        **count_expectations("images consumed", (found, rules.images), size),
        "ahead_as_predicted": {"expected": True, "found": is_expected, "message": message},
    }


def expectations_over_ranks(rules: ClimateRules, reports: Sequence[Mapping[str, Any]]) -> dict[str, Expectation]:
    """Return the expectations over all ranks; a report has ``steps``, ``delivered`` (train files) and ``weights``."""
    fault = first_sample_fault(rules, [report["delivered"] for report in reports])
    success_text = "no file of train came twice in a pass over them, and none was left out"
    return equality_expectations(reports, [rules.epochs * rules.steps] * rules.ranks, fault, success_text)


def first_sample_fault(rules: ClimateRules, delivered: Sequence[Sequence[int]]) -> str:
    """Return the first fault in the files that the ranks consumed; empty if each pass has each file exactly once.

    In an incomplete pass, files may be missing, but no file may come twice.
    """
    pass_size = rules.batches(TRAIN) * rules.batch_size
    for number in range(rules.epochs):
        counts = Counter(file for files in delivered for file in files[number * pass_size : (number + 1) * pass_size])
        shares = [replace(rules, rank=rank).order(TRAIN, number) for rank in range(rules.ranks)]
        if repeated := [file for file, count in counts.items() if count > 1]:
            return f"file {repeated[0]} of train came {counts[repeated[0]]} times in pass {number}"
        if foreign := counts.keys() - {file for files in shares for file in files}:
            return f"file {min(foreign)} of train came in pass {number}, but is in no rank's share"
        missing = {file for files in shares for file in files} - counts.keys()
        if missing and all(len(files) >= (number + 1) * pass_size for files in delivered):
            return f"file {min(missing)} of train did not come in pass {number}"
    return ""


WEIGHTS = (
    1.009,
    7.67,
    31.6,
)  # class weights: 1 / sqrt of their shares in generated files (jobs/data/synthetic_hdf5.py)
_MOST, _LEAST = 1, 2  # columns of ``stats``
_SETTLE_S = 60.0
_PLAIN = {"autotune": False, "deterministic": True, "map_and_batch_fusion": False, "private_threads": None}


def file_parts(dataset: Node, channels: Sequence[int] | None) -> list[Part]:
    """Return the parts to read per file: fields, labels and statistics, or the one data set of a user's own files."""
    rows = tuple(channels) if channels is not None else None
    if "path" in dataset:
        return [Part(dataset["hdf5"], rows)]
    return [Part("climate/data", rows), Part("climate/labels"), Part("climate/stats", rows)]


@dataclass
class ImageLoader:
    """The image loader that the pipeline's map calls from several threads; it counts images, bytes and seconds."""

    paths: Sequence[Path]  # by file number of the rules
    reader: Reader | None  # None: no file is read
    held: Sequence[Any]  # the arrays of one image in memory
    reads: bool  # whether `load` returns the arrays of the reader (else `held`)
    log: TimeLog | None
    asked: Counter[str] = field(default_factory=Counter)  # number of images, by phase
    bytes: int = 0  # returned by all calls
    seconds: float = 0.0  # duration of all calls
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._lock, self._idle, self._running_calls = threading.Lock(), threading.Condition(), 0

    def load(self, phase: Phase, file: Any, number: Any) -> list[Any]:
        """Return the byte count of an image, then its arrays; `number` is the number of the pass.

        The first error is kept for `require`, because TensorFlow would keep only its text and print Python's whole
        stack.
        """
        start = time.perf_counter()
        with self._idle:
            self._running_calls += 1
        try:
            arrays = self._read(phase, self.paths[int(file)], int(number))
        except Exception as error:  # noqa: BLE001 - raised by `require`
            self.error, arrays = self.error or error, self.held
        finally:
            with self._idle:
                self._running_calls -= 1
                self._idle.notify_all()
        size = sum(array.nbytes for array in arrays) if self.reads else 0
        with self._lock:
            self.asked[phase] += 1
            self.bytes += size
            self.seconds += time.perf_counter() - start
        return [np.int64(size), *(arrays if self.reads else self.held)]

    def require(self) -> None:
        """Raise the error of the first failed call, if one failed."""
        if self.error:
            raise self.error

    def _read(self, phase: Phase, path: Path, number: int) -> Sequence[Any]:
        if self.reader is None:
            return self.held
        at = (phase, number, -1)
        with self.log.event("load", path, at=self.log.place(*at)) if self.log else nullcontext():
            arrays = self.reader.read(path, at)
        kinds, expected_kinds = ([(array.shape, array.dtype) for array in image] for image in (arrays, self.held))
        if self.reads and kinds != expected_kinds:
            raise DatasetError(
                f"{path} has other shapes and types than the first file", "name files with equal shapes and types"
            )
        return arrays

    def settle(self) -> None:
        """Wait at most 60 s until no call is running, so that images that are read ahead are counted, too."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running_calls, _SETTLE_S)


def batch_dataset(
    feed: ImageLoader, rules: ClimateRules, phase: Phase, passes: Sequence[int], settings: Settings
) -> tf.data.Dataset:
    """Return a dataset of batches, pass after pass: file numbers int32 (n,), bytes int64 (n,), then the arrays.

    The arrays are fields float32 (n, channels, height, width), and for generated files labels int32 and weights float32
    (n, height, width).
    """
    orders = tf.constant([rules.order(phase, number) for number in passes])
    load = _loader(feed, phase, preprocess=settings["benchmark"]["preprocess"])

    def read_pass(index: tf.Tensor) -> tf.data.Dataset:
        files = tf.data.Dataset.from_tensor_slices(tf.gather(orders, index))
        call = tf.autograph.experimental.do_not_convert(partial(load, number=index + passes[0]))
        images = files.map(call, num_parallel_calls=settings["threads"])
        prefetched = images.prefetch(settings["prefetch"]) if settings["prefetch"] else images
        return prefetched.batch(settings["batch_size"], drop_remainder=True)

    all_passes = tf.data.Dataset.range(len(passes)).flat_map(tf.autograph.experimental.do_not_convert(read_pass))
    return all_passes.with_options(pipeline.tensorflow_options(_PLAIN, settings["threads"]))


def _loader(feed: ImageLoader, phase: Phase, *, preprocess: bool) -> Any:
    kinds = [tf.int64, *(tf.as_dtype(array.dtype.newbyteorder("=")) for array in feed.held)]
    shapes = [(), *(array.shape for array in feed.held)]

    def load(file: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tensors = tf.numpy_function(partial(feed.load, phase), [file, number], kinds)
        for tensor, shape in zip(tensors, shapes, strict=True):
            tensor.set_shape(shape)
        size, *arrays = tensors
        return (file, size, *(_preprocess(*arrays) if preprocess else arrays))

    return load


def _preprocess(fields: tf.Tensor, labels: tf.Tensor | None = None, stats: tf.Tensor | None = None) -> list[tf.Tensor]:
    """Return fields (scaled to 0 … 1 by their statistics), labels and class weights; without labels only fields."""
    fields = tf.cast(fields, tf.float32)
    if labels is None or stats is None:
        return [fields]
    smallest, largest = stats[:, _LEAST, None, None], stats[:, _MOST, None, None]
    classes = tf.cast(labels, tf.int32)
    return [(fields - smallest) / (largest - smallest), classes, tf.gather(WEIGHTS, classes)]


def build_pipelines(feed: ImageLoader, rules: ClimateRules, settings: Settings) -> tuple[Any, list[Any]]:
    """Return the dataset of all training passes, and one dataset per validation pass."""
    train = batch_dataset(feed, rules, TRAIN, range(rules.epochs), settings)
    passes = range(rules.epochs) if rules.batches(VALIDATION) else ()
    return train, [batch_dataset(feed, rules, VALIDATION, [number], settings) for number in passes]
