"""The training loop and the networks that ``hepcnn`` and ``climate`` share, after NERSC's benchmarks of 2018.

The benchmarks ``hepcnn`` and ``climate`` differ in the files that a rank reads, the network, and the expected counts.
Gradients are computed and applied in separate functions, because the ranks sum the gradients in between.

The network of ``hepcnn`` is that of NERSC/DL-Parallel-IO 290ed4a (2018), `configs/cori_knl_224_adam.json`. The network
has four blocks of 3 x 3 convolution (128 filters), ReLU, 2 x 2 max-pool and dropout. A fifth convolution, an average
over each feature map and a dense layer for two classes follow. The network of ``hepcnn`` has 594,178 parameters.

The network of ``climate`` predicts the class of every point of a 64 x 64 image. This network replaces the network
Tiramisu of CDB, which is far larger. As in CDB, each label is weighted by its class.
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
    """Return the kernel shapes of ``hepcnn``, from the first layer to the last.

    `width` multiplies the number of filters of each layer.
    """
    filters = max(1, round(_HEP_FILTERS * width))
    inner = [(3, 3, filters, filters)] * (_HEP_CONVOLUTIONS - 1)
    return [(3, 3, HEP_CHANNELS, filters), *inner, (filters, _HEP_CLASSES)]


def cdb_kernels(channels: int) -> list[tuple[int, ...]]:
    """Return the kernel shapes of ``climate``, from the first layer to the last, for this number of input channels."""
    return [(3, 3, channels, _CDB_FILTERS), (3, 3, _CDB_FILTERS, _CDB_FILTERS), (1, 1, _CDB_FILTERS, _CDB_CLASSES)]


class SharedNetwork(Network):
    """A network for several ranks: the ranks sum the results of `gradients`, and then each rank calls `apply`.

    `benchmark` is the node ``benchmark`` of the settings.
    """

    def __init__(self, classes: int, seed: int, benchmark: Mapping[str, Any], batch: Any = None) -> None:
        """Create the variables and the TensorFlow functions.

        `batch` is the input signature of images and labels for batches of any size. If `batch` is None, TensorFlow
        traces its functions again for each new shape.
        """
        super().__init__(classes, seed, benchmark)
        self.gradients = tf.function(self._gradients, batch, autograph=False)
        self.apply = tf.function(self._apply, autograph=False)
        self.validate = tf.function(self._validate, batch, autograph=False)

    def inputs(self, *arrays: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the images and labels of a batch as the tensors that the network needs."""
        raise NotImplementedError

    def _validate(self, images: tf.Tensor, _labels: tf.Tensor) -> tf.Tensor:
        return self._logits(images)


class HepNetwork(SharedNetwork):
    """The network of ``hepcnn``; `benchmark` must have the ``image_size`` of the data set."""

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
        """Return the images (n, side, side, 3) unchanged, and the labels one-hot (n, 2)."""
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
                seed = (self._seed, self.steps * len(blocks) + number)  # a different seed for each step and layer
                values = tf.nn.experimental.stateless_dropout(values, self._benchmark["dropout"], seed)
        values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, kernel, 1, "SAME"), bias))
        return tf.reduce_mean(values, (1, 2)) @ self.kernels[-1] + self.biases[-1]


