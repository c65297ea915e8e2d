"""HEPCNNB's rules: which rank loads which file when, and all that follows from them before anything is read.

NERSC/DL-Parallel-IO 290ed4a (2018), `binary_classifier_tf.py`, with two changes: lists of files are sorted, and every
order follows from the seed, the rank and the epoch. The counts are those of their workbooks of 2018-06-29.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal, NamedTuple

Shuffle = Literal["none", "local", "global"]

TRAIN, VALIDATION = PHASES = ("train", "validation")
SAMPLE_EXTRA_BYTES = 16  # beside the image: label, psr (int32), normweight, weight (float32)
CHANNELS, VALUE_BYTES = 3, 4


class Load(NamedTuple):
    """A file that is loaded: for which epoch (from 0), and its place in the sorted list of its kind."""

    epoch: int
    file: int


class Files(NamedTuple):
    """The files of a kind, and how many samples each has."""

    number: int
    samples: int


@dataclass(frozen=True)
class Rules:
    """A run of so many ranks; `batch_size` is of one rank."""

    train: Files
    validation: Files
    ranks: int
    epochs: int
    batch_size: int
    shuffle: Shuffle
    seed: int

    @property
    def steps(self) -> int:
        """Return the steps of each rank: the whole batches of all epochs together."""
        return self.share(TRAIN) * self.train.samples * self.epochs // self.batch_size

    def files(self, phase: str) -> Files:
        """Return the files of a phase."""
        return self.train if phase == TRAIN else self.validation

    def share(self, phase: str) -> int:
        """Return how many files each rank has; those left over belong to nobody."""
        return self.files(phase).number // self.ranks

    def order(self, phase: str, rank: int, epoch: int) -> Sequence[int]:
        """List the files of a rank in an epoch, in the order in which it loads them."""
        return _order(self, phase, rank, epoch)

    @property
    def finished(self) -> int:
        """Return how many epochs end before the run does; a validation pass follows each.

        An epoch has ended when the first sample of the next one is asked for, so the last one seldom does.
        """
        return (self._taken - 1) // self.share(TRAIN)

    @property
    def _taken(self) -> int:
        """Files that a rank begins to take batches from."""
        return -(-self.steps * self.batch_size // self.train.samples)

    def loads(self, phase: str, rank: int) -> list[Load]:
        """List what a rank loads of a phase, in its order.

        A rank with one file keeps it. Validation has its first file loaded before the training begins, and at the end
        of each pass the first one of the next, but for a pass behind the last epoch.
        """
        share = self.share(phase)
        if not share:
            return []
        more = self.finished < self.epochs
        number = self._taken if phase == TRAIN else self.finished * share + more
        kept = range(number if share > 1 else 1)
        return [Load(place // share, self.order(phase, rank, place // share)[place % share]) for place in kept]

    def count(self) -> int:
        """Return how many files each rank loads in all: as many as any other."""
        return sum(len(self.loads(phase, 0)) for phase in PHASES)

    def cold(self, phase: str, rank: int, *, shared: bool) -> list[int]:
        """Return which of its loads find nothing in memory, by their places: nobody who shares it has had the file.

        `shared`: the ranks share a page cache, and no rank is an epoch ahead of another.
        """
        seen: dict[int, int] = {}
        for other in range(self.ranks) if shared else [rank]:
            for load in self.loads(phase, other):
                seen[load.file] = min(seen.get(load.file, load.epoch), load.epoch)
        had: set[int] = set()
        found = []
        for place, load in enumerate(self.loads(phase, rank)):
            if load.epoch == seen[load.file] and load.file not in had:
                found.append(place)
            had.add(load.file)
        return found


def load_bytes(samples: int, image_size: int) -> int:
    """Return the bytes that are asked for when a file of so many samples is loaded."""
    return samples * (CHANNELS * image_size**2 * VALUE_BYTES + SAMPLE_EXTRA_BYTES)


@cache
def _order(rules: Rules, phase: str, rank: int, epoch: int) -> tuple[int, ...]:
    """Deal out the list in blocks: with ``global`` anew in each epoch but the first, by a seed that all ranks have."""
    files, share = [*range(rules.files(phase).number)], rules.share(phase)
    if rules.shuffle == "global" and epoch and share > 1:
        Random(f"{rules.seed} {phase} {epoch}").shuffle(files)  # noqa: S311 - an order
    own = files[rank * share : (rank + 1) * share]
    if rules.shuffle != "none":
        Random(f"{rules.seed} {phase} {epoch} {rank}").shuffle(own)  # noqa: S311
    return tuple(own)


def every_sample_once(rules: Rules, delivered: Sequence[Sequence[Sequence[int]]]) -> str:
    """Say what of the finished epochs was not delivered just once over all ranks; empty where all was.

    `delivered`: of each rank and epoch how many samples of each file (by its place) came, -1 for a file of which one
    came twice.
    """
    for epoch in range(rules.finished):
        counts = [sum(of_file) for of_file in zip(*(of_rank[epoch] for of_rank in delivered), strict=True)]
        dealt = {file for rank in range(rules.ranks) for file in rules.order(TRAIN, rank, epoch)}
        if len(dealt) != rules.ranks * rules.share(TRAIN):
            return f"epoch {epoch}: a file was dealt out twice"
        for file, count in enumerate(counts):
            wanted = rules.train.samples if file in dealt else 0
            twice = any(of_rank[epoch][file] < 0 for of_rank in delivered)
            if count != wanted or twice:
                came = "one of them twice" if twice else f"{count} of {wanted}"
                return f"epoch {epoch}: of the samples of file {file} came {came}"
    return ""
