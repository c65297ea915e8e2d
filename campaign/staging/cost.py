"""What reading a file costs on a storage, and what a run gains when files move from a slow one to a fast one.

A file costs so many seconds for each seek (a read that does not begin where the one before ended) and so many
for each byte. Where calls come one at a time the time of each file's own calls is known, too, and counts as far as it
repeats itself from run to run: to pick files by one run's times alone would pick those that were unlucky in it, and
promise too much. Where several calls wait for one storage, a file's own time is mostly that of others, and only the two
costs are used, found from how fast files were finished.

What is then gained lies between two storages. One has a queue: what leaves it saves what it cost there. One serves all
calls at once: as tf.data keeps as many files under way as it has threads, in their order, a file that comes at once
waits for the one before it, and little is gained. How near a storage is to either follows from how much less its files
cost a reader among several than one alone; in doubt the lesser gain is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from campaign.staging.observed import Floats, Observed, Run

ONE_AT_A_TIME = 1.2  # calls in progress on average, up to which they are taken for one after the other
_FEWEST_GROUPS = 8
_DRAWS, _SEED = 400, 0
_LEAST_S = 1e-6
# A storage counts as parallel from this power of the calls on: so much more its files cost a single reader. It is that
# of the model of a disk with eight readers, whose gain is the simulated one (docs/staging.md, measured).
_PARALLEL = 0.3
_SIMULATED, _WIDEST = 5_000, 4_096  # files; files under way
_TAILS = (0.025, 0.975)


@dataclass(frozen=True)
class Cost:
    """Seconds for each seek and for each byte."""

    seek_s: float
    byte_s: float

    def of(self, seeks: Floats, sizes: Floats) -> Floats:
        """Return the seconds of each file."""
        return self.seek_s * seeks + self.byte_s * sizes


class Gain(TypedDict):
    """How much more bandwidth a run has, as a share; `low` and `high` bound it with 95 % confidence."""

    gain: float
    low: float
    high: float


def fitted(seeks: Floats, sizes: Floats, seconds: Floats) -> Cost:
    """Fit both costs by least squares; neither is negative, and their sum is that of `seconds`."""
    rows = np.stack((seeks, sizes), axis=1).astype(float)
    found, *_ = np.linalg.lstsq(rows, seconds, rcond=None)
    if found[0] < 0 or found[1] < 0:
        only = int(found[0] < 0)
        found = np.zeros(2)
        found[only] = seconds.sum() / rows[:, only].sum()
    scale = seconds.sum() / (rows @ found).sum()
    return Cost(*(found * scale).tolist())


@dataclass(frozen=True)
class Slow:
    """What the files of a profile cost where they are, in a run; arrays have the shape (files,)."""

    cost: Cost
    seconds: Floats
    seeks: Floats
    sizes: Floats
    calls_at_once: float = 1.0
    # Of several calls at once: how long each file's own took, the waiting included; shape (runs, files).
    waits: Floats | None = None

    def kept(self, moved: Any, fast: Cost, alone: Cost | None = None, parallel: float = 1.0) -> float:
        """Return the share of the time in calls that is left when files move.

        `alone`: what files cost a single reader, where the profile is of several; `parallel`: `kept_in_parallel`.
        """
        total = float(self.seconds.sum())
        left, new = float(self.seconds[~moved].sum()), float(fast.of(self.seeks[moved], self.sizes[moved]).sum())
        if alone is None:
            return (left + new) / total
        faster = float(alone.of(self.seeks, self.sizes).sum()) / total
        power = min(1.0, max(0.0, float(np.log(faster) / np.log(self.calls_at_once)) / _PARALLEL))
        return float((max(left, new) / total) ** (1 - power) * parallel**power)

    def kept_in_parallel(self, moved: Any, fast: Cost) -> float:
        """Return the same of a storage that serves any number of calls at once, each as fast as it did."""
        if self.waits is None:
            return 1.0
        drawn = np.random.default_rng(_SEED).integers(self.waits.size, size=_SIMULATED)
        after = np.where(moved, fast.of(self.seeks, self.sizes), self.waits).flat[drawn]
        waits = self.waits.flat[drawn]
        window = 1
        while waits.sum() / (before_s := _taken_s(waits, window)) < self.calls_at_once and window < _WIDEST:
            window += 1
        return _taken_s(after, window) / before_s


def _taken_s(waits: Floats, window: int) -> float:
    """Return the seconds for files that are taken in order, each begun when the one `window` before it is taken."""
    taken = [0.0] * window
    for wait in waits.tolist():
        taken.append(max(taken[-1], taken[-window] + wait))
    return taken[-1]


def on_slow(observed: Observed) -> Slow:
    """Return what the files cost where they are."""
    runs = observed.runs
    seeks, sizes = (np.mean([getattr(run, key) for run in runs], axis=0) for key in ("seeks", "bytes_read"))
    if observed.calls_at_once > ONE_AT_A_TIME:
        parts = zip(*(_groups(run, observed.calls_at_once) for run in runs), strict=True)
        sought, read, seconds = (np.concatenate(part) for part in parts)
        cost = fitted(sought, read, seconds)
        seconds = cost.of(seeks, sizes)
        seconds *= np.mean([run.in_calls_s for run in runs]) / seconds.sum()
        waits = np.array([run.spent_s for run in runs])
        return Slow(cost, seconds, seeks, sizes, observed.calls_at_once, waits)
    spent = np.array([run.spent_s for run in runs])
    sought, read = (np.concatenate([getattr(run, key) for run in runs]) for key in ("seeks", "bytes_read"))
    cost = fitted(sought, read, spent.ravel())
    own = spent - [cost.of(run.seeks, run.bytes_read) for run in runs]
    return Slow(cost, (spent - own).mean(axis=0) + _repeated(own) * own.mean(axis=0), seeks, sizes)


def _groups(run: Run, at_once: float) -> tuple[Floats, Floats, Floats]:
    """Return seeks, bytes and seconds of files that were finished one after the other, in groups."""
    order = np.argsort(run.ended_s)
    size = min(max(1, len(order) // _FEWEST_GROUPS), max(4, round(at_once)))
    starts = np.arange(0, len(order) - size + 1, size)
    ends = run.ended_s[order][np.minimum(starts + size, len(order)) - 1]
    seconds = np.diff(ends, prepend=ends[-1] - min(run.in_calls_s, ends[-1]))
    used = order[: len(starts) * size]
    seeks, sizes = (values[used].reshape(-1, size).sum(axis=1) for values in (run.seeks, run.bytes_read))
    return seeks, sizes, seconds


def _repeated(own: Floats) -> float:
    """Return the share of what sets files apart that is theirs and not chance; `own`: shape (runs, files)."""
    if len(own) < 2:  # noqa: PLR2004 - one run cannot repeat itself
        return 0.0
    chance = float(own.var(axis=0, ddof=1).mean()) / len(own)
    seen = float(own.mean(axis=0).var())
    return max(0.0, 1 - chance / seen) if seen else 0.0


def gain(observed: Observed, slow: Slow, fast: Sequence[Cost], alone: Sequence[Cost | None], moved: Any) -> Gain:
    """Predict what moving the files of the mask `moved` gains.

    `fast`, `alone`: what files cost on the fast storage, and a single reader on the slow one (None where the profile is
    of such), by all probes first and then by draws of them. The bounds follow from the spread of runs, of files' times
    and of probes.
    """
    if not moved.any():
        return Gain(gain=0.0, low=0.0, high=0.0)
    runs, total_s, parallel = observed.runs, float(slow.seconds.sum()), slow.kept_in_parallel(moved, fast[0])
    wall, waited = (np.array([getattr(run, key) for run in runs]) for key in ("wall_s", "waited_s"))

    def gained(kept: float, before: float, after: float, most: float, chance: float = 0.0) -> float:
        # Of what is left, chance takes half at most: a run with hardly any reads left is no multiple of itself.
        saved = min(total_s * (1 - kept) + chance, total_s * (1 - kept / 2), most)
        return float(before / max(after - saved, _LEAST_S) - 1)

    means = wall.mean(), wall.mean(), waited.mean()
    found = gained(slow.kept(moved, fast[0], alone[0], parallel), *means)
    own = np.array([run.spent_s[moved] * (run.in_calls_s / run.spent_s.sum()) for run in runs])
    # Of the sum over the files, as the mean of the runs.
    chance_s = float((own - slow.seconds[moved]).std()) * (own.shape[1] / len(runs)) ** 0.5
    rng, drawn = np.random.default_rng(_SEED), []
    for _ in range(_DRAWS):
        one, other = rng.integers(len(runs), size=(2, len(runs)))
        chosen = fast[int(rng.integers(len(fast)))], alone[int(rng.integers(len(alone)))]
        kept = slow.kept(moved, *chosen, parallel)
        drawn.append(gained(kept, wall[one].mean(), wall[other].mean(), waited[other].mean(), rng.normal(0, chance_s)))
    bounds = [found, *np.quantile(drawn, _TAILS).tolist()]
    if alone[0] is not None:  # a queue of one, or none at all
        bounds += [gained(slow.kept(moved, fast[0], slow.cost), *means), gained(parallel, *means)]
    return Gain(gain=found, low=min(bounds), high=max(bounds))
