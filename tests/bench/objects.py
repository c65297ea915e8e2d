"""What a pipeline of tf.data costs readers of an object store: ours, by both engines, over plain threads of its client.

A Ceph gateway of its own on the temporary folder's disk, objects of random bytes; threads of ``obstore`` alone, and the
pipeline of `micro` without its arithmetic, four requests at once either way. All ways in turn, and a ratio is the
median of those within a turn, so that what else the machine does falls on both.

Client and store share the processors first, so that what the client needs is taken from the store. Then each side has
half of the processors to itself, as on two machines: does the pipeline keep the store as busy as plain threads do?
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psutil

from jobs.data import pipeline
from jobs.data.manifest import DatasetFile, Manifest
from jobs.model.declared import declared_defaults
from jobs.model.settings import ObjectStorage
from jobs.objects import run_objects
from jobs.objects.client import Client
from tests.bench.bench import Figure, said

NEEDS = "ceph"
SIZES = {"smoke": {"small": 64, "large": 2, "turns": 1}, "full": {"small": 4096, "large": 32, "turns": 7}}
_BYTES = {"112 kB": 112_000, "19 MB": 19_000_000}
_CALLS = 4
_GOAL = "at least 0.9"

Turn = tuple[float, float]
"""MB/s, and milliseconds of this process's processor time an object."""


def measure(small: int, large: int, turns: int) -> Iterator[Figure]:
    """Start a gateway, fill it, and compare the ways in a process of its own."""
    from campaign.testbed.ceph import DAEMONS  # noqa: PLC0415 - for this bench alone
    from tests.ceph.lab import lab  # noqa: PLC0415

    with lab() as gateway:
        storage = {
            **declared_defaults(ObjectStorage),
            "endpoint": gateway.endpoint,
            "bucket": gateway.bucket,
            "region": gateway.region,
        }
        asked = {"storage": storage, "counts": dict(zip(_BYTES, (small, large), strict=True)), "turns": turns}
        asked["credentials"] = gateway.credentials
        script = "from tests.bench import objects; objects.compare()"
        processors = sorted(os.sched_getaffinity(0))
        half = len(processors) // 2
        places = {
            "shared processors": (processors, processors),
            "own processors": (processors[half:], processors[:half]),
        }
        for place, (clients, servers) in places.items() if half else list(places.items())[:1]:
            for daemon in DAEMONS:
                _place(gateway.pid(daemon), servers)
            told = json.dumps({**asked, "processors": clients, "fill": place == "shared processors"})
            yield from _figures(json.loads(said([sys.executable, "-c", script], told).splitlines()[-1]), place)


def _figures(turns: dict[str, list[dict[str, Turn]]], place: str) -> Iterator[Figure]:
    for size, each in turns.items():
        for engine in ("threads", "async"):
            ratio = statistics.median(turn[engine][0] / turn["plain"][0] for turn in each)
            yield Figure(f"engine `{engine}` over plain threads, {size}, {place}", ratio, "times", _GOAL)
        for way in each[0]:
            rate, cpu_ms = (statistics.median(column) for column in zip(*(turn[way] for turn in each), strict=True))
            yield Figure(f"`{way}`, {size}, {place}", rate, "MB/s")
            yield Figure(f"`{way}`, {size}, {place}: the client for an object", cpu_ms, "CPU ms")


def _place(pid: int, processors: list[int]) -> None:
    for thread in psutil.Process(pid).threads():
        os.sched_setaffinity(thread.id, processors)


def compare() -> None:
    """Read what is asked for, fill the store, and print each way's `Turn` in each turn, by size, as JSON."""
    told = json.load(sys.stdin)
    os.environ.update(told["credentials"])
    os.sched_setaffinity(0, told["processors"])
    turns: dict[str, list[dict[str, Turn]]] = {}
    for size, count in told["counts"].items():
        names = [f"{size}/{number:05}.jpg".replace(" ", "") for number in range(count)]
        if told["fill"]:
            _fill(Client({**told["storage"], "engine": "threads"}), names, _BYTES[size])
        ways: dict[str, Callable[[], float]] = {"plain": partial(_plain, told["storage"], names)}
        for engine in ("threads", "async"):
            ways[engine] = partial(_ours, {**told["storage"], "engine": engine}, names, _BYTES[size])
        # The first one is TensorFlow's first use.
        turns[size] = [
            {way: _timed(read, count, _BYTES[size]) for way, read in ways.items()} for _ in range(told["turns"] + 1)
        ][1:]
    print(json.dumps(turns))


def _timed(read: Callable[[], float], count: int, size: int) -> Turn:
    before = time.process_time()
    seconds = read()
    return count * size / 1e6 / seconds, (time.process_time() - before) / count * 1e3


def _fill(client: Client, names: list[str], size: int) -> None:
    with ThreadPoolExecutor(_CALLS) as pool:
        list(pool.map(lambda name: client.put(f"objects/{name}", os.urandom(size)), names))


def _plain(storage: dict[str, Any], names: list[str]) -> float:
    """Return the seconds that threads take which do nothing else."""
    import obstore  # noqa: PLC0415 - not where the lab is missing
    from obstore.store import S3Store  # noqa: PLC0415

    store = S3Store(
        storage["bucket"], endpoint=storage["endpoint"], region=storage["region"], virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )  # fmt: skip
    with ThreadPoolExecutor(_CALLS) as pool:
        began = time.perf_counter()
        for _ in pool.map(lambda name: len(obstore.get(store, f"objects/{name}").bytes()), names):
            pass
        return time.perf_counter() - began


def _ours(storage: dict[str, Any], names: list[str], size: int) -> float:
    """Return the seconds that the pipeline takes."""
    benchmark = {**declared_defaults(pipeline.PipelineKeys), "preprocess": False}
    settings: Any = {"benchmark": benchmark, "threads": _CALLS, "batch_size": 64, "prefetch": 0, "seed": 1}
    files = tuple(DatasetFile(name, size, 0) for name in names)
    listed = Manifest("folder", {}, None, files, ("",))
    with run_objects.objects_of_dataset(storage, f"s3://{storage['bucket']}/objects", listed, None, _CALLS) as opened:
        order = [names[index] for index in pipeline.reading_order(names, settings["seed"])]
        with opened.in_order(order):
            batches = pipeline.build_unlabelled(names, settings, opened)
            began = time.perf_counter()
            if sum(int(sizes.numpy().sum()) for _, sizes, _ in batches) != size * len(names):
                raise RuntimeError("the pipeline left objects out")
            return time.perf_counter() - began
