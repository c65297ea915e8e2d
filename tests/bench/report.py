"""How long the analysis of a large campaign takes, and `status` of it: synthetic records with 6 runs each.

A set of settings has 32 cells, 4 storages with 8 numbers of threads. So many sets are of the micro-benchmark and give a
figure each; the others are of a benchmark that has no figure of its own, because drawing takes long. Then two
campaigns of the micro-benchmark alone, of which the larger has ten times as many cells, each of a set of its own.
Measured are seconds and peak memory of `python -m analysis` with the processes beside it, and the page's size; of
`python -m campaign status`, the first look, which reads all records, and the median of `looks` later ones.
"""

from __future__ import annotations

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

import psutil

from campaign.cells.folder import TOOL
from jobs.model.record import SCHEMA
from tests.bench.bench import QUIET, Figure, median_process, of_children_cpu_s

SIZES = {
    "smoke": {"cells": 8, "many": 0, "figures": 1, "sets": 0, "looks": 1},
    "full": {"cells": 10_000, "many": 100_000, "figures": 8, "sets": 2000, "looks": 3},
}
GOALS = {10_000: ("at most 6", "at most 300"), 100_000: ("at most 60", "at most 1,000")}
"""By cells, those of seconds and of MB."""
EXAMPLE = json.loads((Path(__file__).parents[1] / "acceptance" / "stored" / "record.json").read_text(encoding="utf-8"))
STORAGES, THREADS = ("hdd", "ssd", "optane", "lustre"), (1, 2, 4, 8, 12, 16, 24, 32)
OF_A_SET, RUNS = len(STORAGES) * len(THREADS), 6


def measure(cells: int, many: int, figures: int, sets: int, looks: int) -> Iterator[Figure]:
    """Make the records, then analyse them."""
    for count in filter(None, (cells, many)):
        yield from _of_cells(count, figures, looks)
    for count in (sets // 10, sets) if sets else ():
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(count):
                write(Path(folder), record(seed * OF_A_SET, sets))
            yield Figure(f"analysis of {count:,} sets of one cell", analysed(folder)[0], "s")


def _of_cells(cells: int, figures: int, looks: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(cells):
            write(Path(folder), record(number, figures))
        seconds, cpu, memory = analysed(folder)
        what, (most_s, most_mb) = f"analysis of {cells:,} cells", GOALS.get(cells, ("", ""))
        yield Figure(what, seconds, "s", most_s)
        yield Figure(f"{what}, processors", cpu, "CPU s")
        yield Figure(f"{what}, memory", memory / 1e6, "MB", most_mb)
        yield Figure(f"{what}, figures drawn", len(list(Path(folder, "figures").glob("*.pdf"))), "")
        yield Figure(f"{what}, report.html", (Path(folder) / "report.html").stat().st_size / 1e6, "MB")
        yield from _status(Path(folder), cells, looks)


def _status(folder: Path, cells: int, looks: int) -> Iterator[Figure]:
    """Look at a folder of so many done cells, once and then `looks` times, as the campaign that asked for them."""
    names = sorted(path.name for path in (folder / "records").iterdir())
    request = {"token": "5f0f3c", "words": ["-m"], "cells": names, "terms": EXAMPLE["terms"]}
    manifest = {"schema": SCHEMA, "tool": TOOL, "requests": [request]}
    (folder / "campaign.json").write_text(json.dumps(manifest), encoding="utf-8")
    for which, repeats, goal in (
        ("first status", 1, ""),
        ("status", looks, "at most 1" if cells == min(GOALS) else ""),
    ):
        took = median_process(repeats, ["campaign", "status", str(folder)], str(folder))
        yield Figure(f"{which} of {cells:,} cells", took.wall_s, "s", goal)
        yield Figure(f"{which} of {cells:,} cells, processors", took.cpu_s, "CPU s")


def record(number: int, figures: int) -> dict[str, object]:
    """Return the record of a cell: its set is its seed, its place in it the storage and the threads."""
    made = copy.deepcopy(EXAMPLE)
    seed, place = divmod(number, OF_A_SET)
    storage, threads = STORAGES[place % len(STORAGES)], THREADS[place // len(STORAGES)]
    made["cell"]["benchmark"] = "micro" if seed < figures else "metadata"
    made["cell"]["settings"] |= {"storage": {"name": storage, "root": f"/{storage}"}, "threads": threads, "seed": seed}
    digest = hashlib.sha256(str(number).encode()).hexdigest()[:10]
    made["cell"]["id"] = f"micro-demo-{storage}-t{threads}-b64-p0-{digest}"
    noise = random.Random(number)  # noqa: S311 - noise, not a secret
    rates = [100 * threads**0.5 * noise.gauss(1, 0.01) for _ in range(RUNS)]
    made["runs"] = [run(each, rate) for each, rate in enumerate(rates)]
    return made | {"status": "ended"}


def run(number: int, images_per_s: float) -> dict[str, object]:
    """Return a run of this rate."""
    wall_s = 512 / images_per_s
    figures = {"images_per_s": images_per_s, "read_mb_per_s": images_per_s * 0.112, "wall_s": wall_s}
    figures |= {"load_s": wall_s - 0.01, "elapsed_s": wall_s + 0.01}
    role = "measured" if number else "warmup"
    started = f"2026-11-21T09:00:{number:02}.000Z"
    return {**EXAMPLE["runs"][0], **figures, "run": number, "role": role, "started_utc": started}


def write(folder: Path, made: dict[str, object]) -> None:
    """Write a record where a campaign would."""
    path = folder / "records" / str(made["cell"]["id"]) / "record.json"  # type: ignore[index]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(made), encoding="utf-8")


def analysed(folder: str) -> tuple[float, float, int]:
    """Analyse a folder; returns seconds, CPU seconds and peak memory in bytes, which is read ten times a second."""
    started, used, most = time.perf_counter(), of_children_cpu_s(), 0
    command = [sys.executable, "-m", "analysis", folder, "--quiet"]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, env=QUIET)
    while process.poll() is None:
        most = max(most, sum(map(_resident, [process, *process.children(recursive=True)])))
        time.sleep(0.1)
    assert process.returncode == 0, "the analysis failed"
    return time.perf_counter() - started, of_children_cpu_s() - used, most


def _resident(process: psutil.Process) -> int:
    """Return the bytes of a process in memory, of those that it shares with others its part."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it ended meanwhile
        return 0
