"""What the tests of objects let a forked process do; each function takes a dict and returns one."""

import hashlib
import os
import threading
from collections import defaultdict
from pathlib import Path

import numpy as np

from jobs import run
from jobs.data import manifest, pipeline
from jobs.objects import run_objects
from tests.jobs.jobs_factory import judged_in_time


def execute(argument):
    """Run a request; the credentials are in the argument's environment."""
    os.environ.update(argument["environment"])
    request = argument["request"]
    return {"value": judged_in_time(lambda: run.execute(request), request)}


def pixels(argument):
    """Return of each object, by index, its size and a checksum of the pixels that the pipeline gives of it."""
    os.environ.update(argument["environment"])
    request, settings = argument["request"], argument["request"]["settings"]
    listed = manifest.load_manifest(Path(request["manifest"]))
    names = [file.name for file in listed.files]
    if "storage" not in settings:
        return {"value": _pixels([str(Path(request["dataset"], name)) for name in names], settings)}
    order = [names[index] for index in pipeline.reading_order(names, settings["seed"])]
    with (
        run_objects.objects_of_dataset(settings["storage"], request["dataset"], listed, None, 2) as opened,
        opened.in_order(order),
    ):
        return {"value": _pixels(names, settings, opened)}


def _pixels(names, settings, opened=None):
    batches = pipeline.build_unlabelled(names, settings, opened)
    rows = (row for batch in batches for row in zip(*(part.numpy() for part in batch), strict=True))
    return sorted((int(index), int(size), hashlib.sha256(image.tobytes()).hexdigest()) for index, size, image in rows)


def calls_of_threads(_):
    """Return for each thread that called a function of a pipeline what its calls counted in the thread's own state."""
    import tensorflow as tf  # noqa: PLC0415 - slow to import, here and not in the process of the tests

    local, calls = threading.local(), defaultdict(list)

    def called(_):
        run_objects.keep_thread_state()
        calls[threading.get_native_id()].append(getattr(local, "calls", 0))
        local.calls = calls[threading.get_native_id()][-1] + 1
        return np.int32(0)

    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    call = tf.autograph.experimental.do_not_convert(lambda each: tf.numpy_function(called, [each], tf.int32))
    list(tf.data.Dataset.range(20).map(call, num_parallel_calls=2).with_options(options))
    return {"value": list(calls.values())}
