"""Predict how fast a pipeline would be with other settings, and word what a rule finds.

The map keeps `threads` images under way and hands them on in their order. An image takes its calls on the storage and
its time on a processor. Bounds are those of operational analysis (P. J. Denning and J. P. Buzen, ACM Computing Surveys
10, 1978): no resource gives more than it has, and no image takes less than its own time.
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
    """Return the calls per second for a map that needs the first image, of a storage that finishes any image next.

    `rate_of`: calls a second with so many of them under way. Of `window` images those that are read and wait for the
    first one keep others from being asked for.
    """
    rng, done, elapsed_s = random.Random(_SEED), [False] * window, 0.0  # noqa: S311 - no secret
    for _ in range(_DRAWS):
        under_way = [place for place, is_done in enumerate(done) if not is_done]
        elapsed_s += 1 / rate_of(len(under_way))
        done[rng.choice(under_way)] = True
        while done[0]:
            done = [*done[1:], False]
    return _DRAWS / elapsed_s


def interpolate_rate(readers: Mapping[int, float]) -> Callable[[int], float]:
    """Return a function of the number of calls under way: the rate, on a line between the known rates.

    Below the least known it lies between that of a storage that serves one call at a time and that of one that serves
    any number.
    """
    points = sorted(readers.items())

    def rate(count: int) -> float:
        least, most = points[0], points[-1]
        if count <= least[0]:
            return least[1] * math.sqrt(count / least[0])
        for (fewer, low), (more, high) in pairwise(points):
            if count <= more:
                return low + (high - low) * (count - fewer) / (more - fewer)
        return most[1]

    return rate


def seconds_per_batch(e: Evidence) -> float:
    """Return the seconds that the pipeline takes for a batch if nothing holds it back."""
    if e.kind == "training":
        return e.steps.batch_s(e.threads)
    return e["load_s"] / max(1.0, e["images"] / e.batch)


def wait_for_batch_s(made_s: float, computed_s: float, ahead: float) -> float:
    """Return how long a step waits for a batch that takes `made_s`, if `ahead` batches are made meanwhile."""
    return max(0.0, made_s - min(computed_s, ahead * made_s))


def training_wall_s(e: Evidence, made_s: float, *, threads: int, prefetch: int) -> float:
    """Return the runtime in seconds of a training whose batches take `made_s`."""
    waited, computed = e.steps.each_s
    ahead = 1.0 if prefetch else min(1.0, threads / e.batch)
    first = e.steps.first_s * made_s / (seconds_per_batch(e) or 1.0)
    return (
        e["wall_s"]
        + first
        - e.steps.first_s
        + (e.steps.number - 1) * (wait_for_batch_s(made_s, computed, ahead) - waited)
    )


def speedup_with_threads(e: Evidence, threads: int) -> tuple[float, float, float]:
    """Return how many times as fast the pipeline is with so many threads: at least, probably and at most.

    A storage that serves twice the readers twice as fast answers in about the order in which it was asked; one that
    gains by choosing whom it serves next (a disk) does not. A gain counts as the former's from 3/4 of the way to it.
    """
    times = lowest = highest = threads / e.threads
    if e.cold and e.threads not in e.readers:
        lowest = 1.0  # not known
    elif e.cold:
        rate = interpolate_rate(e.readers)
        highest = rate(threads) / rate(e.threads)
        lowest = min(highest, rate_in_order(rate, threads) / rate_in_order(rate, e.threads))
    ordered = min(1.0, max(0.0, 4 * math.log(max(1.0, highest)) / math.log(times) - 3))
    between = [speedup_of_storage(e, threads, lowest ** (1 - share) * highest**share)
               for share in (ordered / 2, ordered, (1 + ordered) / 2)]  # fmt: skip
    return between[0][0], math.sqrt(between[1][0] * between[1][1]), between[2][1]


def speedup_of_storage(e: Evidence, threads: int, storage: float) -> tuple[float, float]:
    """Return the least and the most speedup of the pipeline if the storage is `storage` times as fast.

    At least: no call passes while a processor works for another image. At most: all do, others leave the processors to
    the run, and what these do is of the image itself only where they decode it.
    """
    image_s, cpu_s = seconds_per_batch(e) / e.batch, e["cpu_s"] / e["images"]
    calls_s = max(0.0, e.threads * image_s - cpu_s) / e.threads / storage
    busy_s, own_s = cpu_s / e.work.free_cores, cpu_s / threads
    least_s = calls_s + (own_s if e.settings.get("benchmark.preprocess", True) else 0.0)
    return image_s / max(busy_s + calls_s, own_s + calls_s), image_s / max(cpu_s / e.work.allowed, least_s)


VERSION = 6
"""Raised when a rule predicts otherwise: what was predicted before says nothing of it."""

_NOISE = 0.04  # by which runs of a stable cell differ (checks.spread_max), at least
SIZE_FACTOR = 4  # times as large files


class Prediction(NamedTuple):
    """A metric of the cell that tests a rule, and the interval that it must fall into."""

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
    share: float  # of the run's time: how much this explains
    facts: Sequence[Fact]
    test: Test | None
    untested: str = ""  # why there is none, or why it must be made by hand


@dataclass(frozen=True)
class Undecided:
    """A rule that cannot be decided, and the settings of the cells that would decide it."""

    rule: str
    why: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def predict_speedup(e: Evidence, changes: Mapping[str, Any], gains: tuple[float, float, float]) -> Test:
    """Return a test that predicts the figure of merit of a pipeline that is faster: at least, probably, at most."""
    if e.kind != "training":
        now = e["images_per_s"]
        return Test(changes, widen_by_noise(e, "images_per_s", "images/s", tuple(now * gain for gain in gains)))
    threads, made_s = int(changes.get("threads", e.threads)), seconds_per_batch(e)
    walls = [training_wall_s(e, made_s / gain, threads=threads, prefetch=e.settings["prefetch"]) for gain in gains]
    return Test(changes, widen_by_noise(e, "wall_s", "s", (walls[2], walls[1], walls[0])))


def widen_by_noise(e: Evidence, figure: str, unit: str, bounds: Sequence[float]) -> Prediction:
    """Return a prediction, its interval widened by the noise of the cell's runs and of any stable cell."""
    low, value, high = bounds
    rates, middle = e.rates.get(figure, ()), e[figure] or 1.0
    below = min([1 - _NOISE, *(each / middle for each in rates)])
    above = max([1 + _NOISE, *(each / middle for each in rates)])
    return Prediction(figure, unit, value, low * below, high * above)


def predict_larger_files(e: Evidence, gains: Sequence[float]) -> tuple[Test | None, str]:
    """Return a test with files that are `SIZE_FACTOR` times as large; None and why if it cannot be made."""
    size = e.settings.get("dataset.median_bytes")
    if size is None:
        return None, "fewer, larger files are no key of this dataset: pack it"
    if e.settings.get("benchmark.preprocess", True):
        return None, "files are decoded, and larger ones take longer: try it with benchmark.preprocess=false"
    bounds = [e["read_mb_per_s"] * min(float(SIZE_FACTOR), gain) for gain in gains]
    pixels = {name: 2 * int(e.settings[name]) for name in ("dataset.width", "dataset.height") if name in e.settings}
    return Test(
        {"dataset.median_bytes": SIZE_FACTOR * int(size), **pixels}, widen_by_noise(e, "read_mb_per_s", "MB/s", bounds)
    ), ""
