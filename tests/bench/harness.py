"""Whether the harness slows a run down: images/s of `micro` against a bare tf.data script, on the same cold files.

The bare script is what one would write without this project: list, shuffle, map, ignore errors, batch, iterate, two
clock stamps. Both run in a fresh fork of the same process, in turns, the one that goes first changing, each after the
files were evicted.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from campaign.worker.runner import Template
from jobs.system import page_cache
from tests.bench.bench import QUIET, Figure, request

SIZES = {"smoke": {"pairs": 1, "threads": 2, "files": 24}, "full": {"pairs": 21, "threads": 2, "files": 512}}


def bare(argument: dict[str, Any]) -> dict[str, Any]:
    """Read all images once and return images/s; no counters, no checks, no names."""
    import tensorflow as tf  # noqa: PLC0415

    paths = sorted(Path(argument["dataset"]).rglob("*.jpg"))
    threads = argument["settings"]["threads"]

    def load(path: Any) -> Any:
        image = tf.image.convert_image_dtype(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), tf.float32)
        return tf.image.resize(image, (224, 224))

    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = threads
    pipeline = tf.data.Dataset.from_tensor_slices([str(path) for path in paths]).shuffle(len(paths), seed=0)
    pipeline = pipeline.map(load, num_parallel_calls=threads).ignore_errors().batch(64).with_options(options)
    page_cache.evict_pages(paths)
    iterator = iter(pipeline)
    start = time.perf_counter()
    images = sum(batch.shape[0] for batch in iterator)
    return {"images_per_s": images / (time.perf_counter() - start), "images": images}


def measure(pairs: int, threads: int, files: int) -> Iterator[Figure]:
    """Run both in turns."""
    argument = request(f"threads={threads}", f"dataset.files={files}")
    rates: dict[str, list[float]] = {"jobs.run:execute": [], f"{__name__}:bare": []}
    with tempfile.TemporaryDirectory() as logs, mock.patch.dict(os.environ, QUIET):
        template = Template(Path(logs, "template.log"))
        for pair in range(pairs):
            for job in sorted(rates, reverse=pair % 2 == 0):
                answer = template.run(argument, Path(logs, "run.log"), 600, job)
                rates[job].append(answer["images_per_s"])
        template.close()
    ours, theirs = (statistics.median(one) for one in rates.values())
    yield Figure("a `micro` run", ours, "images/s")
    yield Figure("a bare tf.data script", theirs, "images/s")
    yield Figure("ratio of the two", ours / theirs, "", "within 3 % of 1")