class CdbNetwork(SharedNetwork):
    """The network of ``climate``; `benchmark` must have the number of ``fields`` in an image."""

    def __init__(self, seed: int, benchmark: Mapping[str, Any]) -> None:
        super().__init__(_CDB_CLASSES, seed, benchmark)
        self._resize_function = tf.function(self._resize, autograph=False)

    def inputs(self, *arrays: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return fields (n, channels, height, width) as images of the network's size, and weighted one-hot labels."""
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


# A training step takes about 3 times as long as a validation step, which is only a forward pass: the backward pass
# computes two gradients per layer.
VALIDATION_COST = 3


class NerscTrainer(StepLoop):
    """The training of one rank; a subclass builds the network, and returns each batch as a list of arrays."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        spent: TimeSpent | None,
        kernels: Sequence[tuple[int, ...]],
        *,
        saved: bool,
    ) -> None:
        """Prepare TensorFlow, and build the network if the run trains it or saves snapshots of it (`saved`).

        `kernels` has the kernel shapes of the network, which an emulated step needs, too.
        """
        super().__init__(settings, number, spent)
        self.chosen = accelerator.start_tensorflow(settings)
        start = time.perf_counter()
        self.computes = settings["benchmark"]["control"] != "no_compute"
        trains = self.computes and self.chosen != "emulated"
        network = self.build_network(trains=trains) if trains or saved else None
        self.network = network if trains else None
        self.state = network.state if network else None
        self.emulated_step_s: float | None = settings["accelerator"]["step_s"] if self.computes and not trains else None
        # In an emulated step, the ranks sum these arrays, which have the sizes of the network's gradients.
        shapes = kernels if self.here.adds_up and not trains else ()
        self._zeros = [np.zeros(size, np.float32) for shape in shapes for size in (shape, shape[-1:])]
        self.build_s = time.perf_counter() - start

    def build_network(self, *, trains: bool) -> SharedNetwork:
        """Return the network; if `trains` is false, the run only saves snapshots of the network."""
        raise NotImplementedError

    @property
    def summed_ranks(self) -> int:
        """Return the number of ranks whose gradients are summed in a step: 1 without gradient exchange."""
        return self.here.size if self.here.adds_up else 1

    def step(self, batch: Sequence[Any]) -> float | None:
        """Run a real or emulated step on a batch, and exchange gradients with the other ranks.

        Return the loss, or None if no network is trained.
        """
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
                self.network.apply([gradient / self.summed_ranks for gradient in gradients])
        return loss

    def validate(self, arrays: Sequence[Any]) -> None:
        """Validate the network on the arrays of a batch, or emulate the duration of a validation step."""
        if self.network:
            self.network.validate(*self.network.inputs(*arrays)).numpy()
        elif self.computes:
            self._take_time(arrays, VALIDATION_COST)

    def common_metrics(self, wall_s: float, images: tuple[int, int], size: tuple[int, int]) -> dict[str, Any]:
        """Return the metrics that ``hepcnn`` and ``climate`` have in common.

        `images` has the number of used images and the number of requested images. `size` has the number of read bytes
        and the predicted number of bytes.
        """
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
        """Return the reports of all ranks: the number of steps, `delivered`, and a checksum of the weights.

        The checksum is None if the ranks do not exchange gradients, because their weights then differ.
        """
        weights = None
        if self.network and self.summed_ranks == self.here.size:
            digest = hashlib.sha256()
            for variable in (*self.network.kernels, *self.network.biases):
                digest.update(variable.numpy().tobytes())
            weights = digest.hexdigest()
        return self.here.gather({"steps": steps, "delivered": delivered, "weights": weights})

    def _take_time(self, arrays: Sequence[Any], part: int) -> None:
        """Emulate a step on these arrays that lasts 1/`part` of the duration of a training step."""
        if self.emulated_step_s is not None:
            images, labels = (tf.convert_to_tensor(array) for array in (arrays[0], arrays[-1]))
            accelerator.emulated_step(self.emulated_step_s / part)(images, labels)


def count_expectations(
    noun: str, counts: tuple[Mapping[Any, int], Mapping[Any, int]], size: tuple[int, int]
) -> dict[str, Expectation]:
    """Return what is expected of the counts in each phase and of the bytes, with what was measured.

    `counts` has the measured counts and the predicted counts, by phase. `size` has the measured bytes and the predicted
    bytes. `noun` says in messages what was counted.
    """
    counts_text = ", ".join(f"{count} of {phase}" for phase, count in counts[0].items()) or "none"
    bytes_text = f"{size[0]:,} bytes were read; {size[1]:,} bytes are predicted from the parameters"
    return {
        "counts_as_predicted": {"expected": {**counts[1]}, "found": {**counts[0]}, "message": f"{noun}: {counts_text}"},
        "bytes_as_predicted": {"expected": size[1], "found": size[0], "message": bytes_text},
    }


def equality_expectations(
    reports: Sequence[Mapping[str, Any]], steps: Sequence[int], fault: str, success_text: str
) -> dict[str, Expectation]:
    """Return what is expected of all ranks together: equal steps, each sample once, and equal weights.

    The report of a rank has the number of ``steps``, and ``weights`` (a checksum, or None). `steps` has the expected
    number of steps of each rank. `fault` names a sample or file that was not used exactly once over all ranks. If
    `fault` is empty, `success_text` is the message.
    """
    steps_made, weights = [report["steps"] for report in reports], [report["weights"] for report in reports]
    expected: dict[str, Expectation] = {
        "equal_steps": {
            "expected": steps,
            "found": steps_made,
            "message": f"the ranks ran {', '.join(map(str, dict.fromkeys(steps_made)))} of {steps[0]} steps",
        },
        "every_sample_once": {"expected": "", "found": fault, "message": fault or success_text},
    }
    if any(weights):
        comparison = "equal" if len({*weights}) == 1 else "not equal"
        digests = ", ".join(str(digest)[:12] for digest in dict.fromkeys(weights))
        message = f"the weights of the ranks are {comparison}; SHA-256: {digests}"
        expected["equal_weights"] = {"expected": weights[:1] * len(weights), "found": weights, "message": message}
    return expected
