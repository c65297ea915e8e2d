"""CDB's training: steps that wait for a batch, ranks that meet after each, a validation pass after each epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jobs.benchmarks.cdb.rules import TRAIN, VALIDATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobs.benchmarks.cdb.network import CdbNetwork
    from jobs.benchmarks.cdb.rules import Phase, Rules
    from jobs.observe.spent import Spent

    Meet = Callable[[Sequence[Any]], Sequence[Any]]

VALIDATION_COST = 3  # a step's forward pass is about a third of it: the backward pass computes two gradients a layer


class Step(Protocol):
    """What is done with the arrays of a batch."""

    def train(self, *arrays: Any) -> float | None:
        """Train on it, together with the other ranks; return the loss where there is one."""

    def validate(self, *arrays: Any) -> None:
        """Look how good the network is."""


class Skip:
    """Nothing: ``control=no_compute``."""

    def train(self, *_: Any) -> None:
        """Do nothing."""

    def validate(self, *_: Any) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Emulated:
    """A step that takes its time; `gradients` are as many bytes as those of the network, for the ranks to add up."""

    wait: Callable[[float], Callable[[Any, Any], None]]
    step_s: float
    gradients: Sequence[Any]
    meet: Meet
    spent: Spent

    def train(self, *arrays: Any) -> None:
        """Take the batch, wait, and meet the other ranks."""
        with self.spent.during("compute"):
            self.wait(self.step_s)(arrays[0], arrays[-1])
        self.meet(self.gradients)

    def validate(self, *arrays: Any) -> None:
        """Take the batch, and wait for as long as its share of a step."""
        self.wait(self.step_s / VALIDATION_COST)(arrays[0], arrays[-1])


@dataclass(frozen=True)
class Trained:
    """A step of the network."""

    network: CdbNetwork
    added_up: int  # the ranks whose gradients `meet` adds up
    meet: Meet
    spent: Spent

    def train(self, *arrays: Any) -> float:
        """Compute gradients, take their mean over all ranks, apply it."""
        with self.spent.during("compute"):
            loss, gradients = self.network.gradients(*self.network.inputs(*arrays))
            lost = float(loss)
        gradients = self.meet(gradients)
        with self.spent.during("compute"):
            self.network.apply([each / self.added_up for each in gradients])
        return lost

    def validate(self, *arrays: Any) -> None:
        """Compute the classes."""
        self.network.validate(self.network.inputs(*arrays)[0]).numpy()


@dataclass
class Training:
    """A training of one rank, from the first batch to the last."""

    rules: Rules
    train: Any  # the batches
    validations: Sequence[Any]  # those of each pass
    step: Step
    spent: Spent
    delivered: dict[Phase, list[int]] = field(default_factory=lambda: {TRAIN: [], VALIDATION: []})
    begun: list[Iterator[Any]] = field(default_factory=list)  # what goes on behind them ends when the clock has
    bytes_read: int = 0
    losses: list[float | None] = field(default_factory=list)
    step_load_s: list[float] = field(default_factory=list)
    step_compute_s: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Do all epochs, within the clock; what is neither waiting nor a step is book-keeping, `other`."""
        batches = self._begun(self.train)
        for epoch in range(self.rules.epochs):
            for number in range(self.rules.steps):
                with self.spent.during("other"):
                    self._at(TRAIN, epoch, epoch * self.rules.steps + number)
                    if not self._step(batches):
                        return
            with self.spent.during("other"):
                self._validate(epoch)

    def _step(self, batches: Iterator[Any]) -> bool:
        waited, computed = self.spent.seconds["next"], self.spent.seconds["compute"]
        arrays = self._next(TRAIN, batches)
        self.step_load_s.append(self.spent.seconds["next"] - waited)
        if arrays is None:
            return False
        loss = self.step.train(*arrays)
        self.step_compute_s.append(self.spent.seconds["compute"] - computed)
        self.losses += [] if loss is None else [loss if math.isfinite(loss) else None]
        return True

    def _validate(self, epoch: int) -> None:
        if epoch >= len(self.validations):
            return
        self._at(VALIDATION, epoch)
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
        if batch is None:
            return None
        files, sizes, *arrays = batch
        self.delivered[phase].extend(files.numpy().tolist())
        self.bytes_read += int(sizes.numpy().sum())
        return [*arrays]

    def _at(self, phase: Phase, epoch: int, step: int = -1) -> None:
        if self.spent.log:
            self.spent.log.at(phase, epoch, step)
