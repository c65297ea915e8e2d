"""HEPCNNB's network and a step of its training: five convolutions, an average over each map, Adam.

NERSC/DL-Parallel-IO 290ed4a (2018), `configs/cori_knl_224_adam.json`: four blocks of 3 x 3 convolution (128 filters),
ReLU, 2 x 2 max-pool and dropout, a fifth convolution, two classes; 594,178 parameters. A step ends with gradients that
all ranks share, so computing them and applying them are apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.benchmarks.alexnet_network import Network
from jobs.benchmarks.hep.hep_rules import CHANNELS
from jobs.lazy_imports import tf

CLASSES = 2
_FILTERS, _CONVOLUTIONS = 128, 5


def kernel_shapes(width: float) -> list[tuple[int, ...]]:
    """Return the shapes of the kernels from the first layer to the last; `width` multiplies the filters."""
    filters = max(1, round(_FILTERS * width))
    return [(3, 3, CHANNELS, filters), *[(3, 3, filters, filters)] * (_CONVOLUTIONS - 1), (filters, CLASSES)]


class HepNetwork(Network):
    """The network; `benchmark` is the node of the settings with the ``image_size`` of the data set."""

    def __init__(self, seed: int, benchmark: Mapping[str, Any]) -> None:
        super().__init__(CLASSES, seed, benchmark)
        side = benchmark["image_size"]
        batch = [tf.TensorSpec((None, side, side, CHANNELS)), tf.TensorSpec((None, CLASSES))]
        self.gradients = tf.function(self._gradients, batch, autograph=False)
        self.apply = tf.function(self._apply, autograph=False)
        self.validate = tf.function(self._validate, batch, autograph=False)

    def train(self, images: tf.Tensor, labels: tf.Tensor) -> float:
        """Do a step that no other rank takes part in, and a validation of the same batch."""
        loss, gradients = self.gradients(images, labels)
        self.apply(gradients)
        self.validate(images, labels)
        return float(loss)

    def inputs(self, images: Any, labels: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return images (n, side, side, 3) as they are, and labels (n,) one-hot."""
        return tf.convert_to_tensor(images), tf.one_hot(labels, CLASSES)

    def _shapes(self) -> Sequence[tuple[int, ...]]:
        return kernel_shapes(self._benchmark["width"])

    def _validate(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, self._logits(images, dropped=False)))

    def _logits(self, images: tf.Tensor, *, dropped: bool = True) -> tf.Tensor:
        values = images
        *blocks, (kernel, bias) = zip(self.kernels[:-1], self.biases[:-1], strict=True)
        for number, (block_kernel, block_bias) in enumerate(blocks):
            values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, block_kernel, 1, "SAME"), block_bias))
            values = tf.nn.max_pool2d(values, 2, 2, "SAME")
            if dropped:
                seed = (self._seed, self.steps * len(blocks) + number)  # no step and no layer draws what another drew
                values = tf.nn.experimental.stateless_dropout(values, self._benchmark["dropout"], seed)
        values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, kernel, 1, "SAME"), bias))
        return tf.reduce_mean(values, (1, 2)) @ self.kernels[-1] + self.biases[-1]
