"""A campaign on the lab, as its user gives it, and what the tests ask of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.acceptance import door

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

    @contextlib.contextmanager
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

    def records(self, folder: str = "results") -> list[dict]:
        """Read every record as it lies there."""
        return door.records(self.cwd / folder)

    def runs(self) -> list[dict]:
        """List the runs of all records that have begun."""
        return [run for one in self.records() for run in one["runs"]]

    def measured(self) -> list[dict]:
        """List the measured runs of all records that came to their end."""
        return [run for run in self.runs() if run["role"] == "measured" and run["status"] == "ended"]

    def assert_whole(self, runs: int) -> None:
        """Check that no run is lost and none measured twice; one that a busy machine spoiled may come again or not."""
        judged = [run for one in door.judged(self.cwd / "results") for run in one["runs"] if run["role"] == "measured"]
        valid = sum(run["status"] == "valid" for run in judged)
        spoiled = [run["reason"] for run in judged if run["status"] == "invalid"]
        assert valid <= runs <= valid + len(spoiled), (valid, spoiled)

    def status(self) -> dict[str, tuple[str, str]]:
        """Ask what the cells are: ``{cell: (status, reason)}``."""
        cells = json.loads(self("status", "--json").stdout)["cells"]
        return {name: (cell["status"], str(cell["reason"])) for name, cell in cells.items()}

    def ranks(self, rank: int = 0) -> list[psutil.Process]:
        """List the processes of a rank of the job that is at work, its worker first."""
        job, found = self.job(), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                own = process.environ()
                if (own.get("SLURM_ARRAY_JOB_ID"), own.get("SLURM_PROCID")) == (job, str(rank)):
                    found += [process] * (own.get("SLURM_STEP_ID") == "0" and process.name() != "slurmstepd")
        return found

    def worker(self, rank: int = 0) -> psutil.Process:
        """Find the process of a rank that Slurm itself started."""
        return next(each for each in self.ranks(rank) if each.parent().name() == "slurmstepd")

    def job(self) -> str:
        """Return the id of the last array of the campaign."""
        return self._listed("%F")[-1]

    def _listed(self, form: str) -> list[str]:
        lines = self.lab.run("squeue", "-h", "-r", "--states=all", "-S", "i", "-o", f"{form} %Z").splitlines()
        return [line.split()[0] for line in lines if str(self.cwd) in line]

    def job_states(self) -> list[str]:
        """Ask Slurm for the states of all jobs that ran in this campaign's folder."""
        return self._listed("%T")


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
