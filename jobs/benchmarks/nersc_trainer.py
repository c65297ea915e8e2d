"""NERSC's trainer of 2018 for ``hepcnn`` and ``climate``: its networks, its steps, and checks of predicted values.

The two benchmarks differ in the files that a rank reads, the network, and the expected counts. Gradients are computed
and applied separately, because ranks share them.

The network of ``hepcnn`` is NERSC/DL-Parallel-IO 290ed4a (2018), `configs/cori_knl_224_adam.json`: four blocks of 3 x 3
convolution (128 filters), ReLU, 2 x 2 max-pool and dropout, a fifth convolution, an average over each map, two classes;
594,178 parameters. The network of ``climate`` predicts the class of each of 64 x 64 points; it replaces CDB's Tiramisu,
which is far larger. As there, labels have the weight of their class.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.benchmarks import accelerator
from jobs.benchmarks.alexnet_network import Network
from jobs.benchmarks.step_loop import StepLoop, TimeSpent
from jobs.lazy_imports import np, tf
from jobs.model.results import Expectation
from jobs.model.settings import Settings

HEP_CHANNELS = 3
_HEP_CLASSES, _HEP_FILTERS, _HEP_CONVOLUTIONS = 2, 128, 5
_CDB_CLASSES, _CDB_FILTERS = 3, 16


def hep_kernels(width: float) -> list[tuple[int, ...]]:
    """Return the kernel shapes of ``hepcnn``, first layer to last layer; `width` multiplies the number of filters."""
    filters = max(1, round(_HEP_FILTERS * width))
    inner = [(3, 3, filters, filters)] * (_HEP_CONVOLUTIONS - 1)
    return [(3, 3, HEP_CHANNELS, filters), *inner, (filters, _HEP_CLASSES)]


def cdb_kernels(channels: int) -> list[tuple[int, ...]]:
    """Return the kernel shapes of ``climate``, first layer to last layer, for this number of input channels."""
    return [(3, 3, channels, _CDB_FILTERS), (3, 3, _CDB_FILTERS, _CDB_FILTERS), (1, 1, _CDB_FILTERS, _CDB_CLASSES)]


class SharedNetwork(Network):
    """A network whose `gradients` the ranks sum before they `apply` them; `benchmark` is the node of the settings."""

    def __init__(self, classes: int, seed: int, benchmark: Mapping[str, Any], batch: Any = None) -> None:
        """Make the variables; `batch` is the signature of images and labels, if one trace serves all batches."""
        super().__init__(classes, seed, benchmark)
        self.gradients = tf.function(self._gradients, batch, autograph=False)
        self.apply = tf.function(self._apply, autograph=False)
        self.validate = tf.function(self._validate, batch, autograph=False)

    def inputs(self, *arrays: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the images and labels in the form of the network's input."""
        raise NotImplementedError

    def _validate(self, images: tf.Tensor, _labels: tf.Tensor) -> tf.Tensor:
        return self._logits(images)


