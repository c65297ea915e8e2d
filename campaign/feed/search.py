"""Find the largest number of accelerators that a storage can supply: double or halve, bisect, then repeat at the edge.

All functions are pure. A function of the caller (`is_fed`) decides whether the storage can supply a number.
"""

from __future__ import annotations

from collections.abc import Callable

_SHARE = 0.04  # share by which tried steps are longer, or shorter, than the expected critical step
_TRIES = 6  # number of longer steps to try
_LEAST = 0.001  # least utilisation, which avoids a division by zero


def bracket_number(first: int, is_fed: Callable[[int], bool], most: int) -> tuple[int, int | None]:
    """Return the largest number of accelerators that passed `is_fed`, and the smallest number that failed.

    The search starts with `first`. The result is (0, 1) if not even one accelerator passes, and (`most`, None) if the
    number `most` passes.
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


def confirm_edge(low: int, high: int | None, is_always_fed: Callable[[int], bool], most: int) -> tuple[int, int | None]:
    """Test both numbers of a bracket with many runs, and move the bracket if the results differ from those of one run.

    Returns the largest number that passes and the smallest number that fails, as `bracket_number` does.
    """
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
    """Return a step time with which one accelerator passes `is_fed`, and a shorter step time with which it fails.

    With steps of `step_s`, the accelerator has the utilisation `au`, which is below `minimum`. Waiting for data takes
    as long with any step, so longer steps raise the utilisation. The first result is None if no tried step is long
    enough.
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
