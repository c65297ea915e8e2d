"""A program of known demand: reads the files of a folder and works on each; of which kind, its words say."""

import argparse
import queue
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path


def read(path):
    return path.read_bytes()


def sleeps(_, seconds):
    time.sleep(seconds)


def computes(_, seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def decodes(content, _):
    zlib.decompress(content)


def one_after_the_other(paths, work):
    for path in paths:
        work(read(path))


def by_threads(paths, work):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda path: work(read(path)), paths))


def one_ahead(paths, work):
    """Read the next file while this one is worked on."""
    ready = queue.Queue(1)
    reader = threading.Thread(target=lambda: [ready.put(read(path)) for path in paths])
    reader.start()
    for _ in paths:
        work(ready.get())
    reader.join()


def by_workers(paths, work):
    with get_context("fork").Pool(1) as pool:
        for content in pool.imap(read, paths):
            work(content)


def by_tensorflow(paths, work, ahead=0):
    import tensorflow as tf  # noqa: PLC0415 - where it is asked for

    for _ in tf.data.Dataset.range(1):  # starts the runtime
        pass
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False  # they read ahead by themselves
    files = tf.data.Dataset.from_tensor_slices([str(path) for path in paths]).map(tf.io.read_file)
    files = (files.prefetch(ahead) if ahead else files).with_options(options)
    print("begin", flush=True)
    for content in files:
        work(content)


def by_tensorflow_ahead(paths, work):
    by_tensorflow(paths, work, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("order", choices=[name for name in globals() if name.startswith(("one_", "by_"))])
    parser.add_argument("work", choices=["sleeps", "computes", "decodes"])
    parser.add_argument("seconds", type=float)
    parser.add_argument("epochs", type=int)
    options = parser.parse_args()
    paths = sorted(options.folder.iterdir())
    if not options.order.startswith("by_tensorflow"):
        print("begin", flush=True)
    for _ in range(options.epochs):
        globals()[options.order](paths, lambda content: globals()[options.work](content, options.seconds))


if __name__ == "__main__":
    main()
