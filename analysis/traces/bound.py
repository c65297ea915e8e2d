"""Whether a training waits for its input, by how much, and what would remove that: from where its steps' time went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from analysis.text.plain import share
from analysis.timelog.intervals import union
from analysis.traces.categories import CATEGORIES, INPUT, REMEDIES
from analysis.traces.shares import NS, Covered, Shares
from analysis.traces.tensorflow_events import Runtime

LEAST = 0.05
"""Share of the steps' time from which waiting for input bounds them: what two runs of a cell may differ by (4 %) and
more; and of the waiting, what a remedy saves at least to be named."""
MADE = INPUT[:2]  # reading and decoding


class Bound(NamedTuple):
    """The verdict on some steps: seconds, and of each remedy what it saves at most."""

    steps_s: float
    waited_s: float  # in which the rank did nothing else than wait for input
    remedies: Mapping[str, float]
    prefetched: bool = False  # whether elements are made ahead already

    @property
    def share(self) -> float:
        """Return how much of the steps' time is waiting for input."""
        return self.waited_s / self.steps_s if self.steps_s else 0.0

    @property
    def named(self) -> dict[str, float]:
        """Return the remedies that save enough to be named, the best one first."""
        known = sorted(self.remedies.items(), key=lambda each: -each[1])
        return {what: saved for what, saved in known if saved > LEAST * self.waited_s and self.share >= LEAST}

    @property
    def words(self) -> str:
        """Return the verdict as a sentence."""
        amount = f"{self.waited_s:.3g} of {self.steps_s:.3g} s of these steps ({share(self.share, 1)})"
        if self.share < LEAST:
            return f"not input-bound: they waited for input in {amount}"
        saves = "; ".join(f"{REMEDIES[what]}: at most {saved:.3g} s" for what, saved in self.named.items())
        in_use = ". Prefetching is in use, and hides what it can" if self.prefetched else ""
        return f"input-bound: they waited for input in {amount}. What would remove it: {saves or 'not known'}{in_use}"


def bound(runtime: Runtime, shares: Shares) -> Bound:
    """Return the verdict.

    Prefetching hides the input behind what the rank does meanwhile: at best all of it, or as much as there is to hide
    it behind and nothing is hidden behind yet; where it is in use, it has. The other remedies save the time that is
    spent on their category.
    """
    spent, steps = {name: float(each.sum()) for name, each in shares.spent.items()}, shares.steps
    waited = sum(spent[name] for name in INPUT)
    busy = sum(spent[name] for name in CATEGORIES[: CATEGORIES.index(INPUT[0])])
    made = union(*(np.concatenate(each) for each in zip(*map(runtime.of, MADE), strict=True)))
    made_s = float(Covered(made).within(steps.start, steps.end).sum()) / NS
    hidden = made_s - sum(spent[name] for name in MADE)
    ahead = 0.0 if runtime.prefetched else max(0.0, min(waited, busy - hidden))
    remedies = {"prefetch": ahead} | {name: spent[name] for name in INPUT}
    return Bound(float((steps.end - steps.start).sum()) / NS, waited, remedies, runtime.prefetched)
