"""A campaign on the lab, as its user gives it, and what the tests ask of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.judged import records_of

WORDS = (
    "cluster=slurm", "dataset.files=24", "dataset.median_bytes=3000", "dataset.width=64", "dataset.height=64",
    "dataset.classes=3", "batch_size=8", "threads=1", "cluster.timeout_min=5",
    # Four nodes share two cores here.
    "checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.spread_max=100",
    "checks.time_error_max=0.1", "checks.stolen_max=1000", "checks.delayed_max=1",
    "checks.throttled_max=1000",
)  # fmt: skip
LONG = ("runs=40", "min_valid_runs=1")  # a quarter of a second each: time to meet it half way
_PATIENCE_S = 240


@dataclass
class Campaign:
    """One campaign folder on one lab."""

    lab: object
    cwd: Path

    def __call__(self, *words: str, timeout_s: float = _PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Give a command and wait for its end."""
        return subprocess.run(
            [sys.executable, "-m", "campaign", *words], cwd=self.cwd, env=self.lab.environment, capture_output=True,
            text=True, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False, start_new_session=True,
        )  # fmt: skip

    def go(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Start the campaign, or go on with it, to its end."""
        return self(*WORDS, *words)

    @contextmanager
    def under_way(self, *words: str, runs: int = 0):
        """Start the campaign in the background, up to so many measured runs; in the end its front process is killed."""
        front = subprocess.Popen(
            [sys.executable, "-m", "campaign", *WORDS, *words], cwd=self.cwd, env=self.lab.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            wait(lambda: len(self.measured()) >= runs)
            yield front
        finally:
            front.kill()
            front.wait()
            front.stdout.close()

    def records(self) -> list[dict]:
        """Read every record, with its verdicts."""
        return records_of(self.cwd / "results")

    def measured(self, *statuses: str) -> list[dict]:
        """List the measured runs of all records that came to their end, or those of these statuses."""
        return [
            run
            for one in self.records()
            for run in one["runs"]
            if run["role"] == "measured" and run["status"] in (statuses or ("valid", "invalid"))
        ]

    def assert_whole(self, runs: int) -> None:
        """Check that no run is lost and none measured twice; one that a busy machine spoiled may come again or not."""
        spoiled = [run["reason"] for run in self.measured("invalid")]
        valid = len(self.measured("valid"))
        assert valid <= runs <= valid + len(spoiled), (valid, spoiled)

    def status(self) -> dict[str, tuple[str, str]]:
        """Ask what the cells are: ``{readable name: (status, reason)}``."""
        cells = json.loads(self("status", "--json").stdout)["cells"]
        return {name.rpartition("-")[0]: (cell["status"], str(cell["reason"])) for name, cell in cells.items()}

    def worker(self) -> psutil.Process:
        """Find the worker that is at work."""
        mine = (
            process
            for process in psutil.process_iter(["cmdline"])
            if "campaign.worker" in (process.info["cmdline"] or []) and str(self.cwd) in process.info["cmdline"][-1]
            and "srun" not in process.info["cmdline"][0]
        )  # fmt: skip
        return next(mine)

    def job(self) -> str:
        """Return the id of the only array of the campaign."""
        (batch,) = self.cwd.glob("results/workers/*/batch.json")
        return str(json.loads(batch.read_text())["job_id"])

    def job_states(self) -> list[str]:
        """Ask Slurm for the states of all jobs that ran in this campaign's folder."""
        lines = self.lab.run("squeue", "-h", "-r", "--states=all", "-o", "%T %Z").splitlines()
        return [line.split()[0] for line in lines if str(self.cwd) in line]


def wait(ready, timeout_s: float = _PATIENCE_S) -> None:
    """Wait until something is so."""
    started = time.monotonic()
    while not ready():
        if time.monotonic() - started > timeout_s:
            raise TimeoutError(f"not so after {timeout_s} s: {ready}")
        time.sleep(0.2)


def interrupt(front: subprocess.Popen) -> None:
    """Press Ctrl-C on a terminal of its own."""
    os.killpg(front.pid, signal.SIGINT)