class HepNetwork(SharedNetwork):
    """The network of ``hepcnn``; `benchmark` has the ``image_size`` of the data set."""

    def __init__(self, seed: int, benchmark: Mapping[str, Any]) -> None:
        side = benchmark["image_size"]
        batch = [tf.TensorSpec((None, side, side, HEP_CHANNELS)), tf.TensorSpec((None, _HEP_CLASSES))]
        super().__init__(_HEP_CLASSES, seed, benchmark, batch)

    def train(self, images: tf.Tensor, labels: tf.Tensor) -> float:
        """Train one step without other ranks, validate on the same batch, and return the loss."""
        loss, gradients = self.gradients(images, labels)
        self.apply(gradients)
        self.validate(images, labels)
        return float(loss)

    def inputs(self, images: Any, labels: Any, *_: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return images (n, side, side, 3) unchanged, and labels (n,) one-hot."""
        return tf.convert_to_tensor(images), tf.one_hot(labels, _HEP_CLASSES)

    def _shapes(self) -> Sequence[tuple[int, ...]]:
        return hep_kernels(self._benchmark["width"])

    def _validate(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, self._logits(images, use_dropout=False)))

    def _logits(self, images: tf.Tensor, *, use_dropout: bool = True) -> tf.Tensor:
        values = images
        *blocks, (kernel, bias) = zip(self.kernels[:-1], self.biases[:-1], strict=True)
        for number, (block_kernel, block_bias) in enumerate(blocks):
            values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, block_kernel, 1, "SAME"), block_bias))
            values = tf.nn.max_pool2d(values, 2, 2, "SAME")
            if use_dropout:
                seed = (self._seed, self.steps * len(blocks) + number)  # distinct for each step and layer
                values = tf.nn.experimental.stateless_dropout(values, self._benchmark["dropout"], seed)
        values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, kernel, 1, "SAME"), bias))
        return tf.reduce_mean(values, (1, 2)) @ self.kernels[-1] + self.biases[-1]


class CdbNetwork(SharedNetwork):
    """The network of ``climate``; `benchmark` has the number of ``fields``."""

    def __init__(self, seed: int, benchmark: Mapping[str, Any]) -> None:
        super().__init__(_CDB_CLASSES, seed, benchmark)
        self._resize_function = tf.function(self._resize, autograph=False)

    def inputs(self, *arrays: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return fields (n, channels, height, width) as images of the network's size, and labels with class weights."""
        resized: tuple[tf.Tensor, tf.Tensor] = self._resize_function(*arrays)
        return resized

    def _shapes(self) -> Sequence[tuple[int, ...]]:
        return cdb_kernels(self._benchmark["fields"])

    def _resize(self, fields: tf.Tensor, classes: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        side = (self._benchmark["image_size"],) * 2
        labels = tf.one_hot(classes, _CDB_CLASSES) * weights[..., None]
        images = tf.image.resize(tf.transpose(fields, (0, 2, 3, 1)), side)
        return images, tf.image.resize(labels, side, "nearest")

    def _logits(self, images: tf.Tensor) -> tf.Tensor:
        values = images
        for kernel, bias in zip(self.kernels[:-1], self.biases[:-1], strict=True):
            values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, kernel, 1, "SAME"), bias))
        return tf.nn.bias_add(tf.nn.conv2d(values, self.kernels[-1], 1, "SAME"), self.biases[-1])


VALIDATION_COST = 3  # a forward pass is about a third of a step: the backward pass computes two gradients per layer


