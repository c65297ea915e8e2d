"""AlexNet and its training step on plain TensorFlow variables: softmax cross-entropy, with Adam or SGD (paper III.B).

The network follows Krizhevsky, Sutskever, Hinton 2012 (doi 10.1145/3065386), but has one tower and no response
normalisation. AlexNet has five convolutions, three max-pools, three dense layers, ReLU and dropout; for 102 classes, it
has 58.7 million parameters. The kernels of hidden layers are initialised as in He et al. 2015 (arXiv 1502.01852), and
all other variables are initialised to zero. The optimizer Adam follows Kingma, Ba 2015 (arXiv 1412.6980).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.lazy_imports import tf

_COLOURS = 3
_POOL, _POOL_STRIDE = 3, 2
_DENSE = (4096, 4096)
_VALUE_BYTES, _COUNT_BYTES = 4, 8  # float32, int64
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Kingma, Ba 2015, algorithm 1


@dataclass(frozen=True)
class _Convolution:
    window: int
    stride: int
    padding: int
    channels: int
    pooled: bool


_CONVOLUTIONS = (
    _Convolution(window=11, stride=4, padding=2, channels=96, pooled=True),
    _Convolution(window=5, stride=1, padding=2, channels=256, pooled=True),
    _Convolution(window=3, stride=1, padding=1, channels=384, pooled=False),
    _Convolution(window=3, stride=1, padding=1, channels=384, pooled=False),
    _Convolution(window=3, stride=1, padding=1, channels=256, pooled=True),
)


def kernel_shapes(image_size: int, classes: int, width: float) -> list[tuple[int, ...]]:
    """Return AlexNet's kernel shapes, from the first layer to the last.

    `width` multiplies the number of channels or units of each hidden layer.
    """
    shapes: list[tuple[int, ...]] = []
    side, channels = image_size, _COLOURS
    for layer in _CONVOLUTIONS:
        shapes.append((layer.window, layer.window, channels, _scaled(layer.channels, width)))
        side, channels = (side + 2 * layer.padding - layer.window) // layer.stride + 1, shapes[-1][-1]
        if layer.pooled:
            side = max(1, (side - _POOL) // _POOL_STRIDE + 1)
    units = [side * side * channels, *(_scaled(units, width) for units in _DENSE), classes]
    return [*shapes, *itertools.pairwise(units)]


def state_bytes(benchmark: Mapping[str, Any], classes: int) -> int:
    """Return the bytes of all variables of AlexNet, including the step counter and, for Adam, the two moments."""
    shapes = kernel_shapes(benchmark["image_size"], classes, benchmark["width"])
    return network_bytes(shapes, moments=_with_moments(benchmark))


def network_bytes(shapes: Sequence[tuple[int, ...]], *, moments: bool = True) -> int:
    """Return the bytes of all variables of a network with these kernel shapes; `moments` adds Adam's two moments."""
    parameters = sum(math.prod(shape) + shape[-1] for shape in shapes)
    return (3 if moments else 1) * parameters * _VALUE_BYTES + _COUNT_BYTES


def _with_moments(benchmark: Mapping[str, Any]) -> bool:
    return bool(benchmark.get("optimizer", "adam") == "adam")  # hepcnn and climate always use Adam


def _scaled(size: int, width: float) -> int:
    return max(1, round(size * width))


