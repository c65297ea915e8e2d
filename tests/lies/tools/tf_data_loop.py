"""A plain tf.data loop: read, decode, resize, batch; prints images a second."""

import sys
import time
from pathlib import Path

import tensorflow as tf

from tests.lies.tools.thread_loop import PASSES, THREADS, evict

_PIXELS, _BATCH = 224, 8


def rate(paths):
    """Return images a second of some passes over all of them, each cold."""

    def image(name):
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(name), channels=3), (_PIXELS, _PIXELS))

    names = tf.data.Dataset.from_tensor_slices([str(path) for path in paths])
    batches = names.map(image, num_parallel_calls=THREADS).batch(_BATCH)
    images, seconds = 0, 0.0
    for _ in range(PASSES):
        evict(paths)
        began = time.perf_counter()
        images += sum(int(batch.shape[0]) for batch in batches)
        seconds += time.perf_counter() - began
    return images / seconds


if __name__ == "__main__":
    print(rate(sorted(Path(sys.argv[1]).iterdir())))
