"""Estimate the cost of reading a file on a storage, and predict the gain if files move from a slow to a fast storage.

The cost of a file has two parts: some seconds per seek and some seconds per byte. A seek is a read that does not begin
where the previous read ended. If calls run one at a time, the measured time of each file's own calls is used, too. This
time counts only as far as it repeats in all runs. The times of a single run would select files that were slow by
chance, and would predict too large a gain. If several calls wait for the same storage, a file's measured time mostly
depends on other files. Then only the cost per seek and per byte are used, computed from the rate at which files were
finished. The costs for a single reader are measured with probes. Probes are existing files, or new files that are
written, read and removed (`measure_costs`, `measure_costs_of_probe_files`).

The predicted gain lies between the gains on two extreme kinds of storage. If the slow storage has a single queue, each
moved file saves its whole cost. If the slow storage serves all calls in parallel, the gain is small. The reason is that
tf.data takes files in order and keeps as many files in progress as it has threads. So a file that is read faster still
waits for the previous file. Where a storage lies between the two extremes follows from a ratio: the cost of a file for
one of several readers, divided by its cost for a single reader. In doubt, the lower gain is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from filelock import FileLock

from campaign.staging.observed_runs import Floats, ObservedRuns, ProfiledRun
from jobs.store import transfer
from jobs.system import files, page_cache

ONE_AT_A_TIME = 1.2  # up to this average number of calls in progress, calls count as running one at a time
_FEWEST_GROUPS = 8
_DRAWS, _SEED = 400, 0
_LEAST_S = 1e-6
# A storage counts as parallel if a file costs a single reader at least (calls ** _PARALLEL) times as much as it costs
# one of several readers. The value comes from the model of a disk with eight readers, for which the simulated gain
# agrees with the measured gain (docs/how-to/staging.md).
_PARALLEL = 0.3
_SIMULATED, _WIDEST = 5_000, 4_096  # number of simulated files; largest number of files in progress
_TAILS = (0.025, 0.975)
_PROBES, _MOST_BYTES = 48, 256 << 20
_READ_BYTES = 1 << 20  # bytes per read call, as in TensorFlow
_ROUNDS, _PROBE_DRAWS = 3, 100


@dataclass(frozen=True)
class ReadCost:
    """The cost of reading a file: seconds per seek and seconds per byte."""

    seek_s: float
    byte_s: float

    def seconds(self, seeks: Floats, sizes: Floats) -> Floats:
        """Return the seconds of each file from its number of seeks and its size in bytes."""
        return self.seek_s * seeks + self.byte_s * sizes


class PredictedGain(TypedDict):
    """The predicted gain of a run's bandwidth, as a share of the old bandwidth; `low` to `high` is a 95 % interval."""

    gain: float
    low: float
    high: float


def fit_cost(seeks: Floats, sizes: Floats, seconds: Floats) -> ReadCost:
    """Fit the cost per seek and the cost per byte to the measured seconds of files, by least squares.

    Both costs are at least 0, and the costs of all files together equal the sum of `seconds`.
    """
    rows = np.stack((seeks, sizes), axis=1).astype(float)
    costs, *_ = np.linalg.lstsq(rows, seconds, rcond=None)
    if costs[0] < 0 or costs[1] < 0:
        positive = int(costs[0] < 0)
        costs = np.zeros(2)
        costs[positive] = seconds.sum() / rows[:, positive].sum()
    scale = seconds.sum() / (rows @ costs).sum()
    return ReadCost(*(costs * scale).tolist())


@dataclass(frozen=True)
class SlowStorageCost:
    """The cost of reading a profile's files once from the slow storage; the arrays have one element per file."""

    cost: ReadCost
    seconds: Floats
    seeks: Floats
    sizes: Floats
    calls_at_once: float = 1.0
    # Seconds in each file's own calls including waiting, with the shape (runs, files); None if calls run one at a time.
    waits: Floats | None = None

    def remaining(
        self, moved: Any, fast_cost: ReadCost, single_reader_cost: ReadCost | None = None, parallel: float = 1.0
    ) -> float:
        """Return the share of the time in calls that remains after the files in the mask `moved` have moved.

        `fast_cost` is the cost on the fast storage. `single_reader_cost` is the cost on the slow storage for a single
        reader, or None if the profile has a single reader. `parallel` is the result of `remaining_in_parallel`.
        """
        total = float(self.seconds.sum())
        unmoved_s = float(self.seconds[~moved].sum())
        moved_s = float(fast_cost.seconds(self.seeks[moved], self.sizes[moved]).sum())
        if single_reader_cost is None:
            return (unmoved_s + moved_s) / total
        faster = float(single_reader_cost.seconds(self.seeks, self.sizes).sum()) / total
        power = min(1.0, max(0.0, float(np.log(faster) / np.log(self.calls_at_once)) / _PARALLEL))
        return float((max(unmoved_s, moved_s) / total) ** (1 - power) * parallel**power)

    def remaining_in_parallel(self, moved: Any, fast_cost: ReadCost) -> float:
        """Return the remaining share (see `remaining`) on a slow storage that serves all calls in parallel.

        The share comes from a simulation of files that are taken in order.
        """
        if self.waits is None:
            return 1.0
        indices = np.random.default_rng(_SEED).integers(self.waits.size, size=_SIMULATED)
        waits_after = np.where(moved, fast_cost.seconds(self.seeks, self.sizes), self.waits).flat[indices]
        waits = self.waits.flat[indices]
        window = 1
        while waits.sum() / (before_s := _taken_s(waits, window)) < self.calls_at_once and window < _WIDEST:
            window += 1
        return _taken_s(waits_after, window) / before_s


