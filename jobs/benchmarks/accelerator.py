"""Choose the device that computes the steps (CPU, GPU or emulated GPU), and prepare TensorFlow for a run.

TensorFlow does slow work at its first use in a process. This module does a part of TensorFlow's slow work before runs
are forked, and switches another part off. TensorFlow has no public interface for such changes. If a version of
TensorFlow raises an error in this module, the error is ignored, and runs only start more slowly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, MappingView, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs.errors import NoGpuError
from jobs.lazy_imports import tf
from jobs.model.settings import Settings
from jobs.system import clock

HOST = "/CPU:0"
"""The TensorFlow device on which the input pipeline produces the batches."""
DEVICES = {"cpu": HOST, "gpu": "/GPU:0", "emulated": HOST}
"""For each accelerator name, the TensorFlow device that holds the input tensors of a training step."""


_GPUS = ("nvidia[0-9]*", "nvidiactl", "nvgpu*", "nvhost-gpu", "kfd", "dxg")  # file name patterns of GPUs in /dev


def require_possible(name: str) -> None:
    """Raise NoGpuError if the accelerator `name` is ``gpu`` but programs on this machine cannot use a GPU.

    Programs cannot use a GPU if /dev has no GPU device, or if CUDA_VISIBLE_DEVICES hides all GPUs.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if name == "gpu" and (hidden or not any(any(Path("/dev").glob(pattern)) for pattern in _GPUS)):
        raise NoGpuError


def choose_accelerator(name: str) -> str:
    """Return the accelerator of this run: ``cpu``, ``gpu`` or ``emulated``.

    The name ``auto`` becomes ``gpu`` if TensorFlow finds a GPU, else ``cpu``. A run on a GPU uses the first GPU. Any
    other run hides all GPUs from this process. Call this function before TensorFlow uses a device. Raises NoGpuError if
    `name` is ``gpu`` and TensorFlow finds no GPU.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if name == "gpu" and not gpus:
        raise NoGpuError
    if name == "auto":
        name = "gpu" if gpus else "cpu"
    tf.config.set_visible_devices(gpus[:1] if name == "gpu" else [], "GPU")
    return name


def start_tensorflow(settings: Settings) -> str:
    """Prepare TensorFlow for a run and return the name of the run's accelerator.

    If the accelerator is not ``gpu``, all GPUs are hidden from this process.
    """
    chosen = choose_accelerator(settings.get("accelerator", {"name": "cpu"})["name"])
    run_operations_directly()
    tf.random.set_seed(settings["seed"])
    return chosen


def probe_accelerator(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the accelerator for the setting ``name``, as ``{"chosen": accelerator}``.

    The caller runs this function in a separate process, before any run.
    """
    return {"chosen": choose_accelerator(settings["name"])}


def accelerator_label(chosen: str) -> str:
    """Return the name of the accelerator for a record; the name of a GPU includes the GPU's model."""
    if chosen != "gpu":
        return chosen
    gpu = tf.config.get_visible_devices("GPU")[0]
    model = tf.config.experimental.get_device_details(gpu).get("device_name")
    return f"gpu ({model})" if model else "gpu"


def emulated_step(step_s: float) -> Callable[[Any, Any], None]:
    """Return a step function that lasts `step_s` seconds and leaves the CPUs idle.

    A step copies all bytes of the batch once, as a transfer to a GPU would. This copy counts as part of the step.
    If the copy alone takes longer than `step_s`, the step lasts as long as the copy.
    """

    def step(images: Any, labels: Any) -> None:
        end = time.perf_counter() + step_s
        for tensor in (images, labels):
            tensor.numpy()  # copies every byte, as a transfer to a GPU would
        clock.wait(max(0.0, end - time.perf_counter()))

    return step


def idle_step(settings: Settings, chosen: str) -> Callable[[Any, Any], None] | None:
    """Return the step function of a run that trains no network, or None if the run trains a network."""
    if settings["benchmark"]["control"] == "no_compute":
        return lambda _images, _labels: None
    return emulated_step(settings["accelerator"]["step_s"]) if chosen == "emulated" else None


def prepare_fork() -> None:
    """Fill the lookup caches of TensorFlow and Python once, so that runs forked from this process start faster.

    This function runs no TensorFlow operation, uses no device and starts no thread.
    """
    with suppress(Exception):
        from tensorflow.python.framework import kernels, op_def_registry  # noqa: PLC0415 - the import takes seconds

        kernels.get_registered_kernels_for_op("NoOp")
        op_def_registry.get("a name that no operation has")  # the first lookup of any name lists all operations
        _cache_types()


def _cache_types() -> None:
    """Make Python cache the results of ``issubclass`` for the types that a tf.data pipeline uses."""
    from tensorflow.python.data.ops import ignore_errors_op  # noqa: F401, PLC0415 - else each run imports this module
    from tensorflow.python.framework import composite_tensor, ops, tensor, tensor_conversion_registry  # noqa: PLC0415
    from tensorflow.python.types import core  # noqa: PLC0415

    concrete_types = (
        bool,
        int,
        float,
        str,
        bytes,
        tuple,
        list,
        dict,
        ops.EagerTensor,
        ops.SymbolicTensor,
        tensor.TensorSpec,
    )
    for concrete in concrete_types:
        tensor_conversion_registry.get(concrete)
        for abstract in (Mapping, MappingView, Sequence, composite_tensor.CompositeTensor, core.TensorProtocol):
            issubclass(concrete, abstract)


def run_operations_directly() -> None:
    """Make TensorFlow run eager operations directly; by default, TensorFlow wraps each operation in a function.

    TensorFlow optimises each wrapper function, which takes about 4 ms per kind of operation in each process. This
    optimisation was the largest overhead of a run. The function that the input pipeline maps over files still runs as
    a TensorFlow function.
    """
    with suppress(Exception):
        from tensorflow.python import pywrap_tfe  # noqa: PLC0415 - the import takes seconds
        from tensorflow.python.eager import context  # noqa: PLC0415

        context.ensure_initialized()
        pywrap_tfe.TFE_ContextSetRunEagerOpAsFunction(context.context()._handle, False)  # noqa: FBT003, SLF001
