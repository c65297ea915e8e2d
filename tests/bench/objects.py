"""What a pipeline of tf.data costs readers of an object store: ours, by both engines, over plain threads of its client.

A Ceph gateway of its own on the temporary folder's disk, objects of random bytes; threads of ``obstore`` alone, and the
pipeline of `micro` without its arithmetic, four requests at once either way. All ways in turn, and a ratio is the
median of those within a turn, so that what else the machine does falls on both. Client, gateway and OSD share the
processors.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jobs.data import pipeline
from jobs.data.manifest import ImageFile, Manifest
from jobs.objects import source
from jobs.objects.client import DEFAULTS, Client
from tests.bench.bench import Figure, said

NEEDS = "ceph"
SIZES = {"smoke": {"small": 64, "large": 2, "turns": 1}, "full": {"small": 4096, "large": 32, "turns": 7}}
_BYTES = {"112 kB": 112_000, "19 MB": 19_000_000}
_CALLS = 4
_GOAL = "at least 0.9"


def measure(small: int, large: int, turns: int) -> Iterator[Figure]:
    """Start a gateway, fill it, and compare the ways in a process of its own."""
    from tests.ceph.lab import lab  # noqa: PLC0415 - for this bench alone

    with lab() as gateway:
        storage = {
            **DEFAULTS, "endpoint": gateway.endpoint, "bucket": gateway.bucket, "prefix": "", "region": gateway.region,
            "concurrency": None,
        }  # fmt: skip
        asked = {"storage": storage, "counts": dict(zip(_BYTES, (small, large), strict=True)), "turns": turns}
        asked["credentials"] = gateway.credentials
        script = "from tests.bench import objects; objects.compare()"
        rates = json.loads(said([sys.executable, "-c", script], json.dumps(asked)).splitlines()[-1])
    for size, ways in rates.items():
        for engine in ("threads", "async"):
            ratios = [ours / plain for ours, plain in zip(ways[engine], ways["plain"], strict=True)]
            yield Figure(f"engine `{engine}` over plain threads, {size}", statistics.median(ratios), "times", _GOAL)
        for way, each in ways.items():
            yield Figure(f"`{way}`, {size}", statistics.median(each), "MB/s")


def compare() -> None:
    """Read what is asked for, fill the store, and print the MB/s of each way in each turn, by size, as JSON."""
    told = json.load(sys.stdin)
    os.environ.update(told["credentials"])
    rates: dict[str, dict[str, list[float]]] = {}
    for size, count in told["counts"].items():
        names = [f"{size}/{number:05}.jpg".replace(" ", "") for number in range(count)]
        _fill(Client({**told["storage"], "engine": "threads"}), names, _BYTES[size])
        ways = rates.setdefault(size, {"plain": [], "threads": [], "async": []})
        for _ in range(told["turns"] + 1):  # the first one is TensorFlow's first use
            ways["plain"].append(_plain(told["storage"], names) * _BYTES[size] / 1e6)
            for engine in ("threads", "async"):
                ways[engine].append(_ours({**told["storage"], "engine": engine}, names, _BYTES[size]))
    print(json.dumps({size: {way: each[1:] for way, each in ways.items()} for size, ways in rates.items()}))


def _fill(client: Client, names: list[str], size: int) -> None:
    with ThreadPoolExecutor(_CALLS) as pool:
        list(pool.map(lambda name: client.put(f"objects/{name}", os.urandom(size)), names))


def _plain(storage: dict[str, Any], names: list[str]) -> float:
    """Return the gets per second of threads that do nothing else."""
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
        return len(names) / (time.perf_counter() - began)


def _ours(storage: dict[str, Any], names: list[str], size: int) -> float:
    """Return the MB/s of the pipeline."""
    benchmark = {key: getattr(pipeline.Keys, key) for key in pipeline.Keys.__dataclass_fields__} | {"preprocess": False}
    settings: Any = {"benchmark": benchmark, "threads": _CALLS, "batch_size": 64, "prefetch": 0, "seed": 1}
    files = tuple(ImageFile(name, size, 0) for name in names)
    listed = Manifest("folder", {}, None, files, ("",))
    with source.of_dataset(storage, f"s3://{storage['bucket']}/objects", listed, None, _CALLS) as opened:
        order = [names[index] for index in pipeline.order(names, settings["seed"])]
        with opened.in_order(order):
            batches = pipeline.build(names, settings)
            began = time.perf_counter()
            total = sum(int(sizes.numpy().sum()) for _, sizes, _ in batches)
            return total / 1e6 / (time.perf_counter() - began)
