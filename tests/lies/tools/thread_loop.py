"""A plain loop as loaders of data have it: threads that open and read files; prints files a second."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS, PASSES = 2, 3


def evict(paths):
    """Drop the pages of files, as far as the kernel follows the advice."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def rate(paths):
    """Return files a second of some passes over all of them, each cold."""
    seconds = 0.0
    for _ in range(PASSES):
        evict(paths)
        began = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            sizes = list(pool.map(lambda path: len(path.open("rb").read()), paths))
        seconds += time.perf_counter() - began
    return PASSES * len(sizes) / seconds


if __name__ == "__main__":
    print(rate(sorted(Path(sys.argv[1]).iterdir())))
