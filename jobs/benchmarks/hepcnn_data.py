"""The data of the benchmark HEPCNNB: the order in which each rank loads files, the expected loads, and the samples.

Each file is loaded whole, its samples are permuted in memory, and the samples are returned in batches. The rules are
those of NERSC/DL-Parallel-IO 290ed4a (2018), `binary_classifier_tf.py`, with two changes. Lists of files are sorted,
and the seed, the rank and the epoch determine every order. The predicted counts agree with the workbooks that NERSC
published on 2018-06-29.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from jobs.benchmarks.nersc_trainer import HEP_CHANNELS, count_expectations, equality_expectations
from jobs.benchmarks.step_loop import TimeSpent
from jobs.data.readers import Reader
from jobs.errors import UnreadableImageError
from jobs.events.time_log import UNKNOWN
from jobs.lazy_imports import np
from jobs.model.results import Expectation
from jobs.objects.run_objects import RunObjects
from jobs.observe.counters import process_io
from jobs.ranks.rank import Rank
from jobs.system import page_cache

Shuffle = Literal["none", "local", "global"]

TRAIN, VALIDATION = PHASES = ("train", "validation")
SAMPLE_EXTRA_BYTES = 16  # per image: label, psr (int32), normweight, weight (float32)
VALUE_BYTES = 4


class FileLoad(NamedTuple):
    """One load of a file: the epoch of the load (from 0), and the file's index in the sorted list of its phase."""

    epoch: int
    file: int


class PhaseFiles(NamedTuple):
    """The number of files in one phase, and the number of samples in each file."""

    number: int
    samples: int


