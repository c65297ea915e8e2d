"""Which file CDB's input pipeline asks for when: pure functions of the parameters and the seed.

Source: NERSC/DL-Parallel-IO, mascarpone-tiramisu-tf-singlefile.py and tiramisu_helpers.py (290ed4a). Files are sorted,
permuted, and split 80/10/10; each rank has an equal share, left-over files nobody; a shuffle with a buffer of 100;
whole batches. Training goes on where the epoch before it stopped; a validation pass reads its whole share anew.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Phase = Literal["train", "validation"]
TRAIN: Phase = "train"
VALIDATION: Phase = "validation"
SHUFFLE = 100  # files among which the next one is drawn
_TRAIN_SHARE, _TEST_SHARE = 0.8, 0.1


@dataclass(frozen=True)
class Rules:
    """A run of CDB: `files` of data on `ranks`, of which this is one; `iterations`: batches an epoch, None for all."""

    files: int
    ranks: int
    rank: int
    epochs: int
    batch_size: int
    iterations: int | None
    seed: int

    def split(self, phase: Phase) -> list[int]:
        """Return the files of a phase, by their places among all data files sorted by name."""
        order = list(range(self.files))
        random.Random(self.seed).shuffle(order)  # noqa: S311 - no secret
        train, test = int(_TRAIN_SHARE * self.files), round(_TEST_SHARE * self.files)
        return order[:train] if phase == TRAIN else order[train + test :]

    def share(self, phase: Phase) -> list[int]:
        """Return those that are this rank's: as many as any other's."""
        files = self.split(phase)
        return files[self.rank : len(files) // self.ranks * self.ranks : self.ranks]

    def batches(self, phase: Phase) -> int:
        """Return the batches of one pass over the share."""
        return len(self.share(phase)) // self.batch_size

    @property
    def steps(self) -> int:
        """Return the steps of an epoch."""
        return self.batches(TRAIN) if self.iterations is None else self.iterations

    @property
    def images(self) -> dict[Phase, int]:
        """Return the images of this rank that are consumed in the whole run."""
        validated = self.epochs * self.batches(VALIDATION)
        return {TRAIN: self.epochs * self.steps * self.batch_size, VALIDATION: validated * self.batch_size}

    def order(self, phase: Phase, number: int) -> list[int]:
        """Return the files of a pass in the order in which they are asked for; those of no whole batch are left out."""
        draws = random.Random(f"{self.seed} {self.rank} {phase} {number}")  # noqa: S311 - no secret
        waiting, ordered = [], []
        for file in self.share(phase):
            waiting.append(file)
            if len(waiting) == SHUFFLE:
                ordered.append(waiting.pop(draws.randrange(SHUFFLE)))
        draws.shuffle(waiting)
        return (ordered + waiting)[: self.batches(phase) * self.batch_size]

    def consumed(self, phase: Phase) -> list[int]:
        """Return the files whose images are consumed, in order."""
        asked = [file for number in range(self.epochs) for file in self.order(phase, number)]
        return asked[: self.images[phase]]

    def most_asked(self, prefetch: int, calls: int) -> int:
        """Return how many training images are asked for at most: consumed, kept ready, and in so many calls."""
        whole = self.epochs * self.batches(TRAIN) * self.batch_size
        return min(whole, self.images[TRAIN] + prefetch + calls)

    def may_ask(self, prefetch: int, calls: int) -> list[int]:
        """Return the files that this rank asks for at most, read ahead or consumed."""
        train = [file for number in range(self.epochs) for file in self.order(TRAIN, number)]
        validation = self.share(VALIDATION) if self.batches(VALIDATION) else []
        return sorted({*train[: self.most_asked(prefetch, calls)], *validation})
