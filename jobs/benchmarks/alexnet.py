"""Benchmark ``alexnet``: train AlexNet on a folder of images.

This benchmark is the mini-application of Chien et al. 2018 (III.B-C; Figs 6 to 10). To run the benchmark by hand, on
any node::

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
    """A training of AlexNet on batches of images that can save snapshots; its steps are real, emulated or left out.

    With ``accelerator=emulated`` or ``control=no_compute``, no network is trained. If such a run saves snapshots, it
    builds the network and saves the initial variables, which have as many bytes as trained variables. With
    ``control=no_io``, the first batch is loaded before the clock starts, and every step uses this batch.
    """

    wall_parts = ("startup_s", "load_s", "compute_s", "checkpoint_s", "other_s")
    whole_batches = True
    kind = Network

    @classmethod
    def count_snapshots(cls, settings: Settings, originals: Sequence[Path]) -> tuple[int, int]:
        """Return the number of snapshots of a run, and the bytes of one snapshot without its index file.

        The network is not built for this calculation.
        """
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
        """Start the input pipeline, while the clock is running."""
        self.start_input()

    def take(self, *payload: Any) -> float | None:
        """Train on one batch, and return the loss when the loss is in host memory."""
        with self.spent.during("compute"):
            loss: float | None = self._step_of(*payload)
        return loss

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """Return the raw metrics of the training."""
        return {
            **super().metrics(wall_s),
            **self.saving_metrics(),
            **self._network_built,
            "accelerator": accelerator.accelerator_label(self.chosen),
        }

    def _build_step(self, device: str, classes: int) -> None:
        """Set the step function, and build the network if the run trains it or saves snapshots of it."""
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
                # TensorFlow compiles a step for one device of the batch, so the warm-up uses the device of timed steps.
                batch_device = device if benchmark["prefetch_to_device"] else accelerator.HOST
                network.warm_up(self.settings["batch_size"], batch_device)
                self._step_of = network.train
            self.saver = self.checkpoints.saver(network.state) if self.checkpoints else None
            size = {"parameters": network.parameters, "state_bytes": network.state_bytes}
        self._network_built = {"build_s": time.perf_counter() - start, **size}


def _from_memory(dataset: Any, steps: int) -> list[Any]:
    """Return the first batch `steps` times, with 0 bytes read, for ``control=no_io``.

    The list is empty if the dataset yields no batch.
    """
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
        bool, Setting("whether prefetched batches are copied to the accelerator's memory before the step asks for them")
    ] = False
    control: Annotated[
        Control,
        Setting(
            "part of the training that is left out, for comparison; none: nothing; no_io: reading (every step uses the"
            " same batch in memory); no_compute: the training step"
        ),
    ] = "none"
    optimizer: Annotated[
        Literal["adam", "sgd"],
        Setting(
            "optimizer of the training; adam: Adam; sgd: gradient descent, whose snapshots have a third of the bytes"
            " because they have no moments"
        ),
    ] = "adam"
    learning_rate: Annotated[LearningRate, Setting("learning rate of the optimizer")] = 1e-4


class Keys(TrainingKeys):
    """Training of AlexNet."""

    width: Annotated[Width, Setting("factor on AlexNet's numbers of channels and units per layer")] = 1.0
    dropout: Annotated[Dropout, Setting("dropout rate of the first two dense layers")] = 0.5


BENCHMARK = Benchmark(
    name="alexnet",
    version=1,
    kind="training",
    keys=Keys,
    begin=partial(images.begin_image_run, AlexNetTraining),
    figure=Figure("wall_s", "s", "lower"),
    about="train AlexNet on a folder of images, as the paper's mini-application does, and optionally save snapshots",
    rate=images.RATE,
    computes=True,
    saves=True,
    whole_batches=AlexNetTraining.whole_batches,
    wall_parts=AlexNetTraining.wall_parts,
)
