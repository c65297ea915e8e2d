"""Find the largest number of accelerators that are fed: double or halve, bisect, then ask more often at the edge.

Pure: whether so many are fed is what the caller's functions say.
"""

from __future__ import annotations

from collections.abc import Callable

_SHARE = 0.04  # by which a step is longer, or shorter, than the one that is just fed
_TRIES = 6  # of longer steps
_LEAST = 0.001  # utilisation


def bracket_number(first: int, is_fed: Callable[[int], bool], most: int) -> tuple[int, int | None]:
    """Return the largest number that was fed, and the smallest one that was not.

    The search begins with `first`. (0, 1): not even one is fed; (`most`, None): all numbers up to `most` may be.
    """
    low, high = 0, None
    number = max(1, min(first, most))
    while high is None or high - low > 1:
        if is_fed(number):
            low = number
            if high is None and low >= most:
                break
        else:
            high = number
        number = min(2 * low, most) if high is None else (low + high) // 2
    return low, high


def settle_edge(low: int, high: int | None, is_always_fed: Callable[[int], bool], most: int) -> tuple[int, int | None]:
    """Return the edge by many runs at both of its ends; it moves where they say other than one run did."""
    while True:
        if low and not is_always_fed(low):
            low, high = low - 1, low
        elif high is not None and is_always_fed(high):
            low, high = high, high + 1 if high < most else None
        else:
            return low, high


def bracket_step(
    step_s: float, au: float, minimum: float, is_fed: Callable[[float], bool]
) -> tuple[float | None, float]:
    """Return a time of a step with which one accelerator is fed, and a shorter one with which it is not.

    With `step_s` its utilisation is `au` (both shares of one), below `minimum`. Its waiting takes as long
    whatever the step, so the utilisation grows with the step. None: no step that was tried is long enough.
    """
    critical_s = step_s * minimum / max(au, _LEAST)
    starved_s, fed_s = step_s, critical_s * (1 + _SHARE)
    for _ in range(_TRIES):
        if is_fed(fed_s):
            break
        starved_s, fed_s = fed_s, fed_s * (1 + 2 * _SHARE)
    else:
        return None, starved_s
    shorter_s = critical_s * (1 - _SHARE)
    while starved_s < shorter_s < fed_s:
        if is_fed(shorter_s):
            fed_s, shorter_s = shorter_s, shorter_s * (1 - 2 * _SHARE)
        else:
            starved_s = shorter_s
    return fed_s, starved_s