@dataclass(frozen=True)
class HepRules:
    """The rules that determine which files each of the `ranks` ranks loads, and in which order.

    `batch_size` is the number of samples per step of one rank.
    """

    train: PhaseFiles
    validation: PhaseFiles
    ranks: int
    epochs: int
    batch_size: int
    shuffle: Shuffle
    seed: int

    @property
    def steps(self) -> int:
        """Return the number of training steps per rank: the full batches in the samples of all epochs."""
        return self.share(TRAIN) * self.train.samples * self.epochs // self.batch_size

    def files(self, phase: str) -> PhaseFiles:
        """Return the number of files in a phase, and the number of samples in each file."""
        return self.train if phase == TRAIN else self.validation

    def share(self, phase: str) -> int:
        """Return the number of files that each rank uses in a phase; left-over files are not used."""
        return self.files(phase).number // self.ranks

    def order(self, phase: str, rank: int, epoch: int) -> Sequence[int]:
        """Return the indices of the files that a rank loads in an epoch, in loading order."""
        return _order(self, phase, rank, epoch)

    @property
    def finished(self) -> int:
        """Return the number of epochs that end before the run ends; a validation pass follows each finished epoch.

        An epoch ends when the first sample of the next epoch is requested. The last epoch has no such request, so the
        last epoch usually has no end.
        """
        return (self._used_files - 1) // self.share(TRAIN)

    @property
    def _used_files(self) -> int:
        """Return the number of training files from which a rank takes at least one sample."""
        return -(-self.steps * self.batch_size // self.train.samples)

    def loads(self, phase: str, rank: int) -> list[FileLoad]:
        """Return all file loads of a rank in a phase, in order.

        A rank with only one file loads this file once. The first validation file is loaded before the training begins.
        At the end of a validation pass, the first file of the next pass is loaded, except after the last epoch.
        """
        share = self.share(phase)
        if not share:
            return []
        loads_next = self.finished < self.epochs
        number = self._used_files if phase == TRAIN else self.finished * share + loads_next
        indices = range(number if share > 1 else 1)
        return [FileLoad(index // share, self.order(phase, rank, index // share)[index % share]) for index in indices]

    def count(self) -> int:
        """Return the number of file loads of one rank in the whole run, which is equal for all ranks."""
        return sum(len(self.loads(phase, 0)) for phase in PHASES)

    def cold(self, phase: str, rank: int, *, shared: bool) -> list[int]:
        """Return the indices of the loads of `rank` that read a file that is not yet in the page cache.

        A file is in the page cache after the first load, by this rank or, if `shared`, by any rank. `shared` means that
        the ranks share one page cache, and that no rank is an epoch ahead of another rank.
        """
        first_epochs: dict[int, int] = {}
        for other in range(self.ranks) if shared else [rank]:
            for load in self.loads(phase, other):
                first_epochs[load.file] = min(first_epochs.get(load.file, load.epoch), load.epoch)
        loaded: set[int] = set()
        indices = []
        for index, load in enumerate(self.loads(phase, rank)):
            if load.epoch == first_epochs[load.file] and load.file not in loaded:
                indices.append(index)
            loaded.add(load.file)
        return indices


def load_bytes(samples: int, image_size: int) -> int:
    """Return the bytes that are read to load a file with this number of samples."""
    return samples * (HEP_CHANNELS * image_size**2 * VALUE_BYTES + SAMPLE_EXTRA_BYTES)


@cache
def _order(rules: HepRules, phase: str, rank: int, epoch: int) -> tuple[int, ...]:
    """Return the indices of a rank's files in an epoch: the rank's block of the list of all files.

    With ``shuffle=global``, the list is shuffled before it is divided into blocks, in every epoch after the first.
    """
    files, share = [*range(rules.files(phase).number)], rules.share(phase)
    if rules.shuffle == "global" and epoch and share > 1:
        Random(f"{rules.seed} {phase} {epoch}").shuffle(files)  # noqa: S311 - an order
    own_files = files[rank * share : (rank + 1) * share]
    if rules.shuffle != "none":
        Random(f"{rules.seed} {phase} {epoch} {rank}").shuffle(own_files)  # noqa: S311
    return tuple(own_files)


def first_sample_fault(rules: HepRules, delivered: Sequence[Sequence[Sequence[int]]]) -> str:
    """Return a text on the first file whose samples were not all used exactly once in a finished epoch; else empty.

    `delivered` has the number of used samples by rank, epoch and file index. The number is -1 if a sample of the file
    was used twice.
    """
    for epoch in range(rules.finished):
        counts = [sum(rank_counts) for rank_counts in zip(*(epochs[epoch] for epochs in delivered), strict=True)]
        assigned = {file for rank in range(rules.ranks) for file in rules.order(TRAIN, rank, epoch)}
        if len(assigned) != rules.ranks * rules.share(TRAIN):
            return f"epoch {epoch}: a file was assigned more than once"
        for file, count in enumerate(counts):
            expected = rules.train.samples if file in assigned else 0
            is_repeated = any(epochs[epoch][file] < 0 for epochs in delivered)
            if is_repeated:
                return f"epoch {epoch}: a sample of file {file} was used twice"
            if count != expected:
                return f"epoch {epoch}: {count} samples of file {file} were used, not {expected}"
    return ""


Row = Mapping[str, Any]  # the facts of one file load (an element of `FileLoader.rows`)

HALF = 0.5  # a load is cold if less than this share of the file's pages is in the page cache before the load


@dataclass(frozen=True)
class LoadPlan:
    """The planned file loads of one rank, by phase and in order."""

    rules: HepRules
    own_rank: Rank
    image_size: int
    phases: Sequence[str]  # phases that read files; empty if the run reads no file

    @property
    def loads(self) -> dict[str, list[FileLoad]]:
        """Return the planned file loads of each phase, by the phase's name."""
        return {phase: self.rules.loads(phase, self.own_rank.rank) for phase in self.phases}

    @property
    def cold_loads(self) -> list[tuple[str, int, int]]:
        """Return the loads (phase, epoch, file) that read from the storage, if the run begins with a cold cache."""
        shared = not self.own_rank.private_caches
        indices = {phase: self.rules.cold(phase, self.own_rank.rank, shared=shared) for phase in self.phases}
        return [(phase, *loads[index]) for phase, loads in self.loads.items() for index in indices[phase]]

    @property
    def bytes(self) -> int:
        """Return the sum of the bytes that all planned loads read."""
        size = {phase: load_bytes(self.rules.files(phase).samples, self.image_size) for phase in self.phases}
        return sum(len(loads) * size[phase] for phase, loads in self.loads.items())

    def of_rank(self, rows: Sequence[Row], cache: str) -> dict[str, Expectation]:
        """Return what is expected of this rank's file loads, with what was measured.

        `rows` has the measured loads. `cache` is the state of the page cache before the run; for objects, ``as_is``.
        """
        counts = {phase: len(loads) for phase, loads in self.loads.items()}
        counts_loaded = {phase: sum(row["phase"] == phase for row in rows) for phase in self.phases}
        size = sum(row["bytes"] for row in rows), self.bytes
        expected = count_expectations("files loaded", (counts_loaded, counts), size)
        return expected if cache == "as_is" else {**expected, "cold_as_predicted": self._expect_cold(rows, cache)}

    def _expect_cold(self, rows: Sequence[Row], cache: str) -> Expectation:
        expected = [list(load) for load in sorted(self.cold_loads)] if cache == "cold" else []
        if not self.own_rank.private_caches and self.rules.shuffle == "global":
            message = "not comparable: these nodes share a page cache"
            return {"expected": expected, "found": None, "message": message}
        if any(row["resident"] is None for row in rows):
            message = "it is unknown which pages of another user's files are in memory"
            return {"expected": expected, "found": None, "message": message}
        cold_loads = sorted([row["phase"], row["epoch"], row["file"]] for row in rows if row["resident"] < HALF)
        differences = [load for load in [*expected, *cold_loads] if (load in expected) != (load in cold_loads)]
        message = (
            f"{len(cold_loads)} of {len(rows)} loads read a file that was not in memory; {len(expected)} such loads"
            " were expected"
        )
        if differences:
            message += "; the first difference: file {2} of {0} in epoch {1}".format(*differences[0])
        return {"expected": expected, "found": cold_loads, "message": message}


def expectations_over_ranks(rules: HepRules, reports: Sequence[Mapping[str, Any]]) -> dict[str, Expectation]:
    """Return what is expected of all ranks together, with what the ranks report.

    The report of a rank has the number of ``steps``, ``delivered`` (the number of used samples by epoch and file) and
    the ``weights``.
    """
    fault = first_sample_fault(rules, [report["delivered"] for report in reports])
    share = rules.train.samples * rules.share(TRAIN) * rules.ranks
    success_text = f"in {rules.finished} epochs, each of {share:,} samples was used by one rank, once"
    return equality_expectations(reports, [rules.steps] * rules.ranks, fault, success_text)


def seconds_by_source(rows: Sequence[Row]) -> dict[str, float]:
    """Return the number and the median seconds of loads from the device (``cold_loads``) and from memory (``warm``).

    The keys are ``train_cold_loads``, ``train_cold_read_s`` and so on, for each phase. The median is left out if there
    is no such load. Loads from an unknown source, such as loads of objects, are not counted.
    """
    from statistics import median  # noqa: PLC0415 - the import takes 10 ms

    metrics: dict[str, float] = {}
    for phase in dict.fromkeys(row["phase"] for row in rows):
        for source, is_cold in (("cold", True), ("warm", False)):
            times = [
                row["read_s"]
                for row in rows
                if row["phase"] == phase and row["resident"] is not None and (row["resident"] < HALF) == is_cold
            ]
            metrics[f"{phase}_{source}_loads"] = len(times)
            metrics |= {f"{phase}_{source}_read_s": median(times)} if times else {}
    return metrics


def combine_load_metrics(ranks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics of file loads over all ranks: sums of counts, means of seconds, and medians of medians."""
    from statistics import mean, median  # noqa: PLC0415 - the import takes 10 ms

    metrics: dict[str, float] = {}
    for name in dict.fromkeys(name for rank in ranks for name in rank):
        values = [rank[name] for rank in ranks if name in rank]
        if name.endswith("_loads") or name == "loads":
            metrics[name] = sum(values)
        elif name in ("read_s", "unpack_s", "shuffle_s"):
            metrics[name] = mean(values)
        elif name.endswith(("cold_read_s", "warm_read_s")):
            metrics[name] = median(values)
    return metrics


Arrays = Sequence[Any]  # the arrays of n samples: images (n, side, side, 3), labels (n,), and other arrays

_TWICE = -1  # value of a sample count if a sample of the file was used twice


class FileLoader:
    """A loader of whole files; ``rows`` has the facts of each load for the record."""

    def __init__(
        self,
        files: Mapping[str, Sequence[Path]],
        rules: HepRules,
        reader: Reader,
        spent: TimeSpent,
        source: RunObjects | None = None,
    ) -> None:
        self._files, self._rules, self._reader, self.spent, self.source = files, rules, reader, spent, source
        self.rows: list[dict[str, Any]] = []

    def load(self, phase: str, load: FileLoad) -> Arrays:
        """Return the arrays of a file: images (n, side, side, 3), labels (n,), and the other arrays.

        Raises UnreadableImageError if the file does not have as many samples as the first file of the phase.
        """
        path, spent = self._files[phase][load.file], self.spent
        with spent.during("other"):
            resident_fraction, bytes_before = self._resident_fraction(path), self._fetched_bytes()
            position = spent.log.place(phase, load.epoch) if spent.log else None
        start, read_s = time.perf_counter(), -spent.seconds["read"]
        with spent.during("load", path, position):
            with spent.during("read", logged=False):
                images, labels, *rest = self._read(path, phase, load.epoch)
            read_s += spent.seconds["read"]
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        with spent.during("other"):
            size = sum(array.nbytes for array in (images, labels, *rest))
            bytes_after = self._fetched_bytes()
            row = {"phase": phase, "epoch": load.epoch, "file": load.file, "resident": resident_fraction, "bytes": size}
            row |= {"device_bytes": None if bytes_before is None or bytes_after is None else bytes_after - bytes_before}
            self.rows.append(row | {"read_s": read_s, "load_s": time.perf_counter() - start})
        return [images, labels, *rest]

    def _read(self, path: Path, phase: str, epoch: int) -> list[Any]:
        arrays = self._reader.read(path, at=(phase, epoch, UNKNOWN))
        samples = self._rules.files(phase).samples
        if any(len(array) != samples for array in arrays):
            raise UnreadableImageError(f"{path} has {len(arrays[0])} samples, but the first file has {samples}")
        return arrays

    def _resident_fraction(self, path: Path) -> float | None:
        return page_cache.residency([path]).fraction if self.source is None else None

    def _fetched_bytes(self) -> int | None:
        """Return the bytes that this process has read from devices.

        The result is None if the number is unknown, or if other processes read the files for this process.
        """
        if self.source or self._reader.processes():
            return None
        counters = process_io()
        return counters["read_bytes"] if counters else None


class RankSamples:
    """The samples of one rank in one phase, one file after another in the order of the rules.

    The function `load` returns the arrays of a file.
    """

    def __init__(
        self, rules: HepRules, phase: str, rank: int, load: Callable[[FileLoad], Arrays], spent: TimeSpent
    ) -> None:
        self._rules, self._phase, self._rank, self._load, self._spent = rules, phase, rank, load, spent
        # For each epoch and file, the number of returned samples, or `_TWICE` if a sample was returned twice.
        self.delivered: dict[int, list[int]] = {}
        self.epoch = 0
        self._index, self._next = -1, rules.files(phase).samples
        self._arrays: Arrays = ()

    def batch(self, size: int) -> Arrays:
        """Return the arrays of the next `size` samples; the next files are loaded as needed."""
        parts = []
        while size:
            if self._next == self._rules.files(self._phase).samples:
                self.advance()
            parts.append(self._next_rows(size))
            size -= len(parts[-1][0])
        return parts[0] if len(parts) == 1 else [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    @property
    def next_epoch(self) -> int:
        """Return the epoch of the next sample."""
        return (self._index + (self._next == self._rules.files(self._phase).samples)) // self._rules.share(self._phase)

    def advance(self) -> None:
        """Load the next file and permute its samples; a rank with only one file loads the file only once."""
        share = self._rules.share(self._phase)
        self._index += 1
        self.epoch, position = divmod(self._index, share)
        load = FileLoad(self.epoch, self._rules.order(self._phase, self._rank, self.epoch)[position])
        if share > 1 or not self._arrays:
            self._arrays = self._load(load)
        self._next = 0
        self._permute(load)

    def _permute(self, load: FileLoad) -> None:
        number = len(self._arrays[0])
        self._rows = np.arange(number)
        self._is_returned = np.zeros(number, bool)
        if self._rules.shuffle != "none":
            with self._spent.during("shuffle"):
                seeds = [self._rules.seed, *self._phase.encode(), *load]
                self._rows = np.random.default_rng(seeds).permutation(number)
                self._arrays = [array[self._rows] for array in self._arrays]

    def _next_rows(self, size: int) -> Arrays:
        first, self._next = self._next, min(self._next + size, len(self._rows))
        self._count_samples(self._rows[first : self._next])
        return [array[first : self._next] for array in self._arrays]

    def _count_samples(self, rows: Any) -> None:
        """Count returned samples of the current file; `rows` has their row numbers in the file."""
        counts = self.delivered.setdefault(self.epoch, [0] * self._rules.files(self._phase).number)
        file = self._rules.order(self._phase, self._rank, self.epoch)[self._index % self._rules.share(self._phase)]
        is_repeated = self._is_returned[rows].any() or counts[file] == _TWICE
        self._is_returned[rows] = True
        counts[file] = _TWICE if is_repeated else int(self._is_returned.sum())
