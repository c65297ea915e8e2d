"""CDB's data: the order in which files are read, the expected counts, and the input pipeline.

Source: NERSC/DL-Parallel-IO, mascarpone-tiramisu-tf-singlefile.py and tiramisu_helpers.py (290ed4a). Files are sorted,
permuted, and split 80/10/10; each rank has an equal share, left-over files are unused; a shuffle buffer of 100;
whole batches. Training continues at the point where the last epoch stopped; a validation pass reads its whole share.

The pipeline takes file numbers, reads the files by a parallel map, prefetches images and makes batches. As published
(2018), the map calls a Python function, here `Feed.load`; scaling and the weights of classes follow in the map, as
operations of TensorFlow, which need no lock of Python's.
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

from jobs.benchmarks.nersc_trainer import alike, as_predicted
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
SHUFFLE = 100  # files among which the next one is drawn
_TRAIN_SHARE, _TEST_SHARE = 0.8, 0.1


@dataclass(frozen=True)
class Rules:
    """The rules for one `rank` of a CDB run on `files` data files; `iterations`: batches per epoch, None for all."""

    files: int
    ranks: int
    rank: int
    epochs: int
    batch_size: int
    iterations: int | None
    seed: int

    def split(self, phase: Phase) -> list[int]:
        """Return the file numbers of a phase; a file number is an index into all data files sorted by name."""
        order = [*_permuted(self.files, self.seed)]
        train, test = int(_TRAIN_SHARE * self.files), round(_TEST_SHARE * self.files)
        return order[:train] if phase == TRAIN else order[train + test :]

    def share(self, phase: Phase) -> list[int]:
        """Return the file numbers of this rank in a phase; all ranks have equally many."""
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
        validated = self.epochs * self.batches(VALIDATION)
        return {TRAIN: self.epochs * self.steps * self.batch_size, VALIDATION: validated * self.batch_size}

    def order(self, phase: Phase, number: int) -> list[int]:
        """Return the file numbers of a pass in reading order; the files of an incomplete last batch are left out."""
        draws = random.Random(f"{self.seed} {self.rank} {phase} {number}")  # noqa: S311 - no secret
        waiting, ordered = [], []
        for file in self.share(phase):
            waiting.append(file)
            if len(waiting) == SHUFFLE:
                ordered.append(waiting.pop(draws.randrange(SHUFFLE)))
        draws.shuffle(waiting)
        return (ordered + waiting)[: self.batches(phase) * self.batch_size]

    def consumed(self, phase: Phase) -> list[int]:
        """Return the file numbers of all consumed images, in order over all passes."""
        files = [file for number in range(self.epochs) for file in self.order(phase, number)]
        return files[: self.images[phase]]

    def most_asked(self, prefetch: int, calls: int) -> int:
        """Return the largest possible number of training images read: consumed ones + `prefetch` + parallel `calls`."""
        whole = self.epochs * self.batches(TRAIN) * self.batch_size
        return min(whole, self.images[TRAIN] + prefetch + calls)

    def may_ask(self, prefetch: int, calls: int) -> list[int]:
        """Return the sorted file numbers that this rank may read, either consumed or only read ahead."""
        train = [file for number in range(self.epochs) for file in self.order(TRAIN, number)]
        validation = self.share(VALIDATION) if self.batches(VALIDATION) else []
        return sorted({*train[: self.most_asked(prefetch, calls)], *validation})


@lru_cache(maxsize=4)
def _permuted(files: int, seed: int) -> tuple[int, ...]:
    """Return the numbers of all files in the order that the seed gives."""
    order = list(range(files))
    random.Random(seed).shuffle(order)  # noqa: S311 - no secret
    return tuple(order)


def of_rank(
    rules: Rules, found: Mapping[Phase, int], asked: Mapping[str, int], most_asked: int, size: tuple[int, int]
) -> dict[str, Expectation]:
    """Return one rank's expectations: images consumed (`found`) and read (`asked`), and bytes (`size`)."""
    train, ahead = rules.images[TRAIN], asked[TRAIN] - found[TRAIN]
    message = f"{ahead} images of train were read ahead and thrown away, of at most {most_asked - train}"
    fine = train <= asked[TRAIN] <= most_asked
    return {
        **as_predicted("images consumed", (found, rules.images), size),
        "ahead_as_predicted": {"expected": True, "found": fine, "message": message},
    }


def over_ranks(rules: Rules, reports: Sequence[Mapping[str, Any]]) -> dict[str, Expectation]:
    """Return the expectations over all ranks; a report has ``steps``, ``delivered`` (train files) and ``weights``."""
    fault = every_sample_once(rules, [each["delivered"] for each in reports])
    fine = "no file of train came twice in a pass over them, and none was left out"
    return alike(reports, [rules.epochs * rules.steps] * rules.ranks, fault, fine)


def every_sample_once(rules: Rules, delivered: Sequence[Sequence[int]]) -> str:
    """Return the first fault in the files that the ranks consumed; empty if each pass has each file exactly once.

    In a pass that the run did not complete, files may be missing, but none may come twice.
    """
    whole = rules.batches(TRAIN) * rules.batch_size
    for number in range(rules.epochs):
        counts = Counter(file for files in delivered for file in files[number * whole : (number + 1) * whole])
        shares = [replace(rules, rank=rank).order(TRAIN, number) for rank in range(rules.ranks)]
        if twice := [file for file, count in counts.items() if count > 1]:
            return f"file {twice[0]} of train came {counts[twice[0]]} times in pass {number}"
        if other := counts.keys() - {file for files in shares for file in files}:
            return f"file {min(other)} of train came in pass {number}, and is of no rank's share"
        missing = {file for files in shares for file in files} - counts.keys()
        if missing and all(len(files) >= (number + 1) * whole for files in delivered):
            return f"file {min(missing)} of train did not come in pass {number}"
    return ""


