"""Look below a file system: is it an emulated storage, is its device a file or memory, what is the lowest device.

A loop device shows the block layer's counters and an empty page cache while its file lies in memory. What is behind a
virtual disk, an array or a server is not seen from here. An emulated storage of a testbed (`python -m campaign
testbed`) has a marker.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from msgspec import Meta

from jobs.model import reading
from jobs.system import files, page_cache, untrusted
from jobs.system.device import (
    UNKNOWN,
    Device,
    backing_file,
    combine_devices,
    device_of,
    devices_behind,
    lowest_behind,
    mount_of,
    mounts,
    reads_past_cache,
)
from jobs.system.page_cache import Residency

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


def emulated_storage(path: Path) -> dict[str, Any] | None:
    """Return the facts of the emulated storage that holds `path`; None for a real storage.

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
    """Return whether a marker has a name, each limit as None or as a number, and a model."""
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str) or not facts.keys() >= BOUNDS:
        return False
    bounds = [facts[key] for key in BOUNDS if facts[key] is not None]
    return all(type(bound) in (int, float) and bound > 0 for bound in bounds) and _is_model(facts.get("model"))


def _is_model(model: object) -> bool:
    """Return whether a model is None or flat: a known kind, and numbers or short texts under short names."""
    if not isinstance(model, dict):
        return model is None
    named = len(model) <= _MOST_PARAMETERS and all(_NAME.fullmatch(name) for name in model)
    legal = (type(each) in (int, float) or (type(each) is str and _TEXT.fullmatch(each)) for each in model.values())
    return named and model.get("kind") in KINDS and all(legal)


class Served(TypedDict):
    """The report of a model's server on itself: its parameters, and its requests since it was started."""

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
    """The CPU seconds that the kernel takes to serve a storage, as ``testbed up`` measured them on this machine."""

    request_cpu_s: _Cost
    read_gb_cpu_s: _Cost
    written_gb_cpu_s: _Cost


class Account(NamedTuple):
    """The requests of everybody to an emulated storage."""

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


def account_of_storage(path: Path) -> Account | None:
    """Return the account of the emulated storage that holds `path`; None if its device cannot be seen.

    Raises as `ask_server`.
    """
    device = device_of(path)
    file = backing_file(device) if device else None
    if device is None or file is None or emulated_storage(path) is None:
        return None
    if model := _model_of(device):
        report: dict[str, Any] = {**ask_server(model)}
        return Account(model.stem, {key: report[key] for key in _COUNTED}, report["pid"], _read_costs(model))
    counts: dict[str, float] = {**device.use()._asdict(), "cpu_s": 0.0}
    return Account(file.stem, {key: counts[key] for key in _COUNTED if key in counts}, 0, _read_costs(file))


def _read_costs(file: Path) -> Mapping[str, float]:
    """Return the costs that stand beside an image; none if root has not written them, whole."""
    try:
        text = files.read(file.with_suffix(SERVING), _LARGEST_BYTES, owner=ROOT)
        costs: Mapping[str, Any] = reading.checked(untrusted.json_value(text), Costs)
    except (OSError, ValueError):
        return {}
    return {key: costs[key] for key in Costs.__annotations__}


def model_behind(path: Path) -> Path | None:
    """Return the folder of the model that serves the storage which holds `path`; None if there is none."""
    return _model_of(device_of(path))


def silent_model(path: Path) -> Path | None:
    """Return the folder of the model below `path` if it does not answer: then touching the storage may never end.

    By the name of `path` and the list of mounts; links are followed one by one, and what they lead to is looked at so
    before it is touched.
    """
    path = path.absolute()
    for _ in range(_MOST_LINKS):
        if model := _silent_model_above(path):
            return model
        parts = reversed((path, *path.parents))
        link = next((each for each in parts if os.path.islink(each)), None)  # noqa: PTH114 - that of Path may raise
        if link is None:
            break
        path = Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))
    return None


def _silent_model_above(path: Path) -> Path | None:
    above = {str(each) for each in (path, *path.parents)}
    holding = [each for each in mounts() if each.point in above]
    source = Path(max(reversed(holding), key=lambda each: len(each.point)).source if holding else "")
    model = _model_of(Device(source.name)) if source.parent == Path("/dev") else None
    try:
        hangs = model is not None and ask_server(model)["faults"].get(HANGS)
    except (OSError, ValueError):
        hangs = True
    return model if hangs else None


