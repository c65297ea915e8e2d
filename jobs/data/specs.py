"""What a synthetic dataset is made of: the parameters that its bytes follow from, and the name that they give it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import PIL

from jobs.data.synthetic_executables import ExecutableSpec
from jobs.data.synthetic_hdf5 import ClimateSpec, Hdf5Spec, HepSpec
from jobs.data.synthetic_images import ImageSpec

Spec = ImageSpec | ExecutableSpec | HepSpec | ClimateSpec


def spec_of(parameters: Mapping[str, Any]) -> Spec:
    """Return what has these parameters, told by their names. Raises ValueError: no such files can be made."""
    kinds: tuple[type[Spec], ...] = (ImageSpec, ExecutableSpec, HepSpec, ClimateSpec)
    kind = next(each for each in kinds if {field.name for field in fields(each)} == parameters.keys())
    return kind(**parameters)


def dataset_id(name: str, spec: Spec) -> str:
    """Return the name of a dataset's folder: other parameters or another generator give another one."""
    text = json.dumps([spec.version, parameters_of(spec)], sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def parameters_of(spec: Spec) -> dict[str, Any]:
    """Return what the bytes follow from; 1 and 1.0 are one spread."""
    return {key: float(value) if key == "sigma" else value for key, value in asdict(spec).items()}


def versions(spec: Spec) -> dict[str, Any]:
    """Return the versions of all that the bytes of a file depend on."""
    libraries = spec.libraries() if isinstance(spec, Hdf5Spec) else {"pillow": PIL.__version__}
    return {"generator": spec.version, "numpy": np.__version__, **libraries}


def folders_of(spec: Spec) -> tuple[str, ...]:
    """Return the folders of the files, which are the classes, in the order of the labels."""
    return tuple(dict.fromkeys(os.path.dirname(spec.name(index)) or "." for index in range(spec.files)))  # noqa: PTH120