def _taken_s(waits: Floats, window: int) -> float:
    """Return the seconds to take all files in order, if `window` files are read at the same time.

    The read of a file begins when the program has taken the file that is `window` places earlier.
    """
    taken_at_s = [0.0] * window
    for wait in waits.tolist():
        taken_at_s.append(max(taken_at_s[-1], taken_at_s[-window] + wait))
    return taken_at_s[-1]


def slow_storage_cost(observed: ObservedRuns) -> SlowStorageCost:
    """Return the cost of the files on the slow storage, estimated from the profiled runs."""
    runs = observed.runs
    seeks, sizes = (np.mean([getattr(run, key) for run in runs], axis=0) for key in ("seeks", "bytes_read"))
    if observed.calls_at_once > ONE_AT_A_TIME:
        parts = zip(*(_groups(run, observed.calls_at_once) for run in runs), strict=True)
        seeks_of_rows, bytes_of_rows, seconds = (np.concatenate(part) for part in parts)
        cost = fit_cost(seeks_of_rows, bytes_of_rows, seconds)
        seconds = cost.seconds(seeks, sizes)
        seconds *= np.mean([run.in_calls_s for run in runs]) / seconds.sum()
        waits = np.array([run.spent_s for run in runs])
        return SlowStorageCost(cost, seconds, seeks, sizes, observed.calls_at_once, waits)
    spent_s = np.array([run.spent_s for run in runs])
    seeks_of_rows, bytes_of_rows = (
        np.concatenate([getattr(run, key) for run in runs]) for key in ("seeks", "bytes_read")
    )
    cost = fit_cost(seeks_of_rows, bytes_of_rows, spent_s.ravel())
    residual_s = spent_s - [cost.seconds(run.seeks, run.bytes_read) for run in runs]
    return SlowStorageCost(
        cost, (spent_s - residual_s).mean(axis=0) + _repeated(residual_s) * residual_s.mean(axis=0), seeks, sizes
    )


