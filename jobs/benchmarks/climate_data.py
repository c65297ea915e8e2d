"""The data of the benchmark CDB: the order in which files are read, the expected counts, and the input pipeline.

The rules are those of NERSC/DL-Parallel-IO, mascarpone-tiramisu-tf-singlefile.py and tiramisu_helpers.py (290ed4a).
The files are sorted, permuted, and split 80/10/10 into train, test and validation files. Each rank reads an equal share
of the files, and left-over files are unused. The order of the files of a rank is drawn from a shuffle buffer of 100
files. An incomplete batch is left out. If ``iterations`` ends an epoch early, the next epoch continues with the next
files of the order. A validation pass always reads all validation files of the rank.

The input pipeline takes file numbers, reads the files in a parallel map, prefetches images and makes batches. As in the
published program (2018), the map calls a Python function (here `ImageLoader.load`). The map then scales the fields and
looks up class weights by TensorFlow operations, which run without Python's global lock.
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
SHUFFLE = 100  # number of files in the shuffle buffer, from which the next file is drawn
_TRAIN_SHARE, _TEST_SHARE = 0.8, 0.1


@dataclass(frozen=True)
class ClimateRules:
    """The rules that tell one `rank` of a CDB run which of the `files` data files to read, and in which order.

    `iterations` is the number of training batches per epoch; None means all batches.
    """

    files: int
    ranks: int
    rank: int
    epochs: int
    batch_size: int
    iterations: int | None
    seed: int

    def split(self, phase: Phase) -> list[int]:
        """Return the file numbers of a phase, for all ranks together.

        A file number is an index into the list of all data files, sorted by name.
        """
        order = [*_permute(self.files, self.seed)]
        train, test = int(_TRAIN_SHARE * self.files), round(_TEST_SHARE * self.files)
        return order[:train] if phase == TRAIN else order[train + test :]

    def share(self, phase: Phase) -> list[int]:
        """Return the file numbers of this rank in a phase; each rank has equally many files."""
        files = self.split(phase)
        return files[self.rank : len(files) // self.ranks * self.ranks : self.ranks]

    def batches(self, phase: Phase) -> int:
        """Return the number of full batches in one pass over this rank's files of a phase."""
        return len(self.share(phase)) // self.batch_size

    @property
    def steps(self) -> int:
        """Return the number of training steps per epoch, for this rank."""
        return self.batches(TRAIN) if self.iterations is None else self.iterations

    @property
    def images(self) -> dict[Phase, int]:
        """Return, for each phase, the number of images that this rank uses in the whole run."""
        validation_batches = self.epochs * self.batches(VALIDATION)
        return {TRAIN: self.epochs * self.steps * self.batch_size, VALIDATION: validation_batches * self.batch_size}

    def order(self, phase: Phase, number: int) -> list[int]:
        """Return the file numbers of pass `number` over a phase, in reading order.

        The files of an incomplete last batch are left out.
        """
        draws = random.Random(f"{self.seed} {self.rank} {phase} {number}")  # noqa: S311 - no secret
        buffer, ordered = [], []
        for file in self.share(phase):
            buffer.append(file)
            if len(buffer) == SHUFFLE:
                ordered.append(buffer.pop(draws.randrange(SHUFFLE)))
        draws.shuffle(buffer)
        return (ordered + buffer)[: self.batches(phase) * self.batch_size]

    def consumed_files(self, phase: Phase) -> list[int]:
        """Return the file numbers of all images that this rank uses in a phase, in order over all passes."""
        files = [file for number in range(self.epochs) for file in self.order(phase, number)]
        return files[: self.images[phase]]

    def most_images_read(self, prefetch: int, calls: int) -> int:
        """Return the largest number of training images that this rank can read.

        The pipeline reads the used images, and ahead of them up to `prefetch` images and one image per parallel call.
        """
        all_images = self.epochs * self.batches(TRAIN) * self.batch_size
        return min(all_images, self.images[TRAIN] + prefetch + calls)

    def readable_files(self, prefetch: int, calls: int) -> list[int]:
        """Return the sorted numbers of all files that this rank may read, including files that are only read ahead."""
        train = [file for number in range(self.epochs) for file in self.order(TRAIN, number)]
        validation = self.share(VALIDATION) if self.batches(VALIDATION) else []
        return sorted({*train[: self.most_images_read(prefetch, calls)], *validation})


