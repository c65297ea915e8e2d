"""What a benchmark sees of the other ranks of its run: where they meet, and what they tell one another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Rank:
    """The only rank of its run: nothing to wait for, nothing to tell."""

    rank = 0
    size = 1
    sync = "none"
    """What a step does: ``none``, ``barrier`` or ``allreduce``."""
    private_caches = True
    """Whether what one rank reads is in no page cache of another one."""

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return this rank's part of what the ranks divide among them: disjoint, and all of it together."""
        return items[self.rank :: self.size]

    def start(self) -> float:
        """Wait for all ranks, then begin: returns `time.perf_counter`, the start of the clock; called once."""
        return time.perf_counter()

    def barrier(self) -> None:
        """Wait until all ranks have come here."""

    def gather(self, value: Any) -> list[Any]:
        """Return what each rank says here, JSON, in their order; not within the clock."""
        return [value]

    def allreduce(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the sums over all ranks of tensors of the same shapes and types; where ``sync`` is ``allreduce``."""
        return list(tensors)

    def meet(self, tensors: Sequence[Any] = ()) -> list[Any]:
        """Do what a step does by ``sync``: nothing, wait for all, or add up tensors over all; returns them."""
        if self.sync == "barrier":
            self.barrier()
        return self.allreduce(tensors) if self.sync == "allreduce" else list(tensors)


_HERE = Rank()


def here() -> Rank:
    """Return this process's place among the ranks of its run."""
    return _HERE