def _groups(run: ProfiledRun, at_once: float) -> tuple[Floats, Floats, Floats]:
    """Return the seeks, bytes and seconds of groups of files; a group has files that ended one after the other."""
    order = np.argsort(run.ended_s)
    size = min(max(1, len(order) // _FEWEST_GROUPS), max(4, round(at_once)))
    starts = np.arange(0, len(order) - size + 1, size)
    ends = run.ended_s[order][np.minimum(starts + size, len(order)) - 1]
    seconds = np.diff(ends, prepend=ends[-1] - min(run.in_calls_s, ends[-1]))
    used = order[: len(starts) * size]
    seeks, sizes = (values[used].reshape(-1, size).sum(axis=1) for values in (run.seeks, run.bytes_read))
    return seeks, sizes, seconds


def _repeated(own_s: Floats) -> float:
    """Return the share of the variance between files that repeats in all runs; `own_s` has the shape (runs, files)."""
    if len(own_s) < 2:  # noqa: PLR2004 - a single run shows no repetition
        return 0.0
    chance = float(own_s.var(axis=0, ddof=1).mean()) / len(own_s)
    between = float(own_s.mean(axis=0).var())
    return max(0.0, 1 - chance / between) if between else 0.0


def predict_gain(
    observed: ObservedRuns,
    slow: SlowStorageCost,
    fast_costs: Sequence[ReadCost],
    single_reader_costs: Sequence[ReadCost | None],
    moved: Any,
) -> PredictedGain:
    """Return the predicted gain of a run if the files in the mask `moved` move to the fast storage.

    `fast_costs` are costs on the fast storage. `single_reader_costs` are costs on the slow storage for a single reader,
    or None if the profile has a single reader. In both lists, the first cost comes from all probes, and the following
    costs come from random draws of the probes. The bounds `low` and `high` follow from the spread of the runs, of the
    files' times and of the probes.
    """
    if not moved.any():
        return PredictedGain(gain=0.0, low=0.0, high=0.0)
    runs, total_s, parallel = observed.runs, float(slow.seconds.sum()), slow.remaining_in_parallel(moved, fast_costs[0])
    wall, waited = (np.array([getattr(run, key) for run in runs]) for key in ("wall_s", "waited_s"))

    def predict_gain(share: float, before: float, after: float, most: float, chance: float = 0.0) -> float:
        # Chance may save at most half of the remaining time. Otherwise a run with few remaining reads could seem to
        # gain any factor.
        saved = min(total_s * (1 - share) + chance, total_s * (1 - share / 2), most)
        return float(before / max(after - saved, _LEAST_S) - 1)

    means = wall.mean(), wall.mean(), waited.mean()
    predicted = predict_gain(slow.remaining(moved, fast_costs[0], single_reader_costs[0], parallel), *means)
    own_s = np.array([run.spent_s[moved] * (run.in_calls_s / run.spent_s.sum()) for run in runs])
    # The standard error of the files' total time, averaged over the runs.
    chance_s = float((own_s - slow.seconds[moved]).std()) * (own_s.shape[1] / len(runs)) ** 0.5
    rng, drawn_gains = np.random.default_rng(_SEED), []
    for _ in range(_DRAWS):
        first_draw, second_draw = rng.integers(len(runs), size=(2, len(runs)))
        drawn_costs = (
            fast_costs[int(rng.integers(len(fast_costs)))],
            single_reader_costs[int(rng.integers(len(single_reader_costs)))],
        )
        share = slow.remaining(moved, *drawn_costs, parallel)
        drawn_gains.append(
            predict_gain(
                share,
                wall[first_draw].mean(),
                wall[second_draw].mean(),
                waited[second_draw].mean(),
                rng.normal(0, chance_s),
            )
        )
    bounds = [predicted, *np.quantile(drawn_gains, _TAILS).tolist()]
    if single_reader_costs[0] is not None:
        # Add the gains on the two extreme kinds of storage: a storage with a single queue, and a parallel storage.
        bounds += [
            predict_gain(slow.remaining(moved, fast_costs[0], slow.cost), *means),
            predict_gain(parallel, *means),
        ]
    return PredictedGain(gain=predicted, low=min(bounds), high=max(bounds))


def measure_costs_of_probe_files(folder: Path, sizes: Floats) -> list[ReadCost]:
    """Measure the costs of reading new probe files in `folder`, whose sizes follow the distribution of `sizes`.

    The first returned cost comes from all probes, and the following costs come from random draws of the probes.
    """
    probe_sizes = np.quantile(sizes, (np.arange(_PROBES) + 0.5) / _PROBES).astype(int)
    probe_sizes = np.minimum(probe_sizes, _MOST_BYTES // _PROBES)
    with _probe_files(folder, np.random.default_rng(_SEED).permutation(probe_sizes).tolist()) as paths:
        return measure_costs(paths)


def measure_costs(paths: Sequence[Path]) -> list[ReadCost]:
    """Measure the costs of reading files for a single reader; the files are dropped from the page cache first.

    The first returned cost comes from all files, and the following costs come from random draws of the files. A file is
    read three times and the median counts, so that a single disturbed read has no influence.
    """
    rounds = []
    for _ in range(_ROUNDS):
        page_cache.drop_from_cache(paths, paths, paths[0].parent)
        rounds.append([_time_read(path) for path in paths])
    sizes, seconds = np.median(rounds, axis=0).T
    rng, ones = np.random.default_rng(_SEED), np.ones(len(paths))
    draws = [np.arange(len(paths)), *rng.integers(len(paths), size=(_PROBE_DRAWS, len(paths)))]
    return [fit_cost(ones, sizes[drawn], seconds[drawn]) for drawn in draws]


def sample_to_probe(number: int) -> list[int]:
    """Choose at random which of `number` files are probed, and return the indices of at most 48 files."""
    return list(np.random.default_rng(_SEED).permutation(number)[:_PROBES].tolist())


@contextmanager
def _probe_files(folder: Path, sizes: Sequence[int]) -> Iterator[list[Path]]:
    """Write new files of random bytes to the storage, yield the paths of the files, and remove the files at the end."""
    probe_folder = folder / ".probe"
    with FileLock(folder / ".tfio-lock"):
        if probe_folder.exists():  # an interrupted command did not remove its probe files
            files.remove_tree(probe_folder)
        files.make_folder(probe_folder)
        try:
            paths = [probe_folder / str(number) for number in range(len(sizes))]
            for path, size in zip(paths, sizes, strict=True):
                with files.write_whole(path, durable=False) as file:
                    file.write(os.urandom(size))
            transfer.sync_files(paths, [probe_folder])
            yield paths
        finally:
            files.remove_tree(probe_folder)


def _time_read(path: Path) -> tuple[int, float]:
    """Return the size of a file in bytes, and the seconds to open the file and to read the whole file."""
    buffer, offset = bytearray(_READ_BYTES), 0
    began = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while count := os.preadv(descriptor, [buffer], offset):
            offset += count
    finally:
        os.close(descriptor)
    return offset, time.perf_counter() - began
