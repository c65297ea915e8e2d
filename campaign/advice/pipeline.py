"""How fast a pipeline would be with other settings: bounds that follow from what was measured of it.

The map keeps `threads` images under way and hands them on in their order. An image takes its calls on the storage and
its time on a processor. Bounds are those of operational analysis (P. J. Denning and J. P. Buzen, ACM Computing Surveys
10, 1978): no resource gives more than it has, and no image takes less than its own time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from itertools import pairwise

from campaign.advice.evidence import Evidence

_DRAWS, _SEED = 4_000, 0


def in_order(rate_of: Callable[[int], float], window: int) -> float:
    """Return the calls a second of a storage that finishes any of those under way next, for a map that wants the first.

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


def rate_of(readers: Mapping[int, float]) -> Callable[[int], float]:
    """Return a function: the rate with so many calls under way, between those known by a line.

    Below the least known it lies between that of a storage that serves one call at a time and that of one that serves
    any number.
    """
    known = sorted(readers.items())

    def rate(count: int) -> float:
        least, most = known[0], known[-1]
        if count <= least[0]:
            return least[1] * math.sqrt(count / least[0])
        for (fewer, low), (more, high) in pairwise(known):
            if count <= more:
                return low + (high - low) * (count - fewer) / (more - fewer)
        return most[1]

    return rate


def batch_s(e: Evidence) -> float:
    """Return the seconds that the pipeline takes for a batch when nothing holds it back."""
    if e.kind == "training":
        return e.steps.batch_s(e.threads)
    return e["load_s"] / max(1.0, e["images"] / e.batch)


def waits(made_s: float, computed_s: float, ahead: float) -> float:
    """Return how long a step waits for a batch that takes `made_s`, of which `ahead` batches are made meanwhile."""
    return max(0.0, made_s - min(computed_s, ahead * made_s))


def wall_s(e: Evidence, made_s: float, *, threads: int, prefetch: int) -> float:
    """Return the runtime of a training whose batches take `made_s`."""
    waited, computed = e.steps.each_s
    ahead = 1.0 if prefetch else min(1.0, threads / e.batch)
    first = e.steps.first_s * made_s / (batch_s(e) or 1.0)
    return e["wall_s"] + first - e.steps.first_s + (e.steps.number - 1) * (waits(made_s, computed, ahead) - waited)


def faster(e: Evidence, threads: int) -> tuple[float, float, float]:
    """Return how many times as fast the pipeline would be with so many threads: at least, probably and at most.

    A storage that serves twice the readers twice as fast answers in about the order in which it was asked; one that
    gains by choosing whom it serves next (a disk) does not. A gain counts as the former's from 3/4 of the way to it.
    """
    times = lowest = highest = threads / e.threads
    if e.cold and e.threads not in e.readers:
        lowest = 1.0  # not known
    elif e.cold:
        rate = rate_of(e.readers)
        highest = rate(threads) / rate(e.threads)
        lowest = min(highest, in_order(rate, threads) / in_order(rate, e.threads))
    ordered = min(1.0, max(0.0, 4 * math.log(max(1.0, highest)) / math.log(times) - 3))
    between = [speedup(e, threads, lowest ** (1 - share) * highest**share)
               for share in (ordered / 2, ordered, (1 + ordered) / 2)]  # fmt: skip
    return between[0][0], math.sqrt(between[1][0] * between[1][1]), between[2][1]


def speedup(e: Evidence, threads: int, storage: float) -> tuple[float, float]:
    """Return the same, at least and at most, where the storage is so many times as fast.

    At least: no call passes while a processor works for another image. At most: all do, others leave the processors to
    the run, and what these do is of the image itself only where they decode it.
    """
    image_s, cpu_s = batch_s(e) / e.batch, e["cpu_s"] / e["images"]
    calls_s = max(0.0, e.threads * image_s - cpu_s) / e.threads / storage
    busy_s, own_s = cpu_s / e.work.free_cores, cpu_s / threads
    least_s = calls_s + (own_s if e.settings.get("benchmark.preprocess", True) else 0.0)
    return image_s / max(busy_s + calls_s, own_s + calls_s), image_s / max(cpu_s / e.work.allowed, least_s)
