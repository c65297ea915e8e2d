"""Whether the harness takes anything: images/s of a `micro` run against a bare tf.data script, on the same cold files.

    python tests/bench/harness.py [--pairs 21] [--threads 2]

The bare script is what one would type without us: list, shuffle, map, ignore errors, batch, iterate, two clock stamps.
Both run in a fresh fork of the same template, on the `demo` dataset, in turns, the one that goes first changing, each
after the files were evicted. Goal: the ratio of the medians within 3 % of 1.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from campaign.worker.runner import Template
from tests.bench.bench import demo, medians, options, request


def bare(argument: dict[str, Any]) -> dict[str, Any]:
    """Read all images once and return images/s; no counters, no checks, no names."""
    import time  # noqa: PLC0415

    import tensorflow as tf  # noqa: PLC0415

    from jobs.system import page_cache  # noqa: PLC0415

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
    page_cache.evict(paths)
    iterator = iter(pipeline)
    images = 0
    start = time.perf_counter()
    for batch in iterator:
        images += batch.shape[0]
    return {"images_per_s": images / (time.perf_counter() - start), "images": images}


def main() -> None:
    """Print the medians of both and their ratio."""
    chosen = options(__doc__, pairs=21, threads=2)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where the template finds `bare`
    argument = request(demo(), threads=chosen.threads)
    rates: dict[str, list[float]] = {"jobs.run:execute": [], "harness:bare": []}
    with tempfile.TemporaryDirectory() as logs:
        template = Template(Path(logs) / "template.log", preload=("tensorflow", "jobs.run", "jobs.benchmarks.micro"))
        for pair in range(chosen.pairs):
            jobs = sorted(rates, reverse=pair % 2 == 0)
            for job in jobs:
                answer = template.run(argument, Path(logs) / "run.log", 600, job)
                rates[job].append(answer["images_per_s"])
        template.close()
    ours, theirs = medians(*rates.values())
    print(f"micro run        {ours:.1f} images/s, median of {chosen.pairs}")
    print(f"bare tf.data     {theirs:.1f} images/s, median of {chosen.pairs}")
    print(f"ratio            {ours / theirs:.4f}")


if __name__ == "__main__":
    main()
