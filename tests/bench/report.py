"""How long the analysis of a large campaign takes, and `status` of it: synthetic records with 6 runs each.

A set of settings has 32 cells, 4 storages with 8 numbers of threads. So many sets are of the micro-benchmark and give a
figure each; the others are of a benchmark that has no figure of its own, because drawing takes long. Of `python -m
campaign status` the first look is measured, which reads all records, and the median of three later ones.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.bench.bench import QUIET, ROOT, Figure, median_s

SIZES = {"smoke": {"sizes": [8], "figures": 1}, "full": {"sizes": [10_000, 100_000], "figures": 8}}
GOALS = {10_000: ("at most 6", "at most 300", "at most 1"), 100_000: ("at most 60", "at most 1,000", "")}
"""By cells: those of the seconds and of the MB of an analysis, and of the seconds of a status."""
EXAMPLE = json.loads((ROOT / "tests" / "acceptance" / "stored" / "record.json").read_text(encoding="utf-8"))
STORAGES, THREADS = ("hdd", "ssd", "optane", "lustre"), (1, 2, 4, 8, 12, 16, 24, 32)
OF_A_SET, RUNS = len(STORAGES) * len(THREADS), 6


def measure(sizes: list[int], figures: int) -> Iterator[Figure]:
    """Make the records of so many cells, then analyse them and look at their status."""
    for cells in sizes:
        with tempfile.TemporaryDirectory() as folder:
            for made in (record(number, figures) for number in range(cells)):
                path = Path(folder, "records", made["cell"]["id"], "record.json")
                path.parent.mkdir(parents=True)
                path.write_text(json.dumps(made), encoding="utf-8")
            most_s, most_mb, most_look_s = GOALS.get(cells, ("", "", ""))
            seconds, memory = analysed(folder)
            yield Figure(f"analysis of {cells:,} cells", seconds, "s", most_s)
            yield Figure(f"analysis of {cells:,} cells, memory", memory / 1e6, "MB", most_mb)
            names = [path.name for path in Path(folder, "records").iterdir()]
            asked = {"token": "5f0f3c", "words": ["-m"], "cells": names, "terms": EXAMPLE["terms"]}
            manifest = {"schema": EXAMPLE["schema"], "tool": "tfio-campaign", "requests": [asked]}
            Path(folder, "campaign.json").write_text(json.dumps(manifest), encoding="utf-8")
            for which, repeats, goal in (("first status", 1, ""), ("status", 3, most_look_s)):
                seconds = median_s(repeats, ["campaign", "status", folder], folder)
                yield Figure(f"{which} of {cells:,} cells", seconds, "s", goal)


def record(number: int, figures: int) -> dict[str, Any]:
    """Return the record of a cell: its set is its seed, its place in it the storage and the threads."""
    made = copy.deepcopy(EXAMPLE)
    seed, place = divmod(number, OF_A_SET)
    storage, threads = STORAGES[place % len(STORAGES)], THREADS[place // len(STORAGES)]
    made["cell"]["benchmark"] = "micro" if seed < figures else "metadata"
    made["cell"]["settings"] |= {"storage": {"name": storage, "root": f"/{storage}"}, "threads": threads, "seed": seed}
    digest = hashlib.sha256(str(number).encode()).hexdigest()[:10]
    made["cell"]["id"] = f"micro-demo-{storage}-t{threads}-b64-p0-{digest}"
    noise = random.Random(number)  # noqa: S311 - noise, not a secret
    made["runs"] = [run(each, 100 * threads**0.5 * noise.gauss(1, 0.01)) for each in range(RUNS)]
    return made | {"status": "ended"}


def run(number: int, images_per_s: float) -> dict[str, Any]:
    """Return a run of this rate."""
    wall_s = 512 / images_per_s
    figures = {"images_per_s": images_per_s, "read_mb_per_s": images_per_s * 0.112, "wall_s": wall_s}
    figures |= {"load_s": wall_s - 0.01, "elapsed_s": wall_s + 0.01, "run": number}
    role, started = "measured" if number else "warmup", f"2026-11-21T09:00:{number:02}.000Z"
    return {**EXAMPLE["runs"][0], **figures, "role": role, "started_utc": started}


def analysed(folder: str) -> tuple[float, int]:
    """Analyse a folder; returns seconds and peak memory in bytes, its processes' too, read ten times a second."""
    started, most = time.perf_counter(), 0
    process = psutil.Popen([sys.executable, "-m", "analysis", folder, "--quiet"], stdout=subprocess.DEVNULL, env=QUIET)
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):  # one ended meanwhile
            parts = [process, *process.children(recursive=True)]
            most = max(most, sum(each.memory_full_info().pss for each in parts))
        time.sleep(0.1)
    assert process.returncode == 0, "the analysis failed"
    return time.perf_counter() - started, most
