"""Benchmark ``alexnet``: the mini-application, AlexNet trained from a folder of images (paper III.B-C; Figs 6 to 10).

By hand, on any node::

    python -m jobs alexnet FOLDER --threads 4 --prefetch 1
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from jobs.benchmarks import accelerator, images
from jobs.benchmarks.alexnet_network import Network, state_bytes
from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.data import pipeline
from jobs.lazy_imports import tf
from jobs.model.declared import Setting
from jobs.model.settings import Settings


class AlexNetTraining(images.ImageLoop):
    """The training of AlexNet on batches of images, with snapshots; the step may be emulated or left out.

    A run that trains nothing (``accelerator=emulated``, ``control=no_compute``) but saves snapshots also builds the
    network, and saves its first state, which has the same number of bytes. With ``control=no_io`` the first batch is
    loaded before the clock starts and is used at every step.
    """

    wall_parts = ("startup_s", "load_s", "compute_s", "checkpoint_s", "other_s")
    whole_batches = True
    kind = Network

    @classmethod
    def to_save(cls, settings: Settings, originals: Sequence[Path]) -> tuple[int, int]:
        """Return the number of snapshots and the bytes of one, without building the network and without its index."""
        _, classes = pipeline.class_labels([str(path) for path in originals])
        steps = cls.count_images_read(settings, len(originals)) // settings["batch_size"]
        return steps // settings["checkpoint"]["every"], state_bytes(settings["benchmark"], classes)

    def build_pipeline(self) -> Iterable[Any]:
        """Return the pipeline of batches, and build the network or the emulated step."""
        device, originals = accelerator.DEVICES[self.chosen], [str(path) for path in self.images.originals]
        dataset = pipeline.build_labelled(self.names, self.settings, device, originals, self.images.source)
        self._build_step(device, dataset.element_spec[-1].shape[-1])
        return _from_memory(dataset, self.number) if self.settings["benchmark"]["control"] == "no_io" else dataset

    def begin(self) -> None:
        """Start the pipeline; the clock is running."""
        self.start_input()

    def take(self, *payload: Any) -> float | None:
        """Train on one batch; return the loss after it was copied to the host."""
        with self.spent.during("compute"):
            loss: float | None = self._step_of(*payload)
        return loss

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """Return the raw metrics."""
        return {
            **super().metrics(wall_s),
            **self.saving_metrics(),
            **self._network_built,
            "accelerator": accelerator.accelerator_label(self.chosen),
        }

    def _build_step(self, device: str, classes: int) -> None:
        """Set the step function, and build the network if the run trains or saves one."""
        start, benchmark = time.perf_counter(), self.settings["benchmark"]
        size = {"parameters": 0, "state_bytes": 0}
        idle_step = accelerator.idle_step(self.settings, self.chosen)
        self._step_of: Any = idle_step
        if not idle_step or self.checkpoints:
            with tf.device(device):
                network = self.kind(classes, self.settings["seed"], benchmark)
            if idle_step:
                network.reset()
            else:
                # As in the timed part: TensorFlow prepares a step for the device of its batch and for its scope.
                batch_device = device if benchmark["prefetch_to_device"] else accelerator.HOST
                network.warm_up(self.settings["batch_size"], batch_device)
                self._step_of = network.train
            self.saver = self.checkpoints.saver(network.state) if self.checkpoints else None
            size = {"parameters": network.parameters, "state_bytes": network.state_bytes}
        self._network_built = {"build_s": time.perf_counter() - start, **size}


def _from_memory(dataset: Any, steps: int) -> list[Any]:
    """Return the first batch `steps` times, with 0 bytes read (``control=no_io``); empty if no batch can be loaded."""
    batch = next(iter(dataset), None)
    if batch is None:
        return []
    index, size, pixels, labels = batch
    return [(index, size * 0, pixels, labels)] * steps


Control = Literal["none", "no_io", "no_compute"]
LearningRate = Annotated[float, Meta(ge=0, le=10)]
Width = Annotated[float, Meta(ge=0.01, le=4)]
Dropout = Annotated[float, Meta(ge=0, le=0.99)]


class TrainingKeys(pipeline.PipelineKeys):
    """Training on files."""

    prefetch_to_device: Annotated[
        bool, Setting("whether prefetched batches are copied to the device that computes (the GPU, if there is one)")
    ] = False
    control: Annotated[
        Control,
        Setting(
            "what is left out, for comparison; none: nothing; no_io: reading (one batch in memory is used again and"
            " again); no_compute: the training step"
        ),
    ] = "none"
    optimizer: Annotated[
        Literal["adam", "sgd"],
        Setting(
            "optimizer of the training; adam: Adam; sgd: gradient descent, which has no moments, so that a snapshot"
            " has a third of the bytes"
        ),
    ] = "adam"
    learning_rate: Annotated[LearningRate, Setting("learning rate of the optimizer")] = 1e-4


class Keys(TrainingKeys):
    """Training of AlexNet."""

    width: Annotated[Width, Setting("number of channels and units, relative to AlexNet")] = 1.0
    dropout: Annotated[Dropout, Setting("dropout rate of the first two dense layers")] = 0.5


BENCHMARK = Benchmark(
    name="alexnet",
    version=1,
    kind="training",
    keys=Keys,
    begin=partial(images.begin_image_run, AlexNetTraining),
    figure=Figure("wall_s", "s", "lower"),
    about="train AlexNet from a folder of images, as the paper's mini-application does, and save snapshots if asked",
    rate=images.RATE,
    computes=True,
    saves=True,
    whole_batches=AlexNetTraining.whole_batches,
    wall_parts=AlexNetTraining.wall_parts,
)
