"""What the benchmarks share: the demo dataset, a request for a run on it, medians."""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobs.benchmarks import micro
from jobs.checks import Limits
from jobs.data import make
from jobs.data.images import ImageSpec

DEMO = ImageSpec(files=512, median_bytes=112_000, sigma=0.4, width=482, height=415, classes=16, seed=0)


def options(about: str | None, **defaults: int) -> argparse.Namespace:
    """Parse a command line of integers."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def demo() -> Path:
    """Make the `demo` dataset under ./data, as a campaign would; return its folder."""
    folder = Path("data/datasets", make.dataset_id("demo", DEMO)).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    make.make(folder, DEMO, name="demo", processes=len(os.sched_getaffinity(0)))
    return folder


def request(folder: Path, **changed: Any) -> dict[str, Any]:
    """Ask for a run of `micro` with four threads."""
    settings = {**micro.DEFAULTS, **changed}
    return {"settings": settings, "dataset": str(folder), "manifest": str(folder), "limits": asdict(Limits())}


def medians(*samples: list[float]) -> list[float]:
    """Return the median of each sample."""
    return [statistics.median(sample) for sample in samples]