WEIGHTS = (1.009, 7.67, 31.6)  # of the classes, 1 / sqrt of their shares in our files (jobs/data/synthetic_hdf5.py)
_MOST, _LEAST = 1, 2  # columns of ``stats``
_SETTLE_S = 60.0
_PLAIN = {"autotune": False, "deterministic": True, "map_and_batch_fusion": False, "private_threads": None}


def parts_of(dataset: Node, channels: Sequence[int] | None) -> list[Part]:
    """Return the parts to read per file: fields, labels and statistics; of a user's own files one data set."""
    rows = tuple(channels) if channels is not None else None
    if "path" in dataset:
        return [Part(dataset["hdf5"], rows)]
    return [Part("climate/data", rows), Part("climate/labels"), Part("climate/stats", rows)]


@dataclass
class Feed:
    """The image loader that the pipeline's map calls from several threads; it counts images, bytes and seconds."""

    paths: Sequence[Path]  # by the numbers that the rules give them
    reader: Reader | None  # None: nothing is read
    held: Sequence[Any]  # the arrays of one image, in memory
    reads: bool  # True: `load` returns the arrays of the reader; False: it returns `held`
    log: TimeLog | None
    asked: Counter[str] = field(default_factory=Counter)  # images by phase
    bytes: int = 0  # returned by all calls together
    seconds: float = 0.0  # of all calls together
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._lock, self._idle, self._under_way = threading.Lock(), threading.Condition(), 0

    def load(self, phase: Phase, file: Any, number: Any) -> list[Any]:
        """Return the byte count of an image, then its arrays; `number` is the number of the pass.

        The first error is stored for `require`: TensorFlow would keep its text only, and would print Python's whole
        stack.
        """
        began = time.perf_counter()
        with self._idle:
            self._under_way += 1
        try:
            arrays = self._read(phase, self.paths[int(file)], int(number))
        except Exception as error:  # noqa: BLE001 - it is raised again
            self.error, arrays = self.error or error, self.held
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()
        size = sum(each.nbytes for each in arrays) if self.reads else 0
        with self._lock:
            self.asked[phase] += 1
            self.bytes += size
            self.seconds += time.perf_counter() - began
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
        kinds, expected_kinds = ([(each.shape, each.dtype) for each in those] for those in (arrays, self.held))
        if self.reads and kinds != expected_kinds:
            raise DatasetError(
                f"{path} has not the shapes and types that the first file has", "name files that are alike"
            )
        return arrays

    def settle(self) -> None:
        """Wait until no call is under way, so that images read ahead are counted, too; at most 60 s."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, _SETTLE_S)


def batches(feed: Feed, rules: Rules, phase: Phase, passes: Sequence[int], settings: Settings) -> tf.data.Dataset:
    """Return a dataset of batches, pass after pass: file numbers int32 (n,), bytes int64 (n,), then the arrays.

    The arrays are fields float32 (n, channels, height, width), and for our own files labels int32 and weights float32
    (n, height, width).
    """
    orders = tf.constant([rules.order(phase, number) for number in passes])
    load = _loader(feed, phase, preprocess=settings["benchmark"]["preprocess"])

    def one(index: tf.Tensor) -> tf.data.Dataset:
        files = tf.data.Dataset.from_tensor_slices(tf.gather(orders, index))
        call = tf.autograph.experimental.do_not_convert(partial(load, number=index + passes[0]))
        images = files.map(call, num_parallel_calls=settings["threads"])
        ready = images.prefetch(settings["prefetch"]) if settings["prefetch"] else images
        return ready.batch(settings["batch_size"], drop_remainder=True)

    every = tf.data.Dataset.range(len(passes)).flat_map(tf.autograph.experimental.do_not_convert(one))
    return every.with_options(pipeline.options(_PLAIN, settings["threads"]))


def _loader(feed: Feed, phase: Phase, *, preprocess: bool) -> Any:
    kinds = [tf.int64, *(tf.as_dtype(each.dtype.newbyteorder("=")) for each in feed.held)]
    shapes = [(), *(each.shape for each in feed.held)]

    def load(file: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tensors = tf.numpy_function(partial(feed.load, phase), [file, number], kinds)
        for tensor, shape in zip(tensors, shapes, strict=True):
            tensor.set_shape(shape)
        size, *arrays = tensors
        return (file, size, *(_prepared(*arrays) if preprocess else arrays))

    return load


def _prepared(fields: tf.Tensor, labels: tf.Tensor | None = None, stats: tf.Tensor | None = None) -> list[tf.Tensor]:
    """Return fields (scaled to 0 … 1 by their statistics), labels and class weights; without labels only the fields."""
    fields = tf.cast(fields, tf.float32)
    if labels is None or stats is None:
        return [fields]
    least, most = stats[:, _LEAST, None, None], stats[:, _MOST, None, None]
    classes = tf.cast(labels, tf.int32)
    return [(fields - least) / (most - least), classes, tf.gather(WEIGHTS, classes)]


def pipelines(feed: Feed, rules: Rules, settings: Settings) -> tuple[Any, list[Any]]:
    """Return the dataset of all training passes, and one dataset per validation pass."""
    train = batches(feed, rules, TRAIN, range(rules.epochs), settings)
    passes = range(rules.epochs) if rules.batches(VALIDATION) else ()
    return train, [batches(feed, rules, VALIDATION, [number], settings) for number in passes]