def _model_of(device: Device | None) -> Path | None:
    file = backing_file(device) if device else None
    served = file is not None and any(each.point == str(file.parent) and each.fstype == MODEL_TYPE for each in mounts())
    return file.parent if file and served else None


def ask_server(model: Path, patience_s: float | None = None) -> Served:
    """Return the report of a model's server.

    Raises OSError where it has died or does not answer within `patience_s` (None: 3 s), UntrustedError for what
    another says.
    """
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    answers: list[Served | Exception] = []

    def ask() -> None:
        try:
            answers.append(reading.read(model / STATE, Served))
        except Exception as error:  # noqa: BLE001 - raised by who waits
            answers.append(error)

    asking = threading.Thread(target=ask, daemon=True)  # one that waits for ever ends with its process
    asking.start()
    asking.join(patience_s)
    answer = (
        answers[0] if answers else TimeoutError(errno.ETIMEDOUT, f"it does not answer for {patience_s:g} s", str(model))
    )
    if isinstance(answer, Exception):
        raise answer
    return answer


_MEMORY_TYPES = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_MEMORY_DEVICES = ("ram", "zram")  # drivers brd and zram


@dataclass(frozen=True)
class Layers:
    """The layers below a folder's device."""

    # Files of loop devices that lie on a disk and can be opened: their pages in memory are ours, too.
    files: tuple[Path, ...] = ()
    in_memory: tuple[str, ...] = ()  # what of it lies in memory, in words; empty where nothing does
    hidden: tuple[Path, ...] = ()  # files of loop devices that this user cannot look at
    # The lowest devices below that of the file system, counted as one: what is cold is fetched from them.
    lowest: Device | None = None
    emulated: bool = False  # the file system only emulates a storage; then the rest stays empty

    def drop_from_cache(self) -> list[Residency]:
        """Drop the pages of the files of loop devices, and return what is left of each."""
        return [page_cache.drop_from_cache([file], [file], file.parent) for file in self.files]

    def share_in_memory(self, own: Residency, below: Sequence[Residency]) -> float | None:
        """Return the share of a folder's pages in memory, those `below` it included; None if it is unknown."""
        if self.in_memory:
            return 1.0
        if own.unverifiable or self.hidden or any(each.unverifiable for each in below):
            return None
        return min(1.0, (own.resident + sum(each.resident for each in below)) / own.pages) if own.pages else 0.0


def layers_below(*folders: Path) -> Layers:
    """Return the layers below folders; the lowest devices of several count as one, if all have one.

    Nothing for an emulated storage: that memory may serve it is known, and said; its bounds are what counts.
    """
    layers = [_layers_of_folder(folder) for folder in folders]
    if len(layers) == 1:
        return layers[0]
    lowest = combine_devices([each.lowest or device_of(folder) for each, folder in zip(layers, folders, strict=True)])
    return Layers(
        files=tuple(dict.fromkeys(file for each in layers for file in each.files)),
        in_memory=tuple(dict.fromkeys(words for each in layers for words in each.in_memory)),
        hidden=tuple(dict.fromkeys(file for each in layers for file in each.hidden)),
        lowest=lowest if any(each.lowest for each in layers) else None,
        emulated=any(each.emulated for each in layers),
    )


def has_own_cache(folder: Path) -> bool:
    """Return whether reads through this file system fill no other page cache of this machine.

    The kernel keeps pages by file, and files by file system: a device that is mounted by itself has a cache of its own,
    also where another one shows the same file, if no loop device below it reads through the cache of that file.
    """
    chain = devices_behind(folder)
    loops = [device for device in chain if backing_file(device)]
    return bool(chain) and all(reads_past_cache(device) for device in loops)


def _layers_of_folder(folder: Path) -> Layers:
    if emulated_storage(folder):
        return Layers(emulated=True)
    chain = devices_behind(folder)
    files: list[Path] = []
    hidden: list[Path] = []
    in_memory = [f"{each.name} is memory" for each in chain if each.name.rstrip("0123456789") in _MEMORY_DEVICES]
    for device in chain:
        file = backing_file(device)
        if file is None:
            continue
        if not os.access(file, os.R_OK) or not file.is_file():
            hidden.append(file)
            continue
        fstype = mount_of(file).fstype
        if fstype in _MEMORY_TYPES:
            in_memory.append(f"{device.name} has its backing file {file} in memory ({fstype})")
        elif device_of(file) is not None:
            files.append(file)
    return Layers(tuple(files), tuple(in_memory), tuple(hidden), lowest_behind(folder))
