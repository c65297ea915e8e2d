"""The run of one rank of a training: what computes, its clock, and the figures that every such run has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.benchmarks import accelerator, first_use
from jobs.benchmarks.cdb.cdb_network import CdbNetwork
from jobs.benchmarks.hep.hep_network import HepNetwork
from jobs.benchmarks.nersc.nersc_steps import Step
from jobs.events.spent import Spent
from jobs.events.time_log import UNKNOWN
from jobs.lazy_imports import np, tf
from jobs.model.results import Expectation
from jobs.model.settings import Settings
from jobs.ranks.rank import Rank
from jobs.ranks.training_meetings import Meetings


@dataclass
class Training:
    """The book of a training's steps."""

    step: Step
    spent: Spent
    losses: list[float | None] = field(default_factory=list)
    step_load_s: list[float] = field(default_factory=list)
    step_compute_s: list[float] = field(default_factory=list)

    def enter(self, loss: float | None) -> None:
        """Enter the loss of a step, where it has one; None for one that is not finite."""
        self.losses += [] if loss is None else [loss if math.isfinite(loss) else None]

    def at(self, phase: str, epoch: int, step: int = UNKNOWN) -> None:
        """Tell the time log where the training is."""
        if self.spent.log:
            with self.spent.during("other"):  # a log that is due is written now
                self.spent.log.at(phase, epoch, step)


class Run:
    """The run of one rank."""

    def __init__(self, settings: Settings, here: Rank, spent: Spent) -> None:
        """Start TensorFlow."""
        self.settings, self.here, self.spent = settings, here, spent
        self.meetings = Meetings(here, spent)
        self.chosen = accelerator.choose(settings["accelerator"]["name"])
        self.computes = settings["benchmark"]["control"] != "no_compute"
        self.trains = self.computes and self.chosen != "emulated"
        first_use.run_operations_directly()
        tf.random.set_seed(settings["seed"])
        self.build_s = -time.perf_counter()

    def built(self, network: HepNetwork | CdbNetwork | None, kernels: Sequence[tuple[int, ...]]) -> Step:
        """Return what is done with a batch; `kernels` are the shapes of the network's, trained or not."""
        self.build_s += time.perf_counter()
        if not self.computes:
            return Step(self.meetings)
        if self.trains:
            return Step(self.meetings, network)
        summed = kernels if self.here.adds_up else ()
        zeros = [np.zeros(each, np.float32) for shape in summed for each in (shape, shape[-1:])]
        return Step(self.meetings, None, self.settings["accelerator"]["step_s"], zeros)

    def timed(
        self,
        watched: AbstractContextManager[Any],
        work: Callable[[], object],
        after: Callable[[], object] | None = None,
    ) -> float:
        """Return the wall time of `work`, which all ranks begin together; `after` is watched, but not timed."""
        with watched:
            with self.meetings.barrier():
                start = self.here.start()
            work()
            wall_s = time.perf_counter() - start
            with self.meetings.barrier():
                self.here.barrier()
            if after:
                after()
        return wall_s

    def figures(
        self, training: Training, wall_s: float, images: tuple[int, int], size: tuple[int, int]
    ) -> dict[str, Any]:
        """Return what every run has; `images` and `size` (bytes) as found, and as asked for or predicted."""
        seconds, log = self.spent.seconds, self.spent.log
        return {
            "wall_s": wall_s,
            **{f"{each}_s": seconds[each] for each in ("compute", "validate", "other")},
            "sync_s": seconds["communicate"] + seconds["barrier"],
            "step_load_s": training.step_load_s,
            "step_compute_s": training.step_compute_s,
            "step_loss": training.losses,
            "images": images[0],
            "images_asked": images[1],
            "image_errors": 0,
            "unreadable": [],
            "images_per_s": images[0] / wall_s,
            "bytes_read": size[0],
            "bytes_predicted": size[1],
            "read_mb_per_s": size[0] / 1e6 / wall_s,
            "accelerator": accelerator.described(self.chosen),
            "build_s": self.build_s,
            "timelog": Path(str(log.beside["path"])).name if log else None,
        }

    def told(self, training: Training, steps: int, delivered: Any) -> list[Any]:
        """Return what each rank tells of its steps, of what it was `delivered`, and of the network's weights."""
        network = training.step.network
        weights = self.meetings.checksum([*network.kernels, *network.biases]) if network else None
        return self.here.gather({"steps": steps, "delivered": delivered, "weights": weights})


def as_predicted(
    what: str, counts: tuple[Mapping[Any, int], Mapping[Any, int]], size: tuple[int, int]
) -> dict[str, Expectation]:
    """Hold counts by phase and bytes, as found, against those predicted."""
    told = ", ".join(f"{count} of {phase}" for phase, count in counts[0].items()) or "none"
    read = f"{size[0]:,} bytes were read; {size[1]:,} follow from the parameters"
    return {
        "counts_as_predicted": {"expected": {**counts[1]}, "found": {**counts[0]}, "message": f"{what}: {told}"},
        "bytes_as_predicted": {"expected": size[1], "found": size[0], "message": read},
    }
