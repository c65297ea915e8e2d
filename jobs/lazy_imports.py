"""Import TensorFlow, numpy and h5py only at their first use, because not all commands need these packages."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jobs.errors import NotInstalledError

if TYPE_CHECKING:
    import h5py
    import numpy as np
    import tensorflow as tf
else:

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            try:
                return getattr(import_module(self._name), attribute)
            except ModuleNotFoundError as error:
                if error.name != self._name:
                    raise
                raise NotInstalledError(_NAMES.get(self._name, self._name)) from error

    h5py, np, tf = map(_Module, ("h5py", "numpy", "tensorflow"))

_NAMES = {"tensorflow": "TensorFlow"}

__all__ = ["h5py", "has_tensorflow", "np", "tf"]


def has_tensorflow() -> bool:
    """Return whether TensorFlow is installed for this Python interpreter, without importing TensorFlow."""
    return find_spec("tensorflow") is not None
