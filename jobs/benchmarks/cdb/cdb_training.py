"""CDB's training: steps that wait for a batch, ranks that meet after each, a validation pass after each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs import steps
from jobs.benchmarks.cdb.cdb_rules import TRAIN, VALIDATION, Phase, Rules
from jobs.benchmarks.cdb.feed import Feed
from jobs.benchmarks.nersc.nersc_run import Training


@dataclass(kw_only=True)
class CdbTraining(Training):
    """A training of one rank, from the first batch to the last."""

    rules: Rules
    feed: Feed
    train: Any  # the batches
    validations: Sequence[Any]  # those of each pass
    delivered: dict[Phase, list[int]] = field(default_factory=lambda: {TRAIN: [], VALIDATION: []})
    begun: list[Iterator[Any]] = field(default_factory=list)  # what goes on behind them ends when the clock has
    bytes_read: int = 0

    def run(self) -> None:
        """Do all epochs, within the clock; what is neither waiting nor a step is book-keeping, `other`."""
        batches = self._begun(self.train)
        with self.spent.during("other"):
            for number in steps.marked(range(self.rules.epochs * self.rules.steps)):
                epoch, place = divmod(number, self.rules.steps)
                self.at(TRAIN, epoch, number)
                if not self._step(batches):
                    break
                if place == self.rules.steps - 1:
                    self._validate(epoch)

    def _step(self, batches: Iterator[Any]) -> bool:
        waited, computed = self.spent.seconds["next"], self.spent.seconds["compute"]
        arrays = self._next(TRAIN, batches)
        self.step_load_s.append(self.spent.seconds["next"] - waited)
        if arrays is None:
            return False
        loss = self.step.train(*arrays)
        self.step_compute_s.append(self.spent.seconds["compute"] - computed)
        self.enter(loss)
        return True

    def _validate(self, epoch: int) -> None:
        if epoch >= len(self.validations):
            return
        self.at(VALIDATION, epoch)
        batches = self._begun(self.validations[epoch])
        while arrays := self._next(VALIDATION, batches):
            with self.spent.during("validate"):
                self.step.validate(*arrays)

    def _begun(self, batches: Any) -> Iterator[Any]:
        with self.spent.during("next"):
            self.begun.append(iter(batches))
        return self.begun[-1]

    def _next(self, phase: Phase, batches: Iterator[Any]) -> list[Any] | None:
        """Wait for a batch and keep book of it; returns its arrays, None at the end."""
        with self.spent.during("next"):
            batch = next(batches, None)
        self.feed.require()
        if batch is None:
            return None
        files, sizes, *arrays = batch
        self.delivered[phase].extend(files.numpy().tolist())
        self.bytes_read += int(sizes.numpy().sum())
        return [*arrays]