@lru_cache(maxsize=4)
def _permute(files: int, seed: int) -> tuple[int, ...]:
    """Return the numbers of all files in a random order that the seed determines."""
    order = list(range(files))
    random.Random(seed).shuffle(order)  # noqa: S311 - no secret
    return tuple(order)


def rank_expectations(
    rules: ClimateRules, found: Mapping[Phase, int], asked: Mapping[str, int], most_asked: int, size: tuple[int, int]
) -> dict[str, Expectation]:
    """Return what is expected of one rank, with what was measured.

    `found` has the numbers of used images and `asked` the numbers of read images, by phase. `most_asked` is the largest
    allowed number of read training images. `size` has the bytes that were used, and the expected bytes.
    """
    train, ahead = rules.images[TRAIN], asked[TRAIN] - found[TRAIN]
    message = f"{ahead} images of train were read ahead and not used (at most {most_asked - train} are expected)"
    is_expected = train <= asked[TRAIN] <= most_asked
    return {
        **count_expectations("images consumed", (found, rules.images), size),
        "ahead_as_predicted": {"expected": True, "found": is_expected, "message": message},
    }


def expectations_over_ranks(rules: ClimateRules, reports: Sequence[Mapping[str, Any]]) -> dict[str, Expectation]:
    """Return what is expected of all ranks together, with what the ranks report.

    The report of a rank has the number of ``steps``, ``delivered`` (the used training files) and the ``weights``.
    """
    fault = first_sample_fault(rules, [report["delivered"] for report in reports])
    success_text = "in each pass, every training file was used once and no training file was left out"
    return equality_expectations(reports, [rules.epochs * rules.steps] * rules.ranks, fault, success_text)


def first_sample_fault(rules: ClimateRules, delivered: Sequence[Sequence[int]]) -> str:
    """Return a text on the first file that the ranks used too often or not at all; empty if there is no such file.

    The ranks must use each training file exactly once per pass. In an incomplete pass, files may be missing.
    """
    pass_size = rules.batches(TRAIN) * rules.batch_size
    for number in range(rules.epochs):
        counts = Counter(file for files in delivered for file in files[number * pass_size : (number + 1) * pass_size])
        shares = [replace(rules, rank=rank).order(TRAIN, number) for rank in range(rules.ranks)]
        if repeated := [file for file, count in counts.items() if count > 1]:
            return f"training file {repeated[0]} was used {counts[repeated[0]]} times in pass {number}"
        if foreign := counts.keys() - {file for files in shares for file in files}:
            return f"training file {min(foreign)} was used in pass {number}, but is in no rank's share"
        missing = {file for files in shares for file in files} - counts.keys()
        if missing and all(len(files) >= (number + 1) * pass_size for files in delivered):
            return f"training file {min(missing)} was not used in pass {number}"
    return ""


# Class weights: 1 / sqrt(share of the class in generated files), see jobs/data/synthetic_hdf5.py.
WEIGHTS = (
    1.009,
    7.67,
    31.6,
)
_MOST, _LEAST = 1, 2  # columns of the data set ``stats`` that have the maximum and the minimum of a field
_SETTLE_S = 60.0
_PLAIN = {"autotune": False, "deterministic": True, "map_and_batch_fusion": False, "private_threads": None}


def file_parts(dataset: Node, channels: Sequence[int] | None) -> list[Part]:
    """Return the parts to read of each file.

    Generated files have fields, labels and statistics. Of a user's own files, one HDF5 data set is read.
    """
    rows = tuple(channels) if channels is not None else None
    if "path" in dataset:
        return [Part(dataset["hdf5"], rows)]
    return [Part("climate/data", rows), Part("climate/labels"), Part("climate/stats", rows)]


