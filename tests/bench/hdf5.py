"""What HDF5's lock costs a pipeline of tf.data, and what reading past the library gives back.

Files as CDB's, four of their sixteen fields and the labels, through the pipeline of benchmark `climate` without its
arithmetic; beside it raw files of the bytes that are asked for, through `tf.io.read_file`. Four calls at once, 16
images kept ready. Cold and warm, all ways in turn, and a ratio is the median of those within a turn, so that what else
the machine does falls on both. The files lie in the temporary folder.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.data.readers import Part, open_reader
from jobs.data.synthetic_hdf5 import ClimateSpec
from jobs.system import page_cache
from tests.bench.bench import Figure, said

SIZES = {
    "smoke": {"files": 8, "height": 48, "width": 72, "turns": 1},
    "full": {"files": 64, "height": 384, "width": 576, "turns": 7},
}
_CALLS, _AHEAD = 4, 16
_PARTS = [Part("climate/data", (0, 1, 2, 10)), Part("climate/labels")]
# Of two ways at so many calls, by state of the cache: the goal of their ratio.
_RATIOS = {
    "`offsets` over `h5py_pool`": ("offsets", "h5py_pool", "at least 2"),
    "`offsets` over raw files": ("offsets", "raw", "at least 0.9"),
    "`h5py_shared` over `h5py_pool`": ("h5py_shared", "h5py_pool", ""),
    "`h5py_threads`, 4 calls over 1": ("h5py_threads", "h5py_threads, 1 call", ""),
    "`offsets`, 4 calls over 1": ("offsets", "offsets, 1 call", ""),
}


def measure(files: int, height: int, width: int, turns: int) -> Iterator[Figure]:
    """Make the files, and compare the ways in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        spec = ClimateSpec(files=files + 1, height=height, width=width, seed=0)
        for place in range(files):
            with Path(folder, f"{place:04}.h5").open("w+b") as file:
                spec.write(file, place)
            Path(folder, f"{place:04}.raw").write_bytes(os.urandom(4 * 5 * height * width))
        page_cache.sync_file_system(Path(folder))
        script = "import sys; from tests.bench import hdf5; hdf5.compare(sys.argv[1], int(sys.argv[2]))"
        rates = json.loads(said([sys.executable, "-c", script, folder, str(turns)]).splitlines()[-1])
    for cache, ways in rates.items():
        for what, (one, other, goal) in _RATIOS.items():
            ratios = [first / second for first, second in zip(ways[one], ways[other], strict=True)]
            yield Figure(f"{what}, {cache}", statistics.median(ratios), "times", goal)
        for way in ("h5py_threads", "h5py_pool", "h5py_shared", "offsets", "raw"):
            yield Figure(f"`{way}`, {cache}", statistics.median(ways[way]), "MB/s")


def compare(folder: str, turns: int) -> None:
    """Print the MB/s of each way in each turn, by state of the cache, as JSON."""
    files, raw = (sorted(map(str, Path(folder).glob(f"*.{kind}"))) for kind in ("h5", "raw"))
    rates: dict[str, dict[str, list[float]]] = {"cold": {}, "warm": {}}
    for _ in range(turns + 1):  # the first one is TensorFlow's first use
        for cache, ways in rates.items():
            for name in ("h5py_threads", "h5py_pool", "h5py_shared", "offsets"):
                with open_reader(name, _PARTS, files, readers=_CALLS) as reader:
                    ways.setdefault(name, []).append(_rate(_loader(reader.read), files, cache, _CALLS))
                    if name in ("h5py_threads", "offsets"):
                        alone = _rate(_loader(reader.read), files, cache, 1)
                        ways.setdefault(f"{name}, 1 call", []).append(alone)
            ways.setdefault("raw", []).append(_rate(_raw, raw, cache, _CALLS))
    print(json.dumps({cache: {way: each[1:] for way, each in ways.items()} for cache, ways in rates.items()}))


def _loader(read: Callable[[str], Sequence[Any]]) -> Callable[[Any], Any]:
    import tensorflow as tf  # noqa: PLC0415 - in a process of its own

    def load(path: Any) -> Any:
        return tf.numpy_function(lambda name: read(name.decode()), [path], [tf.float32] * len(_PARTS))

    return load


def _raw(path: Any) -> Any:
    import tensorflow as tf  # noqa: PLC0415

    return tf.io.read_file(path)


def _rate(load: Callable[[Any], Any], files: Sequence[str], cache: str, calls: int) -> float:
    import tensorflow as tf  # noqa: PLC0415

    options = tf.data.Options()
    options.threading.private_threadpool_size = calls
    names = tf.data.Dataset.from_tensor_slices(files)
    images = names.map(load, num_parallel_calls=calls).prefetch(_AHEAD).with_options(options)
    paths = [Path(file) for file in files]
    page_cache.evict_pages(paths) if cache == "cold" else page_cache.read_through(paths)
    began = time.perf_counter()
    seen = sum(1 for _ in images)
    taken_s = time.perf_counter() - began
    size = Path(files[0]).with_suffix(".raw").stat().st_size
    return seen * size / 1e6 / taken_s
