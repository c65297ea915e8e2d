"""The device that takes the batches (the CPU, a GPU, or a clock that emulates a GPU), and TensorFlow's first use.

Some work of the first use in a process is done before the fork, and some is switched off. TensorFlow has no public
interface for this: with a version that raises an error here, runs only start more slowly.
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
"""The TensorFlow device on which the input pipeline makes its batches."""
DEVICES = {"cpu": HOST, "gpu": "/GPU:0", "emulated": HOST}
"""The TensorFlow device that holds the input tensors of a step, by name of the accelerator."""


_GPUS = ("nvidia[0-9]*", "nvidiactl", "nvgpu*", "nvhost-gpu", "kfd", "dxg")  # in /dev


def require_possible(name: str) -> None:
    """Raise NoGpuError if `name` is ``gpu`` and this machine obviously has no GPU, or hides it from programs."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if name == "gpu" and (hidden or not any(any(Path("/dev").glob(pattern)) for pattern in _GPUS)):
        raise NoGpuError


def choose_accelerator(name: str) -> str:
    """Return the accelerator of this run, ``cpu``, ``gpu`` or ``emulated``; ``auto`` becomes ``gpu`` if there is a GPU.

    A run on a GPU uses the first GPU; any other run hides all GPUs from this process. Raises NoGpuError for ``gpu``
    without a GPU. It must be called before TensorFlow uses a device.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if name == "gpu" and not gpus:
        raise NoGpuError
    if name == "auto":
        name = "gpu" if gpus else "cpu"
    tf.config.set_visible_devices(gpus[:1] if name == "gpu" else [], "GPU")
    return name


def start_tensorflow(settings: Settings) -> str:
    """Prepare TensorFlow for a run and return the name of its accelerator; all but ``gpu`` hide the GPUs."""
    chosen = choose_accelerator(settings.get("accelerator", {"name": "cpu"})["name"])
    run_operations_directly()
    tf.random.set_seed(settings["seed"])
    return chosen


def probe_accelerator(settings: Mapping[str, str]) -> dict[str, str]:
    """Return ``{"chosen": accelerator}`` for the setting ``name``; it is called in its own process, before any run."""
    return {"chosen": choose_accelerator(settings["name"])}


def accelerator_label(chosen: str) -> str:
    """Return the name of the accelerator for a record; for a GPU with its model."""
    if chosen != "gpu":
        return chosen
    gpu = tf.config.get_visible_devices("GPU")[0]
    model = tf.config.experimental.get_device_details(gpu).get("device_name")
    return f"gpu ({model})" if model else "gpu"


def emulated_step(step_s: float) -> Callable[[Any, Any], None]:
    """Return a step function that lasts `step_s` seconds and leaves the CPUs idle.

    A step copies all bytes of the batch once, as a transfer to a GPU would; this copy is part of the step.
    If the copy alone takes longer than `step_s`, the step lasts as long as the copy.
    """

    def step(images: Any, labels: Any) -> None:
        end = time.perf_counter() + step_s
        for tensor in (images, labels):
            tensor.numpy()  # copies every byte, as a transfer to a device
        clock.wait(max(0.0, end - time.perf_counter()))

    return step


def idle_step(settings: Settings, chosen: str) -> Callable[[Any, Any], None] | None:
    """Return the step function of a run that trains no network; None if the run trains one."""
    if settings["benchmark"]["control"] == "no_compute":
        return lambda _images, _labels: None
    return emulated_step(settings["accelerator"]["step_s"]) if chosen == "emulated" else None


def prepare_fork() -> None:
    """Make TensorFlow's and Python's lookups of the first use, once for all runs that are forked from this process.

    No operation runs, no device is touched and no thread is started.
    """
    with suppress(Exception):
        from tensorflow.python.framework import kernels, op_def_registry  # noqa: PLC0415 - costs seconds

        kernels.get_registered_kernels_for_op("NoOp")
        op_def_registry.get("a name that no operation has")  # the first look-up lists all operations
        _cache_types()


def _cache_types() -> None:
    """Fill Python's caches of the abstract types of a pipeline's objects."""
    from tensorflow.python.data.ops import ignore_errors_op  # noqa: F401, PLC0415 - else each run imports it
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
    """Make TensorFlow run eager operations directly; by default it wraps each operation in a function.

    The optimisation of such a function takes about 4 ms per kind of operation in each process, which was the largest
    part of a run's cost apart from its work. The function that the pipeline maps is not affected.
    """
    with suppress(Exception):
        from tensorflow.python import pywrap_tfe  # noqa: PLC0415 - costs seconds
        from tensorflow.python.eager import context  # noqa: PLC0415

        context.ensure_initialized()
        pywrap_tfe.TFE_ContextSetRunEagerOpAsFunction(context.context()._handle, False)  # noqa: FBT003, SLF001