@dataclass
class ImageLoader:
    """A loader of images that the pipeline's map calls from several threads, and that counts images, bytes, seconds."""

    paths: Sequence[Path]  # paths of the data files, by the file number of the rules
    reader: Reader | None  # None: no file is read
    example_arrays: Sequence[Any]  # the arrays of one image in memory, which replace an image that is not read
    reads: bool  # whether `load` returns the arrays that the reader has read; false: `load` returns `example_arrays`
    log: TimeLog | None
    asked: Counter[str] = field(default_factory=Counter)  # number of loaded images, by phase
    bytes: int = 0  # sum of the bytes that all calls of `load` returned
    seconds: float = 0.0  # sum of the durations of all calls of `load`
    error: Exception | None = None  # error of the first call of `load` that failed

    def __post_init__(self) -> None:
        self._lock, self._idle, self._running_calls = threading.Lock(), threading.Condition(), 0

    def load(self, phase: Phase, file: Any, number: Any) -> list[Any]:
        """Return a list of the byte count and the arrays of an image; `number` is the number of the pass.

        If reading fails, the first error is stored, and `raise_error` raises the error later. An error raised by `load`
        itself would reach TensorFlow, which keeps only the text of the error and prints Python's whole stack.
        """
        start = time.perf_counter()
        with self._idle:
            self._running_calls += 1
        try:
            arrays = self._read(phase, self.paths[int(file)], int(number))
        except Exception as error:  # noqa: BLE001 - `raise_error` raises the error later
            self.error, arrays = self.error or error, self.example_arrays
        finally:
            with self._idle:
                self._running_calls -= 1
                self._idle.notify_all()
        size = sum(array.nbytes for array in arrays) if self.reads else 0
        with self._lock:
            self.asked[phase] += 1
            self.bytes += size
            self.seconds += time.perf_counter() - start
        return [np.int64(size), *(arrays if self.reads else self.example_arrays)]

    def raise_error(self) -> None:
        """Raise the error of the first failed call of `load`, if a call failed."""
        if self.error:
            raise self.error

    def _read(self, phase: Phase, path: Path, number: int) -> Sequence[Any]:
        if self.reader is None:
            return self.example_arrays
        at = (phase, number, -1)
        with self.log.event("load", path, at=self.log.place(*at)) if self.log else nullcontext():
            arrays = self.reader.read(path, at)
        kinds, expected_kinds = (
            [(array.shape, array.dtype) for array in image] for image in (arrays, self.example_arrays)
        )
        if self.reads and kinds != expected_kinds:
            raise DatasetError(
                f"the arrays in {path} have other shapes or types than the arrays in the first file",
                "name files with equal shapes and types",
            )
        return arrays

    def settle(self) -> None:
        """Wait until no call of `load` is running (at most 60 s), so that images that were read ahead are counted."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running_calls, _SETTLE_S)


def batch_dataset(
    feed: ImageLoader, rules: ClimateRules, phase: Phase, passes: Sequence[int], settings: Settings
) -> tf.data.Dataset:
    """Return a dataset of the batches of all `passes`, one pass after another.

    A batch has file numbers int32 (n,), byte counts int64 (n,), and the arrays of the images. The arrays are fields
    float32 (n, channels, height, width). For generated files, there are also labels int32 and class weights float32,
    both (n, height, width).
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
    kinds = [tf.int64, *(tf.as_dtype(array.dtype.newbyteorder("=")) for array in feed.example_arrays)]
    shapes = [(), *(array.shape for array in feed.example_arrays)]

    def load(file: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tensors = tf.numpy_function(partial(feed.load, phase), [file, number], kinds)
        for tensor, shape in zip(tensors, shapes, strict=True):
            tensor.set_shape(shape)
        size, *arrays = tensors
        return (file, size, *(_preprocess(*arrays) if preprocess else arrays))

    return load


def _preprocess(fields: tf.Tensor, labels: tf.Tensor | None = None, stats: tf.Tensor | None = None) -> list[tf.Tensor]:
    """Return the fields scaled to 0 … 1 by their statistics, the labels, and the class weights of the labels.

    Without labels, only the fields are returned, unscaled.
    """
    fields = tf.cast(fields, tf.float32)
    if labels is None or stats is None:
        return [fields]
    smallest, largest = stats[:, _LEAST, None, None], stats[:, _MOST, None, None]
    classes = tf.cast(labels, tf.int32)
    return [(fields - smallest) / (largest - smallest), classes, tf.gather(WEIGHTS, classes)]


def build_pipelines(feed: ImageLoader, rules: ClimateRules, settings: Settings) -> tuple[Any, list[Any]]:
    """Return one dataset with the batches of all training passes, and one dataset for each validation pass."""
    train = batch_dataset(feed, rules, TRAIN, range(rules.epochs), settings)
    passes = range(rules.epochs) if rules.batches(VALIDATION) else ()
    return train, [batch_dataset(feed, rules, VALIDATION, [number], settings) for number in passes]
