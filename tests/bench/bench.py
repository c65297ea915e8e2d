"""What the benches share: figures, the requests that a campaign's worker would make, processes that are measured."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from campaign import console
from campaign.cells import cell_plan
from campaign.cells.folder import opened
from campaign.config.collect import collect
from campaign.config.points import cells_of
from campaign.storage.datasets import datasets
from campaign.worker.__main__ import Worker
from campaign.worker.work_list import Request
from jobs.system.clock import utc_now
from tests.campaign.fake_template import FakeTemplate

ROOT = Path(__file__).parents[2]
QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}


class Figure(NamedTuple):
    """One line of a bench's answer; `goal` is in words."""

    what: str
    value: float
    unit: str
    goal: str = ""

    def __str__(self) -> str:
        return f"{self.value:,.{0 if abs(self.value) >= 100 else 2}f} {self.unit}".strip()


def request(*words: str) -> dict[str, Any]:
    """Return the request for a run, as the worker of a campaign with these words makes it.

    The data is made under ``./data`` where it is not there yet; the campaign's folder is gone when this returns.
    """
    with tempfile.TemporaryDirectory() as place:
        cells, conduct = cells_of(collect(["-m", f"campaign_dir={place}/results", *words]) or ())
        folder = opened(Path(place, "results"))[0]
        entries = cell_plan.make(cells, conduct, folder).to_do
        with console.progress() as progress:
            data = datasets(entries, folder, progress, redo=False)
        template = FakeTemplate()
        asked = Request(folder, conduct, "bench", utc_now(), words)
        Worker(folder, asked.work_list("local", entries, data), template).walk()
    return {**template.asked[0][0], "trace": None}


class Process(NamedTuple):
    """What a process took, the largest memory of it and its children among it."""

    cpu_s: float
    wall_s: float
    memory_mb: float


def median_process(repeats: int, words: Sequence[str], folder: str) -> Process:
    """Run ``python -m WORDS`` so many times in a folder; medians of its times, and the largest memory."""
    runs = [_process(words, folder) for _ in range(repeats)]
    cpu_s, wall_s = (statistics.median(run[kind] for run in runs) for kind in (0, 1))
    return Process(cpu_s, wall_s, max(run.memory_mb for run in runs))


def _process(words: Sequence[str], folder: str) -> Process:
    """Let `time` of this interpreter wait for it: the kernel counts its children then, and those alone."""
    script = (
        "import json, resource, subprocess, sys, time\n"
        "began = time.perf_counter()\n"
        "done = subprocess.run([sys.executable, '-m', *sys.argv[1:]], stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "wall = time.perf_counter() - began\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024 / 1e6]))\n"
        "sys.exit(done.returncode)\n"
    )
    return Process(*json.loads(said([sys.executable, "-c", script, *words], cwd=folder)))


def of_children_cpu_s() -> float:
    """Return the CPU seconds of all processes that this one has started and waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def said(words: Sequence[str], given: str = "", cwd: str | None = None) -> str:
    """Run a program and return what it prints; one that fails ends the bench with its own words."""
    done = subprocess.run(words, cwd=cwd, env=QUIET, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout
