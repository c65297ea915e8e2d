"""What is done with a batch: a network is trained, or its time is taken, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.benchmarks import accelerator
from jobs.benchmarks.cdb.cdb_network import CdbNetwork
from jobs.benchmarks.hep.hep_network import HepNetwork
from jobs.lazy_imports import tf
from jobs.ranks.training_meetings import Meetings

VALIDATION_COST = 3  # a step's forward pass is about a third of it: the backward pass computes two gradients a layer


@dataclass(frozen=True)
class Step:
    """A step of `network`, or else one that takes `step_s`, or else, ``control=no_compute``, nothing.

    `zeros`: of a step that takes its time, as many bytes as the network's gradients, for the ranks to add up.
    """

    meetings: Meetings
    network: HepNetwork | CdbNetwork | None = None
    step_s: float | None = None
    zeros: Sequence[Any] = ()

    def train(self, *arrays: Any) -> float | None:
        """Train on the arrays of a batch, together with the other ranks; returns the loss where there is one."""
        if self.network is None and self.step_s is None:
            return None
        loss, gradients = None, self.zeros
        with self.meetings.spent.during("compute"):
            if self.network:
                lost, gradients = self.network.gradients(*self.network.inputs(*arrays))
                loss = float(lost)
            else:
                self._take(1, arrays)
        gradients = self.meetings.step(gradients)
        if self.network:
            with self.meetings.spent.during("compute"):
                self.network.apply([each / self.meetings.added_up for each in gradients])
        return loss

    def validate(self, *arrays: Any) -> None:
        """Look how good the network is."""
        if self.network:
            self.network.validate(*self.network.inputs(*arrays)).numpy()
        else:
            self._take(VALIDATION_COST, arrays)

    def _take(self, part: int, arrays: Sequence[Any]) -> None:
        """Take the batch, and wait for a part of a step."""
        if self.step_s is not None:
            images, labels = (tf.convert_to_tensor(each) for each in (arrays[0], arrays[-1]))
            accelerator.emulated(self.step_s / part)(images, labels)
