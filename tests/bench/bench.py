"""What the benches share: figures, the requests that a campaign's worker would make, processes that are measured."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
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
    """One line of a bench's answer; `goal`: at most N, at least N, within N % of N."""

    what: str
    value: float
    unit: str
    goal: str = ""

    @property
    def measured(self) -> str:
        """The value as it is shown."""
        return f"{self.value:,.{0 if abs(self.value) >= 100 else 2}f}"

    @property
    def outcome(self) -> str:
        """Whether the value reaches the goal: met, missed, or empty without a goal."""
        if not self.goal:
            return ""
        first, *_, last = [float(number) for number in re.findall(r"[\d.]+", self.goal.replace(",", ""))] * 2
        if self.goal.startswith("within"):
            return "met" if abs(self.value / last - 1) <= first / 100 else "missed"
        reached = self.value <= last if self.goal.startswith("at most") else self.value >= last
        return "met" if reached else "missed"


def request(*words: str) -> dict[str, Any]:
    """Return the request for a run, as the worker of a campaign makes it; its data is made under ``./data``."""
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


def median_s(repeats: int, words: Sequence[str], folder: str) -> float:
    """Run ``python -m WORDS`` so many times in a folder; the median of the seconds."""

    def seconds() -> float:
        started = time.perf_counter()
        said([sys.executable, "-m", *words], cwd=folder)
        return time.perf_counter() - started

    return statistics.median(seconds() for _ in range(repeats))


def said(words: Sequence[str], given: str = "", cwd: str | None = None, more: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it prints; one that fails ends the bench with its own words."""
    env = QUIET | dict(more or {})
    done = subprocess.run(words, cwd=cwd, env=env, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout
