"""CDB's input pipeline: names, a map that reads in parallel, images kept ready, batches; and its book of what was read.

As published (2018): the map calls a Python function, here `Feed.load`; scaling and the weights of classes follow in the
map, as operations of TensorFlow, which need no lock of Python's.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jobs.benchmarks.cdb.cdb_rules import TRAIN, VALIDATION, Phase, Rules
from jobs.data import pipeline
from jobs.data.readers import Part, Reader
from jobs.errors import DatasetError
from jobs.events.time_log import TimeLog
from jobs.lazy_imports import np, tf
from jobs.model.settings import Node, Settings

WEIGHTS = (1.009, 7.67, 31.6)  # of the classes, 1 / sqrt of their shares in our files (jobs/data/synthetic_hdf5.py)
_MOST, _LEAST = 1, 2  # columns of ``stats``
_SETTLE_S = 60.0
_PLAIN = {"autotune": False, "deterministic": True, "map_and_batch_fusion": False, "private_threads": None}


def parts_of(dataset: Node, channels: Sequence[int] | None) -> list[Part]:
    """Return what is read of each file: fields, labels and statistics, or of a user's own files the data set alone."""
    rows = tuple(channels) if channels is not None else None
    if "path" in dataset:
        return [Part(dataset["hdf5"], rows)]
    return [Part("climate/data", rows), Part("climate/labels"), Part("climate/stats", rows)]


@dataclass
class Feed:
    """What the map of the pipelines calls, from any number of threads."""

    paths: Sequence[Path]  # by the numbers that the rules give them
    reader: Reader | None  # None: nothing is read
    held: Sequence[Any]  # an image in memory
    reads: bool  # whether what the reader gives is delivered, else what is held
    log: TimeLog | None
    asked: Counter[str] = field(default_factory=Counter)  # images by phase
    bytes: int = 0  # that were asked for
    seconds: float = 0.0  # of all calls together
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._lock, self._idle, self._under_way = threading.Lock(), threading.Condition(), 0

    def load(self, phase: Phase, file: Any, number: Any) -> list[Any]:
        """Read an image for a pass; returns its bytes, and its arrays.

        What fails is kept for `require`: TensorFlow would keep the text alone, and print all of Python's stack.
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
        """Raise what the first call that failed has raised."""
        if self.error:
            raise self.error

    def _read(self, phase: Phase, path: Path, number: int) -> Sequence[Any]:
        if self.reader is None:
            return self.held
        at = (phase, number, -1)
        with self.log.event("load", path, at=self.log.place(*at)) if self.log else nullcontext():
            arrays = self.reader.read(path, at)
        kinds, wanted = ([(each.shape, each.dtype) for each in those] for those in (arrays, self.held))
        if self.reads and kinds != wanted:
            raise DatasetError(
                f"{path} has not the shapes and types that the first file has", "name files that are alike"
            )
        return arrays

    def settle(self) -> None:
        """Wait until no call is under way: what was read ahead is counted, too."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, _SETTLE_S)


def batches(feed: Feed, rules: Rules, phase: Phase, passes: Sequence[int], settings: Settings) -> tf.data.Dataset:
    """Return batches over some passes: files int32 (n,), bytes int64 (n,), then the arrays, one pass after the other.

    Fields float32 (n, channels, height, width); of our files labels int32 and weights float32 (n, height, width).
    """
    orders = tf.constant([rules.order(phase, number) for number in passes])
    load = _loader(feed, phase, preprocess=settings["benchmark"]["preprocess"])

    def one(place: tf.Tensor) -> tf.data.Dataset:
        files = tf.data.Dataset.from_tensor_slices(tf.gather(orders, place))
        call = tf.autograph.experimental.do_not_convert(partial(load, number=place + passes[0]))
        images = files.map(call, num_parallel_calls=settings["threads"])
        kept = images.prefetch(settings["prefetch"]) if settings["prefetch"] else images
        return kept.batch(settings["batch_size"], drop_remainder=True)

    every = tf.data.Dataset.range(len(passes)).flat_map(tf.autograph.experimental.do_not_convert(one))
    return every.with_options(pipeline.options(_PLAIN, settings["threads"]))


def _loader(feed: Feed, phase: Phase, *, preprocess: bool) -> Any:
    kinds = [tf.int64, *(tf.as_dtype(each.dtype.newbyteorder("=")) for each in feed.held)]
    shapes = [(), *(each.shape for each in feed.held)]

    def load(file: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        found = tf.numpy_function(partial(feed.load, phase), [file, number], kinds)
        for tensor, shape in zip(found, shapes, strict=True):
            tensor.set_shape(shape)
        size, *arrays = found
        return (file, size, *(_prepared(*arrays) if preprocess else arrays))

    return load


def _prepared(fields: tf.Tensor, labels: tf.Tensor | None = None, stats: tf.Tensor | None = None) -> list[tf.Tensor]:
    """Scale fields to 0 … 1 by their statistics, and weigh the classes; of a user's own files there is neither."""
    fields = tf.cast(fields, tf.float32)
    if labels is None or stats is None:
        return [fields]
    least, most = stats[:, _LEAST, None, None], stats[:, _MOST, None, None]
    classes = tf.cast(labels, tf.int32)
    return [(fields - least) / (most - least), classes, tf.gather(WEIGHTS, classes)]


def pipelines(feed: Feed, rules: Rules, settings: Settings) -> tuple[Any, list[Any]]:
    """Return the batches of the training, and those of each validation pass."""
    train = batches(feed, rules, TRAIN, range(rules.epochs), settings)
    passes = range(rules.epochs) if rules.batches(VALIDATION) else ()
    return train, [batches(feed, rules, VALIDATION, [number], settings) for number in passes]
