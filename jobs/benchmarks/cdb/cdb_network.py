"""A small network that tells of each point of the fields which class it is: three convolutions, for 64 x 64 points.

It stands in for CDB's Tiramisu, which is far larger; labels come weighted by their class, as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.benchmarks.alexnet_network import Network
from jobs.lazy_imports import tf

CLASSES = 3
_FILTERS = 16


def kernel_shapes(channels: int) -> list[tuple[int, ...]]:
    """Return the shapes of the kernels from the first layer to the last."""
    return [(3, 3, channels, _FILTERS), (3, 3, _FILTERS, _FILTERS), (1, 1, _FILTERS, CLASSES)]


class CdbNetwork(Network):
    """The network; `benchmark` is the node of the settings with the number of ``fields``."""

    def __init__(self, seed: int, benchmark: Mapping[str, Any]) -> None:
        super().__init__(CLASSES, seed, benchmark)
        self.gradients = tf.function(self._gradients, autograph=False)
        self.apply = tf.function(self._apply, autograph=False)
        self.inputs = tf.function(self._inputs, autograph=False)
        self.validate = tf.function(lambda images, _labels: self._logits(images), autograph=False)

    def _shapes(self) -> Sequence[tuple[int, ...]]:
        return kernel_shapes(self._benchmark["fields"])

    def _inputs(self, fields: tf.Tensor, classes: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Bring fields (n, channels, height, width) and classes to the network's size; returns images and labels."""
        side = (self._benchmark["image_size"],) * 2
        labels = tf.one_hot(classes, CLASSES) * weights[..., None]
        images = tf.image.resize(tf.transpose(fields, (0, 2, 3, 1)), side)
        return images, tf.image.resize(labels, side, "nearest")

    def _logits(self, images: tf.Tensor) -> tf.Tensor:
        values = images
        for kernel, bias in zip(self.kernels[:-1], self.biases[:-1], strict=True):
            values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, kernel, 1, "SAME"), bias))
        return tf.nn.bias_add(tf.nn.conv2d(values, self.kernels[-1], 1, "SAME"), self.biases[-1])
