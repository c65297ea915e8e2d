"""What a rule answers, and the figures that it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from campaign.advice import pipeline
from campaign.advice.evidence import Evidence, Fact

VERSION = 6
"""Raised when a rule predicts otherwise: what was predicted before says nothing of it."""

_NOISE = 0.04  # by which runs of a stable cell differ (checks.spread_max), at least
MORE = 4  # times as large files


class Prediction(NamedTuple):
    """A figure of the cell that tests a rule, and the interval that it must fall into."""

    figure: str
    unit: str
    value: float
    low: float
    high: float


class Test(NamedTuple):
    """Settings that are changed for it, by dotted keys, and what is expected of it."""

    changes: Mapping[str, Any]
    prediction: Prediction


@dataclass(frozen=True)
class Finding:
    """A rule that holds."""

    rule: str
    says: str
    share: float  # of the run's time: how much this explains
    facts: Sequence[Fact]
    test: Test | None
    untested: str = ""  # why there is none, or why it must be made by hand


@dataclass(frozen=True)
class Lacking:
    """A rule that cannot be decided, and the settings of the cells that would decide it."""

    rule: str
    why: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def test_of(e: Evidence, changes: Mapping[str, Any], gains: tuple[float, float, float]) -> Test:
    """Predict the figure of merit of a pipeline that is so many times as fast: at least, probably, at most."""
    if e.kind != "training":
        now = e["images_per_s"]
        return Test(changes, noisy(e, "images_per_s", "images/s", tuple(now * gain for gain in gains)))
    threads, made_s = int(changes.get("threads", e.threads)), pipeline.batch_s(e)
    walls = [pipeline.wall_s(e, made_s / gain, threads=threads, prefetch=e.settings["prefetch"]) for gain in gains]
    return Test(changes, noisy(e, "wall_s", "s", (walls[2], walls[1], walls[0])))


def noisy(e: Evidence, figure: str, unit: str, bounds: Sequence[float]) -> Prediction:
    """Widen an interval by what runs differ from their median: those of the cell, and those of any stable one."""
    low, value, high = bounds
    rates, middle = e.rates.get(figure, ()), e[figure] or 1.0
    below = min([1 - _NOISE, *(each / middle for each in rates)])
    above = max([1 + _NOISE, *(each / middle for each in rates)])
    return Prediction(figure, unit, value, low * below, high * above)


def larger_files(e: Evidence, gains: Sequence[float]) -> tuple[Test | None, str]:
    """Predict files that are `MORE` times as large, by gains in MB/s, where they can be made and are not decoded."""
    size = e.settings.get("dataset.median_bytes")
    if size is None:
        return None, "fewer, larger files are no key of this dataset: pack it"
    if e.settings.get("benchmark.preprocess", True):
        return None, "files are decoded, and larger ones take longer: try it with benchmark.preprocess=false"
    bounds = [e["read_mb_per_s"] * min(float(MORE), gain) for gain in gains]
    pixels = {name: 2 * int(e.settings[name]) for name in ("dataset.width", "dataset.height") if name in e.settings}
    return Test({"dataset.median_bytes": MORE * int(size), **pixels}, noisy(e, "read_mb_per_s", "MB/s", bounds)), ""