class NerscTrainer(StepLoop):
    """The training of one rank; a subclass builds the network, and returns batches as lists of arrays."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        spent: TimeSpent | None,
        kernels: Sequence[tuple[int, ...]],
        *,
        saved: bool,
    ) -> None:
        """Start TensorFlow; build the network if needed; `kernels` has the kernel shapes, even without a network."""
        super().__init__(settings, number, spent)
        self.chosen = accelerator.start_tensorflow(settings)
        start = time.perf_counter()
        self.computes = settings["benchmark"]["control"] != "no_compute"
        trains = self.computes and self.chosen != "emulated"
        network = self.build_network(trains=trains) if trains or saved else None
        self.network = network if trains else None
        self.state = network.state if network else None
        self.takes_s: float | None = settings["accelerator"]["step_s"] if self.computes and not trains else None
        # Arrays with the sizes of the network's gradients, which the ranks sum in an emulated step.
        shapes = kernels if self.here.adds_up and not trains else ()
        self._zeros = [np.zeros(size, np.float32) for shape in shapes for size in (shape, shape[-1:])]
        self.build_s = time.perf_counter() - start

    def build_network(self, *, trains: bool) -> SharedNetwork:
        """Return the network, for training (`trains`) or only to be saved."""
        raise NotImplementedError

    @property
    def added_up(self) -> int:
        """Return the number of ranks whose gradients are summed in a step."""
        return self.here.size if self.here.adds_up else 1

    def step(self, batch: Sequence[Any]) -> float | None:
        """Run a real or emulated step on a batch with the other ranks; return the loss, None without a network."""
        if not self.computes:
            return None
        loss, gradients = None, self._zeros
        with self.spent.during("compute"):
            if self.network:
                loss_tensor, gradients = self.network.gradients(*self.network.inputs(*batch))
                loss = float(loss_tensor)
            else:
                self._take_time(batch, 1)
        gradients = [*self.meet(gradients)]
        if self.network:
            with self.spent.during("compute"):
                self.network.apply([gradient / self.added_up for gradient in gradients])
        return loss

    def validate(self, arrays: Sequence[Any]) -> None:
        """Validate the network on these arrays, or emulate the duration of a validation."""
        if self.network:
            self.network.validate(*self.network.inputs(*arrays)).numpy()
        elif self.computes:
            self._take_time(arrays, VALIDATION_COST)

    def common_metrics(self, wall_s: float, images: tuple[int, int], size: tuple[int, int]) -> dict[str, Any]:
        """Return the common metrics; `images` is (found, requested), `size` in bytes is (found, predicted)."""
        return {
            **super().metrics(wall_s),
            "images": images[0],
            "images_asked": images[1],
            "image_errors": 0,
            "unreadable": [],
            "images_per_s": images[0] / wall_s,
            "bytes_read": size[0],
            "bytes_predicted": size[1],
            "read_mb_per_s": size[0] / 1e6 / wall_s,
            "accelerator": accelerator.accelerator_label(self.chosen),
            "build_s": self.build_s,
        }

    def reports(self, steps: int, delivered: Any) -> list[Any]:
        """Return the reports of all ranks: steps, `delivered`, and a checksum of the weights if they are shared."""
        weights = None
        if self.network and self.added_up == self.here.size:
            digest = hashlib.sha256()
            for variable in (*self.network.kernels, *self.network.biases):
                digest.update(variable.numpy().tobytes())
            weights = digest.hexdigest()
        return self.here.gather({"steps": steps, "delivered": delivered, "weights": weights})

    def _take_time(self, arrays: Sequence[Any], part: int) -> None:
        """Emulate 1/`part` of a step on these arrays."""
        if self.takes_s is not None:
            images, labels = (tf.convert_to_tensor(array) for array in (arrays[0], arrays[-1]))
            accelerator.emulated_step(self.takes_s / part)(images, labels)


def count_expectations(
    noun: str, counts: tuple[Mapping[Any, int], Mapping[Any, int]], size: tuple[int, int]
) -> dict[str, Expectation]:
    """Return the expectations for counts by phase and for bytes; each pair is (found, predicted)."""
    counts_text = ", ".join(f"{count} of {phase}" for phase, count in counts[0].items()) or "none"
    bytes_text = f"{size[0]:,} bytes were read; {size[1]:,} follow from the parameters"
    return {
        "counts_as_predicted": {"expected": {**counts[1]}, "found": {**counts[0]}, "message": f"{noun}: {counts_text}"},
        "bytes_as_predicted": {"expected": size[1], "found": size[0], "message": bytes_text},
    }


def equality_expectations(
    reports: Sequence[Mapping[str, Any]], steps: Sequence[int], fault: str, success_text: str
) -> dict[str, Expectation]:
    """Return the expectations over all ranks; a report has ``steps`` and ``weights`` (a checksum, or None).

    `steps` has the expected number per rank. `fault` says which samples did not come exactly once over all ranks
    (empty: all did); `success_text` is the message in that case.
    """
    steps_made, weights = [report["steps"] for report in reports], [report["weights"] for report in reports]
    expected: dict[str, Expectation] = {
        "equal_steps": {
            "expected": steps,
            "found": steps_made,
            "message": f"steps of each rank: {', '.join(map(str, dict.fromkeys(steps_made)))} of {steps[0]}",
        },
        "every_sample_once": {"expected": "", "found": fault, "message": fault or success_text},
    }
    if any(weights):
        comparison = "the same" if len({*weights}) == 1 else "not the same"
        digests = ", ".join(str(digest)[:12] for digest in dict.fromkeys(weights))
        message = f"the weights of the ranks are {comparison}: {digests}"
        expected["equal_weights"] = {"expected": weights[:1] * len(weights), "found": weights, "message": message}
    return expected
