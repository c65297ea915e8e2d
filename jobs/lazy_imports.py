"""TensorFlow, numpy and h5py, imported at their first use: who only looks at the benchmarks waits for none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py
    import numpy as np
    import tensorflow as tf
else:

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    h5py, np, tf = map(_Module, ("h5py", "numpy", "tensorflow"))

__all__ = ["h5py", "np", "tf"]
