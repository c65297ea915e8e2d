"""Predict how fast a pipeline would be with other settings, and define the findings of the rules.

The map keeps `threads` images under way and hands them on in their order. An image needs its calls on the storage and
its time on a processor. The bounds are those of operational analysis (P. J. Denning and J. P. Buzen, ACM Computing
Surveys 10, 1978): no resource does more than it can, and no image takes less than its own time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from campaign.advice.evidence import Evidence, Fact

_DRAWS, _SEED = 4_000, 0


def rate_in_order(rate_of: Callable[[int], float], window: int) -> float:
    """Return the calls per second of a storage that finishes images in any order, for a map that needs them in order.

    `rate_of`: the calls per second by the number of calls under way; `window`: the images that the map has requested.
    An image that is read and waits for the first one blocks a place of the window.
    """
    rng, is_read, elapsed_s = random.Random(_SEED), [False] * window, 0.0  # noqa: S311 - no secret
    for _ in range(_DRAWS):
        under_way = [index for index, read in enumerate(is_read) if not read]
        elapsed_s += 1 / rate_of(len(under_way))
        is_read[rng.choice(under_way)] = True
        while is_read[0]:
            is_read = [*is_read[1:], False]
    return _DRAWS / elapsed_s


def interpolate_rate(readers: Mapping[int, float]) -> Callable[[int], float]:
    """Return a function that interpolates the known rates linearly, by the number of calls under way.

    Below the smallest known number the rate falls with the square root of the number: between a storage that serves one
    call at a time and a storage that serves all calls at once.
    """
    points = sorted(readers.items())

    def rate(count: int) -> float:
        first, last = points[0], points[-1]
        if count <= first[0]:
            return first[1] * math.sqrt(count / first[0])
        for (fewer, low), (more, high) in pairwise(points):
            if count <= more:
                return low + (high - low) * (count - fewer) / (more - fewer)
        return last[1]

    return rate


def seconds_per_batch(e: Evidence) -> float:
    """Return the seconds that the pipeline needs for a batch if it never waits for the training."""
    if e.kind == "training":
        return e.steps.batch_s(e.threads)
    return e["load_s"] / max(1.0, e["images"] / e.batch)


def wait_for_batch_s(made_s: float, computed_s: float, ahead: float) -> float:
    """Return the seconds that a step waits for a batch that takes `made_s`; `ahead` batches are made during a step."""
    return max(0.0, made_s - min(computed_s, ahead * made_s))


def training_wall_s(e: Evidence, made_s: float, *, threads: int, prefetch: int) -> float:
    """Return the runtime in seconds of a training whose batches take `made_s`."""
    waited_s, computed_s = e.steps.each_s
    ahead = 1.0 if prefetch else min(1.0, threads / e.batch)
    first_s = e.steps.first_s * made_s / (seconds_per_batch(e) or 1.0)
    return (
        e["wall_s"]
        + first_s
        - e.steps.first_s
        + (e.steps.number - 1) * (wait_for_batch_s(made_s, computed_s, ahead) - waited_s)
    )


def speedup_with_threads(e: Evidence, threads: int) -> tuple[float, float, float]:
    """Return the speedup of the pipeline with this number of threads: at least, probably and at most.

    A storage that is twice as fast for twice the readers answers about in the order of the requests. A storage that is
    faster because it chooses the next request (a disk) does not. From 3/4 of the full gain on, the storage counts as
    fully ordered.
    """
    ratio = lowest = highest = threads / e.threads
    if e.cold and e.threads not in e.readers:
        lowest = 1.0  # not known
    elif e.cold:
        rate = interpolate_rate(e.readers)
        highest = rate(threads) / rate(e.threads)
        lowest = min(highest, rate_in_order(rate, threads) / rate_in_order(rate, e.threads))
    order = min(1.0, max(0.0, 4 * math.log(max(1.0, highest)) / math.log(ratio) - 3))
    speedups = [speedup_of_storage(e, threads, lowest ** (1 - share) * highest**share)
               for share in (order / 2, order, (1 + order) / 2)]  # fmt: skip
    return speedups[0][0], math.sqrt(speedups[1][0] * speedups[1][1]), speedups[2][1]


def speedup_of_storage(e: Evidence, threads: int, storage: float) -> tuple[float, float]:
    """Return the least and the most speedup of the pipeline if the storage is `storage` times as fast.

    At least: no call overlaps with the processors' work for another image. At most: all calls do, other programs leave
    all processors to the run, and work on a processor delays its own image only if images are decoded.
    """
    image_s, cpu_s = seconds_per_batch(e) / e.batch, e["cpu_s"] / e["images"]
    calls_s = max(0.0, e.threads * image_s - cpu_s) / e.threads / storage
    busy_s, own_s = cpu_s / e.work.free_cores, cpu_s / threads
    least_s = calls_s + (own_s if e.settings.get("benchmark.preprocess", True) else 0.0)
    return image_s / max(busy_s + calls_s, own_s + calls_s), image_s / max(cpu_s / e.work.allowed, least_s)


VERSION = 6
"""The version of the rules, raised when a rule predicts differently: older predictions do not test it."""

_NOISE = 0.04  # least difference between runs of a stable cell (checks.spread_max)
SIZE_FACTOR = 4  # by which the files of a test are larger


class Prediction(NamedTuple):
    """A predicted metric of the cell that tests a rule, and the interval in which it must be."""

    figure: str
    unit: str
    value: float
    low: float
    high: float


class Test(NamedTuple):
    """The settings that a test changes, by dotted keys, and the prediction for it."""

    changes: Mapping[str, Any]
    prediction: Prediction


@dataclass(frozen=True)
class Finding:
    """A rule that holds."""

    rule: str
    says: str
    share: float  # share of the run's time that it explains
    facts: Sequence[Fact]
    test: Test | None
    untested: str = ""  # why there is no test, or why the test must be done by hand


@dataclass(frozen=True)
class Undecided:
    """A rule that cannot be decided, and the settings of the cells that would decide it."""

    rule: str
    why: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def predict_speedup(e: Evidence, changes: Mapping[str, Any], gains: tuple[float, float, float]) -> Test:
    """Return a test that predicts the figure of merit of a faster pipeline; `gains`: at least, probably, at most."""
    if e.kind != "training":
        rate = e["images_per_s"]
        return Test(changes, widen_by_noise(e, "images_per_s", "images/s", tuple(rate * gain for gain in gains)))
    threads, made_s = int(changes.get("threads", e.threads)), seconds_per_batch(e)
    walls = [training_wall_s(e, made_s / gain, threads=threads, prefetch=e.settings["prefetch"]) for gain in gains]
    return Test(changes, widen_by_noise(e, "wall_s", "s", (walls[2], walls[1], walls[0])))


def widen_by_noise(e: Evidence, figure: str, unit: str, bounds: Sequence[float]) -> Prediction:
    """Return a prediction whose interval is widened by the spread of the cell's runs; `bounds`: low, value, high."""
    low, value, high = bounds
    median = e[figure] or 1.0
    ratios = [rate / median for rate in e.rates.get(figure, ())]
    return Prediction(figure, unit, value, low * min([1 - _NOISE, *ratios]), high * max([1 + _NOISE, *ratios]))


def predict_larger_files(e: Evidence, gains: Sequence[float]) -> tuple[Test | None, str]:
    """Return a test with files that are `SIZE_FACTOR` times as large, and ""; or None and why there is no test."""
    size = e.settings.get("dataset.median_bytes")
    if size is None:
        return None, "no key of this dataset makes its files larger: pack the files yourself"
    if e.settings.get("benchmark.preprocess", True):
        return None, "larger files take longer to decode: try it with benchmark.preprocess=false"
    bounds = [e["read_mb_per_s"] * min(float(SIZE_FACTOR), gain) for gain in gains]
    pixels = {name: 2 * int(e.settings[name]) for name in ("dataset.width", "dataset.height") if name in e.settings}
    return Test(
        {"dataset.median_bytes": SIZE_FACTOR * int(size), **pixels}, widen_by_noise(e, "read_mb_per_s", "MB/s", bounds)
    ), ""
