"""Whether a file system only emulates a storage: those of a testbed (`python -m campaign testbed`) have a marker."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from msgspec import Meta

from jobs.model import reading
from jobs.system import files, untrusted
from jobs.system.device import UNKNOWN, Device, backing_file, device_of, mount_of, mounts

MARKER = ".tfio-emulated.json"
"""File at the top of an emulated file system; what it says is read with it, so it cannot be lost on the way."""

SERVING = ".serving"
"""What the name of the file ends in that says, beside its image, what it takes the kernel to serve a storage."""
ROOT = 0
_LARGEST_BYTES = 1 << 16
_MOST_LINKS = 40  # path_resolution(7)
_PATIENCE_S = 3.0  # a server answers at once, unless the disk beneath it is busy
MODEL_TYPE = "fuse.tfio"
"""Type of the file system whose one file is the device of a storage with a model (``storage_model.c``)."""
DEVICE, STATE, FAULTS = "device", "state", "faults"
HANGS = "hang"  # the fault that nothing is answered
KINDS = ("disk", "flash", "server")
"""Kinds of models (`campaign.testbed`); a storage without one has its bounds alone."""
_NAME, _TEXT = re.compile(r"[a-z][a-z0-9_]{0,39}"), re.compile(r"[\x20-\x7e]{1,80}")
_MOST_PARAMETERS = 32
BOUNDS = frozenset({"read_mb_per_s", "write_mb_per_s", "read_iops", "write_iops"})


def emulated(path: Path) -> dict[str, Any] | None:
    """Return what is emulated where `path` lies; None for a real storage.

    Returns ``name`` of the storage that it emulates and its `BOUNDS`, each None where it is as fast as what lies
    beneath; and ``model``, None or missing where there is none: its ``kind``, of `KINDS`, and its parameters, numbers
    or short texts. A marker that is not whole is one all the same: of a storage whose name is unknown, and no bounds
    are known. One that is not root's means nothing: only root can make a testbed.
    """
    point = mount_of(path).point
    if point == UNKNOWN:
        return None
    try:
        facts = untrusted.json_value(files.read(Path(point, MARKER), _LARGEST_BYTES, owner=ROOT))
    except (FileNotFoundError, NotADirectoryError, files.OddFileError):
        return None
    except (OSError, ValueError):
        facts = None
    return facts if is_whole(facts) else {"name": UNKNOWN}


def is_whole(facts: object) -> bool:
    """Return whether a marker has a name, each bound as None or as a number, and a model."""
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str) or not facts.keys() >= BOUNDS:
        return False
    bounds = [facts[key] for key in BOUNDS if facts[key] is not None]
    return all(type(bound) in (int, float) and bound > 0 for bound in bounds) and _is_model(facts.get("model"))


def _is_model(model: object) -> bool:
    """Return whether it is None or flat: a known kind, and numbers or short texts under short names."""
    if not isinstance(model, dict):
        return model is None
    named = len(model) <= _MOST_PARAMETERS and all(_NAME.fullmatch(name) for name in model)
    legal = (type(each) in (int, float) or (type(each) is str and _TEXT.fullmatch(each)) for each in model.values())
    return named and model.get("kind") in KINDS and all(legal)


class Served(TypedDict):
    """What the server of a model says of itself: its parameters, and what it did since it was started."""

    kind: str
    parameters: dict[str, float]
    faults: dict[str, float]
    pid: int
    reads: int
    writes: int
    flushes: int
    read_bytes: int
    written_bytes: int
    spoiled: int  # requests of data that were given a fault
    in_flight: int
    busy_s: float  # with a request in flight
    queue_s: float  # the sum over all requests
    late_s: float  # by which answers came later than the model says, summed
    cpu_s: float


_Cost = Annotated[float, Meta(ge=0)]


class Costs(TypedDict):
    """CPU seconds that the kernel takes to serve a storage, as ``testbed up`` measured them on this machine."""

    request_cpu_s: _Cost
    read_gb_cpu_s: _Cost
    written_gb_cpu_s: _Cost


class Account(NamedTuple):
    """What an emulated storage was asked for by everybody."""

    name: str
    counts: dict[str, float]  # so far, as in `Served`
    pid: int  # of its model's server; 0 where the kernel alone serves it
    costs: Mapping[str, float]  # `Costs`; empty where the storage does not say them


_COUNTED = (
    "reads",
    "writes",
    "flushes",
    "read_bytes",
    "written_bytes",
    "spoiled",
    "busy_s",
    "queue_s",
    "late_s",
    "cpu_s",
)


def account(path: Path) -> Account | None:
    """Return the account of the emulated storage that holds `path`; None where its device cannot be seen.

    Raises as `served`.
    """
    device = device_of(path)
    file = backing_file(device) if device else None
    if device is None or file is None or emulated(path) is None:
        return None
    if model := _model_of(device):
        said: dict[str, Any] = {**served(model)}
        return Account(model.stem, {key: said[key] for key in _COUNTED}, said["pid"], _costs(model))
    counts: dict[str, float] = {**device.use()._asdict(), "cpu_s": 0.0}
    return Account(file.stem, {key: counts[key] for key in _COUNTED if key in counts}, 0, _costs(file))


def _costs(file: Path) -> Mapping[str, float]:
    """Return the costs that stand beside an image; none where root has not written them, whole."""
    try:
        text = files.read(file.with_suffix(SERVING), _LARGEST_BYTES, owner=ROOT)
        said: Mapping[str, Any] = reading.checked(untrusted.json_value(text), Costs)
    except (OSError, ValueError):
        return {}
    return {key: said[key] for key in Costs.__annotations__}


def model_behind(path: Path) -> Path | None:
    """Return the folder of the model that serves the storage which holds `path`; None where there is none."""
    return _model_of(device_of(path))


def silent_model(path: Path) -> Path | None:
    """Return the folder of the model below `path` if it does not answer: who touches the storage then may never end.

    By the name of `path` and the list of mounts; links are followed one by one, and what they lead to is looked at so
    before it is touched.
    """
    path = path.absolute()
    for _ in range(_MOST_LINKS):
        if model := _silent_above(path):
            return model
        parts = reversed((path, *path.parents))
        link = next((each for each in parts if os.path.islink(each)), None)  # noqa: PTH114 - that of Path may raise
        if link is None:
            break
        path = Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))
    return None


def _silent_above(path: Path) -> Path | None:
    above = {str(each) for each in (path, *path.parents)}
    holding = [each for each in mounts() if each.point in above]
    source = Path(max(reversed(holding), key=lambda each: len(each.point)).source if holding else "")
    model = _model_of(Device(source.name)) if source.parent == Path("/dev") else None
    try:
        hangs = model is not None and served(model)["faults"].get(HANGS)
    except (OSError, ValueError):
        hangs = True
    return model if hangs else None


def _model_of(device: Device | None) -> Path | None:
    file = backing_file(device) if device else None
    served = file is not None and any(each.point == str(file.parent) and each.fstype == MODEL_TYPE for each in mounts())
    return file.parent if file and served else None


def served(model: Path, patience_s: float | None = None) -> Served:
    """Return what a model's server says.

    Raises OSError where it has died or does not answer within `patience_s` (None: 3 s), UntrustedError for what
    another says.
    """
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    found: list[Served | Exception] = []

    def ask() -> None:
        try:
            found.append(reading.read(model / STATE, Served))
        except Exception as error:  # noqa: BLE001 - raised by who waits
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)  # one that waits for ever ends with its process
    asking.start()
    asking.join(patience_s)
    said = found[0] if found else TimeoutError(errno.ETIMEDOUT, f"it does not answer for {patience_s:g} s", str(model))
    if isinstance(said, Exception):
        raise said
    return said
