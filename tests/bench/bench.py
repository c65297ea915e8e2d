"""What the benches share: figures, the requests that a campaign's worker would make, processes that are measured."""

from __future__ import annotations

import json
import os
import re
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
from campaign.cells.folder import open_or_create
from campaign.config.collect import collect_points, make_cells
from campaign.storage.datasets import prepare_datasets
from campaign.worker.__main__ import Worker
from campaign.worker.batch import CampaignCall
from jobs.system.clock import utc_now
from tests.campaign.fake_template import FakeTemplate

ROOT = Path(__file__).parents[2]
QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}


class Figure(NamedTuple):
    """One line of a bench's answer; `goal`: at most N, below N, at least N, within N % of N, N to N."""

    what: str
    value: float
    unit: str
    goal: str = ""

    @property
    def number(self) -> str:
        """The value as it is shown."""
        return f"{self.value:,.{0 if abs(self.value) >= 100 else 2}f}"

    @property
    def outcome(self) -> str:
        """Whether the value reaches the goal: met, missed, or empty without a goal."""
        if not self.goal:
            return ""
        numbers = [float(number) for number in re.findall(r"[\d.]+", self.goal.replace(",", ""))]
        at, last = numbers[0], numbers[-1]
        reached = {
            "at most": self.value <= at,
            "below": self.value < at,
            "at least": self.value >= at,
            "within": last * (1 - at / 100) <= self.value <= last * (1 + at / 100),
        }
        kind = next((kind for kind in reached if self.goal.startswith(kind)), "")
        return "met" if reached.get(kind, at <= self.value <= last) else "missed"

    def __str__(self) -> str:
        return f"{self.number} {self.unit}".strip()


def request(*words: str) -> dict[str, Any]:
    """Return the request for a run, as the worker of a campaign with these words makes it.

    The data is made under ``./data`` where it is not there yet; the campaign's folder is gone when this returns.
    """
    with tempfile.TemporaryDirectory() as place:
        cells, conduct = make_cells(collect_points(["-m", f"campaign_dir={place}/results", *words]) or ())
        folder = open_or_create(Path(place, "results"))[0]
        entries = cell_plan.make_plan(cells, conduct, folder).to_do
        with console.progress() as progress:
            data = prepare_datasets(entries, folder, progress, redo=False)
        template = FakeTemplate()
        asked = CampaignCall(folder, conduct, "bench", utc_now(), words)
        Worker(folder, asked.work_list("local", entries, data), template).run_all()
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
