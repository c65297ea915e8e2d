"""What takes the batches: the processor, a GPU, or a clock that stands in for one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs.errors import NoGpuError
from jobs.lazy_imports import tf
from jobs.system import clock

HOST = "/CPU:0"
"""The device that a batch comes from."""
DEVICES = {"cpu": HOST, "gpu": "/GPU:0", "emulated": HOST}
"""The device that holds what a step takes, by accelerator."""


_GPUS = ("nvidia[0-9]*", "nvidiactl", "nvgpu*", "nvhost-gpu", "kfd", "dxg")  # in /dev


def require_possible(name: str) -> None:
    """Raise NoGpuError for ``gpu`` where it is plain, without TensorFlow, that there is none or that it is hidden."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if name == "gpu" and (hidden or not any(any(Path("/dev").glob(pattern)) for pattern in _GPUS)):
        raise NoGpuError


def choose(name: str) -> str:
    """Return what will compute, ``cpu``, ``gpu`` or ``emulated``; ``auto`` is a GPU where there is one.

    Where no GPU computes, they are hidden from this process; where one does, the first is taken; ``gpu`` without one
    raises NoGpuError. Call it before TensorFlow touches a device.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if name == "gpu" and not gpus:
        raise NoGpuError
    if name == "auto":
        name = "gpu" if gpus else "cpu"
    tf.config.set_visible_devices(gpus[:1] if name == "gpu" else [], "GPU")
    return name


def probe(asked: Mapping[str, str]) -> dict[str, str]:
    """Choose the accelerator ``name``, in a process of its own, before any run: ``{"chosen": …}``."""
    return {"chosen": choose(asked["name"])}


def described(chosen: str) -> str:
    """Name what computes for a record: a GPU with its model, for there are many kinds."""
    if chosen != "gpu":
        return chosen
    gpu = tf.config.get_visible_devices("GPU")[0]
    model = tf.config.experimental.get_device_details(gpu).get("device_name")
    return f"gpu ({model})" if model else "gpu"


def emulated(step_s: float) -> Callable[[Any, Any], None]:
    """Return a step that takes `step_s` seconds and leaves the processors alone.

    It takes the batch whole, as a GPU would: one copy of its bytes, within the time of the step. Where the copy
    alone takes longer than `step_s`, so does the step.
    """

    def step(images: Any, labels: Any) -> None:
        end = time.perf_counter() + step_s
        for tensor in (images, labels):
            tensor.numpy()  # a copy of every byte, as to a device's memory
        clock.wait(max(0.0, end - time.perf_counter()))

    return step
