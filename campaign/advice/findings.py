"""Predict how fast a pipeline would be with other settings, and define the findings of the rules.

The map of the tf.data pipeline reads `threads` images at once, and passes them on in their order. An image needs time
for its calls on the storage, and time on a processor. The bounds follow operational analysis (P. J. Denning and
J. P. Buzen, ACM Computing Surveys 10, 1978): no resource works more than all the time, and no image takes less than
its own time.
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
    """Simulate a storage that finishes images in any order, for a map that needs the images in order.

    Returns the calls per second. `rate_of` gives the calls per second of the storage for a number of calls at once.
    `window` is the number of images that the map requests at once: an image that is read, but waits for an earlier
    image, still occupies a place of the window.
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
    """Return a function that interpolates the measured rates linearly, by the number of calls at once.

    Below the smallest measured number, the rate falls with the square root of the number. That is a compromise between
    a storage that serves one call at a time and a storage that serves all calls at once.
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
    """Return the seconds that a training step waits for its batch.

    The pipeline needs `made_s` for a batch, the step computes for `computed_s`, and the pipeline can prepare `ahead`
    batches during a step.
    """
    return max(0.0, made_s - min(computed_s, ahead * made_s))


def training_wall_s(e: Evidence, made_s: float, *, threads: int, prefetch: int) -> float:
    """Return the predicted runtime in seconds of a training whose pipeline needs `made_s` for a batch."""
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
    """Return the least, the most probable and the largest speedup of the pipeline with this number of threads.

    A storage that is twice as fast for twice the readers answers roughly in the order of the requests. A disk that is
    faster because it chooses the next request does not answer in order. A storage that reaches 3/4 of the full gain
    counts as fully ordered.
    """
    ratio = lowest = highest = threads / e.threads
    if e.cold and e.threads not in e.readers:
        lowest = 1.0  # without a baseline of as many readers, the storage may not be faster at all
    elif e.cold:
        rate = interpolate_rate(e.readers)
        highest = rate(threads) / rate(e.threads)
        lowest = min(highest, rate_in_order(rate, threads) / rate_in_order(rate, e.threads))
    order = min(1.0, max(0.0, 4 * math.log(max(1.0, highest)) / math.log(ratio) - 3))
    speedups = [speedup_of_storage(e, threads, lowest ** (1 - share) * highest**share)
               for share in (order / 2, order, (1 + order) / 2)]  # fmt: skip
    return speedups[0][0], math.sqrt(speedups[1][0] * speedups[1][1]), speedups[2][1]


def speedup_of_storage(e: Evidence, threads: int, storage: float) -> tuple[float, float]:
    """Return the least and the largest speedup of the pipeline if the storage is `storage` times as fast.

    The speedup is least if no call overlaps with processor work for another image. It is largest if all calls overlap
    with such work, and if other programs use no processor. Then processor work delays its own image only if images are
    decoded.
    """
    image_s, cpu_s = seconds_per_batch(e) / e.batch, e["cpu_s"] / e["images"]
    calls_s = max(0.0, e.threads * image_s - cpu_s) / e.threads / storage
    busy_s, own_s = cpu_s / e.work.free_cores, cpu_s / threads
    least_s = calls_s + (own_s if e.settings.get("benchmark.preprocess", True) else 0.0)
    return image_s / max(busy_s + calls_s, own_s + calls_s), image_s / max(cpu_s / e.work.allowed, least_s)


VERSION = 6
"""The version of the rules. It is raised when a rule predicts differently, because older predictions then say nothing
about the new rule."""

_NOISE = 0.04  # the runs of a stable cell differ by up to this share (checks.spread_max)
SIZE_FACTOR = 4  # the files of a test are so many times as large


class Prediction(NamedTuple):
    """A predicted metric of the cell that tests a rule, and the interval in which the measured value must lie."""

    figure: str
    unit: str
    value: float
    low: float
    high: float


class PredictionTest(NamedTuple):
    """The settings that a test changes, by dotted keys, and the predicted result of the test."""

    changes: Mapping[str, Any]
    prediction: Prediction


@dataclass(frozen=True)
class Finding:
    """The result of a rule that holds for a cell."""

    rule: str
    says: str  # one sentence for the user
    share: float  # share of the run time that the finding explains
    facts: Sequence[Fact]
    test: PredictionTest | None
    untested: str = ""  # why there is no test, or why the user must run the test


@dataclass(frozen=True)
class Undecided:
    """A rule that cannot be decided, and the changed settings with which a cell would decide the rule."""

    rule: str
    why: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def predict_speedup(e: Evidence, changes: Mapping[str, Any], gains: tuple[float, float, float]) -> PredictionTest:
    """Return a test that predicts images/s or the runtime of a faster pipeline.

    `gains` are the least, the most probable and the largest speedup of the pipeline.
    """
    if e.kind != "training":
        rate = e["images_per_s"]
        return PredictionTest(
            changes, widen_by_noise(e, "images_per_s", "images/s", tuple(rate * gain for gain in gains))
        )
    threads, made_s = int(changes.get("threads", e.threads)), seconds_per_batch(e)
    walls = [training_wall_s(e, made_s / gain, threads=threads, prefetch=e.settings["prefetch"]) for gain in gains]
    return PredictionTest(changes, widen_by_noise(e, "wall_s", "s", (walls[2], walls[1], walls[0])))


def widen_by_noise(e: Evidence, figure: str, unit: str, bounds: Sequence[float]) -> Prediction:
    """Return a prediction with an interval that also allows for the spread of the cell's runs.

    `bounds` are the lower limit, the predicted value and the upper limit.
    """
    low, value, high = bounds
    median = e[figure] or 1.0
    ratios = [rate / median for rate in e.rates.get(figure, ())]
    return Prediction(figure, unit, value, low * min([1 - _NOISE, *ratios]), high * max([1 + _NOISE, *ratios]))


def predict_larger_files(e: Evidence, gains: Sequence[float]) -> tuple[PredictionTest | None, str]:
    """Return a test with files that are `SIZE_FACTOR` times as large, and an empty string.

    If such a test is not possible, return None and the reason.
    """
    size = e.settings.get("dataset.median_bytes")
    if size is None:
        return None, "no setting makes the files of this dataset larger: pack several files into one yourself"
    if e.settings.get("benchmark.preprocess", True):
        return None, "larger files also take longer to decode: measure a cell with benchmark.preprocess=false"
    bounds = [e["read_mb_per_s"] * min(float(SIZE_FACTOR), gain) for gain in gains]
    pixels = {name: 2 * int(e.settings[name]) for name in ("dataset.width", "dataset.height") if name in e.settings}
    return PredictionTest(
        {"dataset.median_bytes": SIZE_FACTOR * int(size), **pixels}, widen_by_noise(e, "read_mb_per_s", "MB/s", bounds)
    ), ""