class Network:
    """A network with its optimizer: all variables, and the training step that changes them.

    All variables are zero until `warm_up` or `reset` is called. The `seed` determines the initial weights and every
    dropout. `benchmark` is the node ``benchmark`` of the settings. A subclass overrides `channels`, `_shapes` and
    `_logits`.
    """

    channels = _COLOURS

    def __init__(self, classes: int, seed: int, benchmark: Mapping[str, Any]) -> None:
        self._classes, self._seed, self._benchmark = classes, seed, benchmark
        shapes, has_moments = self._shapes(), _with_moments(benchmark)
        self.kernels = [tf.Variable(tf.zeros(shape)) for shape in shapes]
        self.biases = [tf.Variable(tf.zeros(shape[-1:])) for shape in shapes]
        self.means, self.squares = (
            [tf.Variable(tf.zeros(weight.shape)) for weight in (self._weights if has_moments else ())] for _ in range(2)
        )
        self.steps = tf.Variable(0, dtype=tf.int64)
        # The step has no Python control flow that AutoGraph could convert, and AutoGraph would leave a temporary file.
        self._step = tf.function(self._change, autograph=False)

    def _shapes(self) -> Sequence[tuple[int, ...]]:
        return kernel_shapes(self._benchmark["image_size"], self._classes, self._benchmark["width"])

    @property
    def _weights(self) -> list[tf.Variable]:
        return [*self.kernels, *self.biases]

    @property
    def state(self) -> dict[str, Any]:
        """Return, by name, all variables that a snapshot must have so that the training can continue exactly.

        The dictionary is for ``tf.train.Checkpoint(**state)``. For Adam, the moments are `means` (of the
        gradients) and `squares`; SGD has no moments. The dropout is determined by the seed and `steps`.
        """
        moments = ("means", "squares") if self.means else ()
        return {name: getattr(self, name) for name in ("kernels", "biases", *moments, "steps")}

    @property
    def parameters(self) -> int:
        """Return the number of trained values: all weights and biases."""
        return sum(math.prod(weight.shape) for weight in self._weights)

    @property
    def state_bytes(self) -> int:
        """Return the bytes of all variables, including the step counter and, for Adam, the two moments."""
        variables = [*self._weights, *self.means, *self.squares, self.steps]
        return sum(math.prod(variable.shape) * variable.dtype.size for variable in variables)

    def train(self, images: tf.Tensor, labels: tf.Tensor) -> float:
        """Train one step, and return the loss that the batch had before this step.

        When this method returns, all variables are updated and the loss is in host memory. `images` is a float32
        tensor ``(n, image_size, image_size, channels)`` with values from 0 to 1. `labels` is a one-hot float32 tensor
        ``(n, classes)``.
        """
        return float(self._step(images, labels).numpy())

    def warm_up(self, batch_size: int, device: str) -> None:
        """Trace the training step for this batch size on `device`, run one step on zeros, and reset all variables."""
        size = self._benchmark["image_size"]
        with tf.device(device):
            images, labels = tf.zeros((batch_size, size, size, self.channels)), tf.zeros((batch_size, self._classes))
        self.train(images, labels)
        self.reset()

    def reset(self) -> None:
        """Set every variable to its initial value for this seed."""
        *hidden, last = self.kernels
        # If the last kernel is zero, no class is preferred, and the first loss is ln(classes).
        for variable in [last, *self.biases, *self.means, *self.squares, self.steps]:
            variable.assign(tf.zeros_like(variable))
        for number, kernel in enumerate(hidden):
            deviation = math.sqrt(2 / math.prod(kernel.shape[:-1]))
            # The second seed is negative, because the dropout of the steps uses the seeds from 0 on.
            kernel.assign(tf.random.stateless_normal(kernel.shape, (self._seed, -1 - number), stddev=deviation))

    def _change(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss, gradients = self._gradients(images, labels)
        self._apply(gradients)
        return loss

    def _gradients(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        with tf.GradientTape() as tape:
            losses = tf.nn.softmax_cross_entropy_with_logits(labels, self._logits(images))
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, self._weights)

    def _apply(self, gradients: Sequence[tf.Tensor]) -> None:
        if self.means:
            self._adam(gradients)
            return
        self.steps.assign_add(1)
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.assign_sub(self._benchmark["learning_rate"] * gradient)

    def _adam(self, gradients: Sequence[tf.Tensor]) -> None:
        step = tf.cast(self.steps.assign_add(1), tf.float32)
        beta_1_power, beta_2_power = _BETA_1**step, _BETA_2**step
        for weight, mean, square, gradient in zip(self._weights, self.means, self.squares, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=beta_1_power,
                beta2_power=beta_2_power,
                lr=self._benchmark["learning_rate"],
                beta1=_BETA_1,
                beta2=_BETA_2,
                epsilon=_EPSILON,
                grad=gradient,
            )

    def _logits(self, images: tf.Tensor) -> tf.Tensor:
        values = images - 0.5
        layers = list(zip(self.kernels, self.biases, strict=True))
        for layer, (kernel, bias) in zip(_CONVOLUTIONS, layers[: len(_CONVOLUTIONS)], strict=True):
            pad = (layer.padding, layer.padding)
            values = tf.nn.conv2d(values, kernel, layer.stride, [(0, 0), pad, pad, (0, 0)])
            values = tf.nn.relu(tf.nn.bias_add(values, bias))
            if layer.pooled:
                fits = values.shape[1] >= _POOL  # for small images, the feature maps are smaller than the pool window
                values = tf.nn.max_pool2d(values, _POOL, _POOL_STRIDE, "VALID" if fits else "SAME")
        values = tf.reshape(values, (values.shape[0], -1))
        *hidden, (kernel, bias) = layers[len(_CONVOLUTIONS) :]
        for number, (hidden_kernel, hidden_bias) in enumerate(hidden):
            values = tf.nn.relu(tf.nn.bias_add(values @ hidden_kernel, hidden_bias))
            seed = (self._seed, self.steps * len(hidden) + number)  # a different seed for each step and layer
            values = tf.nn.experimental.stateless_dropout(values, self._benchmark["dropout"], seed)
        return tf.nn.bias_add(values @ kernel, bias)
