"""What a training on several ranks does with the others in each step, and what must be equal over them afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from jobs.events.spent import Spent
from jobs.model.results import Expectation
from jobs.ranks.rank import Rank


@dataclass(frozen=True)
class Meetings:
    """Where a rank of a training meets the others, and the time that goes there."""

    here: Rank
    spent: Spent

    @property
    def added_up(self) -> int:
        """The ranks whose gradients a step adds up."""
        return self.here.size if self.here.adds_up else 1

    def step(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Add gradients up over the ranks, or wait for all, or neither."""
        if self.here.sync == "none":
            return gradients
        with self.spent.during("communicate" if self.here.adds_up else "barrier"):
            return self.here.meet(gradients)

    def barrier(self) -> AbstractContextManager[Any]:
        """Log a barrier outside the clock, by which the clocks of several nodes are compared."""
        return self.spent.log.event("barrier") if self.spent.log and self.here.size > 1 else nullcontext()

    def checksum(self, weights: Iterable[Any]) -> str | None:
        """Return a checksum of a network's weights, where all ranks train it together; None where they do not."""
        if self.added_up < self.here.size:
            return None
        digest = hashlib.sha256()
        for weight in weights:
            digest.update(weight.numpy().tobytes())
        return digest.hexdigest()


def alike(reports: Sequence[Mapping[str, Any]], steps: Sequence[int], fault: str, fine: str) -> dict[str, Expectation]:
    """Hold against each other what the ranks tell, ``steps`` and ``weights`` (a checksum, or None).

    ``steps`` are those that each rank was to make; ``fault`` says what of the samples did not come just once over all
    ranks, ``fine`` that all did.
    """
    made, weights = [each["steps"] for each in reports], [each["weights"] for each in reports]
    expected: dict[str, Expectation] = {
        "equal_steps": {
            "expected": steps,
            "found": made,
            "message": f"steps of each rank: {', '.join(map(str, dict.fromkeys(made)))} of {steps[0]}",
        },
        "every_sample_once": {"expected": "", "found": fault, "message": fault or fine},
    }
    if any(weights):
        same = "the same" if len({*weights}) == 1 else "not the same"
        message = f"the weights of the ranks are {same}: {', '.join(str(each)[:12] for each in dict.fromkeys(weights))}"
        expected["equal_weights"] = {"expected": weights[:1] * len(weights), "found": weights, "message": message}
    return expected
