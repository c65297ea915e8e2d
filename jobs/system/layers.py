"""Find what is below a file system: an emulated storage, the file of a loop device, memory, the lowest devices.

A loop device has the counters of a block device, and reads of it may be cold, although its file may be in memory. This
module cannot see what is inside a virtual disk, a disk array or a server. An emulated storage of a testbed (`python -m
campaign testbed`) has a marker file.
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
"""The file with facts about an emulated storage; the file is in the storage itself, so that it cannot get lost."""

SERVING = ".serving"
"""The suffix of the file with the CPU costs of an emulated storage (`ServingCosts`), next to the storage's image."""
ROOT = 0
_LARGEST_BYTES = 1 << 16
_MOST_LINKS = 40  # the limit of the kernel, path_resolution(7)
_PATIENCE_S = 3.0  # seconds to wait for the answer of a model's server, which is slow if its disk is busy
MODEL_TYPE = "fuse.tfio"
"""The type of the FUSE file system of a storage model (``storage_model.c``), which contains the emulated device."""
DEVICE, STATE, FAULTS = "device", "state", "faults"
HANGS = "hang"  # name of the injected fault that stops all answers of the server
KINDS = ("disk", "flash", "server")
"""The kinds of storage models (`campaign.testbed`). A storage without a model has only the limits `BOUNDS`."""
_NAME, _TEXT = re.compile(r"[a-z][a-z0-9_]{0,39}"), re.compile(r"[\x20-\x7e]{1,80}")
_MOST_PARAMETERS = 32
BOUNDS = frozenset({"read_mb_per_s", "write_mb_per_s", "read_iops", "write_iops"})


def emulated_storage(path: Path) -> dict[str, Any] | None:
    """Return the facts about the emulated storage that contains `path`, or None if the storage is not emulated.

    ``name`` is the name of the emulated storage. The keys `BOUNDS` are the limits of its speed; None means no limit.
    ``model`` has the ``kind`` of the storage model (of `KINDS`) and its parameters, which are numbers or short texts;
    without a model, ``model`` is None or missing. If the marker is damaged, the name is ``unknown`` and the limits are
    missing. A marker that does not belong to root is ignored, because only root can make a testbed.
    """
    point = mount_of(path).point
    if point == UNKNOWN:
        return None
    try:
        facts = untrusted.json_value(files.read_file(Path(point, MARKER), _LARGEST_BYTES, owner=ROOT))
    except (FileNotFoundError, NotADirectoryError, files.OddFileError):
        return None
    except (OSError, ValueError):
        facts = None
    return facts if is_valid_marker(facts) else {"name": UNKNOWN}


def is_valid_marker(facts: object) -> bool:
    """Return whether the facts in a marker are valid: a name, every limit as a number or None, and a valid model."""
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str) or not facts.keys() >= BOUNDS:
        return False
    bounds = [facts[key] for key in BOUNDS if facts[key] is not None]
    return all(type(bound) in (int, float) and bound > 0 for bound in bounds) and _is_model(facts.get("model"))


def _is_model(model: object) -> bool:
    """Return whether a model is valid: None, or a known kind with parameters that are numbers or short texts."""
    if not isinstance(model, dict):
        return model is None
    names_are_valid = len(model) <= _MOST_PARAMETERS and all(_NAME.fullmatch(name) for name in model)
    valid = (type(value) in (int, float) or (type(value) is str and _TEXT.fullmatch(value)) for value in model.values())
    return names_are_valid and model.get("kind") in KINDS and all(valid)


class ServerReport(TypedDict):
    """The parameters of a storage model, and the requests to the model's server since the start of the server."""

    kind: str
    parameters: dict[str, float]
    faults: dict[str, float]  # injected faults
    pid: int
    reads: int
    writes: int
    flushes: int
    read_bytes: int
    written_bytes: int
    spoiled: int  # number of data requests with an injected fault
    in_flight: int
    busy_s: float  # time with at least one request in flight
    queue_s: float  # sum of the durations of all requests
    late_s: float  # sum of the times by which answers came later than the model requires
    cpu_s: float


_Cost = Annotated[float, Meta(ge=0)]


class ServingCosts(TypedDict):
    """The CPU seconds per request and per byte that the kernel needs to serve an emulated storage.

    ``testbed up`` measures these costs on this machine.
    """

    request_cpu_s: _Cost
    read_gb_cpu_s: _Cost
    written_gb_cpu_s: _Cost


class RequestAccount(NamedTuple):
    """The requests of all processes to an emulated storage."""

    name: str
    counts: dict[str, float]  # counters with the keys of `ServerReport`
    pid: int  # process id of the model's server; 0 for a storage without a server
    costs: Mapping[str, float]  # `ServingCosts`; empty if unknown


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


def account_of_storage(path: Path) -> RequestAccount | None:
    """Return the requests to the emulated storage that contains `path`.

    Returns None if the storage is not emulated, or if its device is not visible. Raises the errors of `ask_server`.
    """
    device = device_of(path)
    file = backing_file(device) if device else None
    if device is None or file is None or emulated_storage(path) is None:
        return None
    if model := _model_of(device):
        report: dict[str, Any] = {**ask_server(model)}
        return RequestAccount(model.stem, {key: report[key] for key in _COUNTED}, report["pid"], _read_costs(model))
    counts: dict[str, float] = {**device.read_counters()._asdict(), "cpu_s": 0.0}
    return RequestAccount(file.stem, {key: counts[key] for key in _COUNTED if key in counts}, 0, _read_costs(file))


def _read_costs(file: Path) -> Mapping[str, float]:
    """Return the `ServingCosts` in the file next to an image; empty if root has not made a valid file."""
    try:
        text = files.read_file(file.with_suffix(SERVING), _LARGEST_BYTES, owner=ROOT)
        costs: Mapping[str, Any] = reading.check_value(untrusted.json_value(text), ServingCosts)
    except (OSError, ValueError):
        return {}
    return {key: costs[key] for key in ServingCosts.__annotations__}


def model_behind(path: Path) -> Path | None:
    """Return the folder of the storage model behind `path`, or None if there is no model."""
    return _model_of(device_of(path))


def silent_model(path: Path) -> Path | None:
    """Return the folder of the storage model behind `path` if the model's server does not answer; otherwise None.

    An access to the storage of such a model may hang, so `path` is not accessed: this function uses only the text of
    `path` and the list of mounts. It follows links one by one, and checks the target of each link in this way.
    """
    path = path.absolute()
    for _ in range(_MOST_LINKS):
        if model := _silent_model_above(path):
            return model
        parts = reversed((path, *path.parents))
        link = next((part for part in parts if os.path.islink(part)), None)  # noqa: PTH114 - Path.is_symlink may raise
        if link is None:
            break
        path = Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))
    return None


def _silent_model_above(path: Path) -> Path | None:
    folders = {str(folder) for folder in (path, *path.parents)}
    matches = [mount for mount in mounts() if mount.point in folders]
    source = Path(max(reversed(matches), key=lambda mount: len(mount.point)).source if matches else "")
    model = _model_of(Device(source.name)) if source.parent == Path("/dev") else None
    try:
        hangs = model is not None and ask_server(model)["faults"].get(HANGS)
    except (OSError, ValueError):
        hangs = True
    return model if hangs else None


def _model_of(device: Device | None) -> Path | None:
    file = backing_file(device) if device else None
    is_model = file is not None and any(
        mount.point == str(file.parent) and mount.fstype == MODEL_TYPE for mount in mounts()
    )
    return file.parent if file and is_model else None


def ask_server(model: Path, patience_s: float | None = None) -> ServerReport:
    """Read and return the report of a storage model's server.

    Raises OSError if the server has ended, or does not answer within `patience_s` (None: 3 s). Raises UntrustedError
    for an invalid answer.
    """
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    answers: list[ServerReport | Exception] = []

    def ask() -> None:
        try:
            answers.append(reading.read_json(model / STATE, ServerReport))
        except Exception as error:  # noqa: BLE001 - the calling thread raises this error
            answers.append(error)

    thread = threading.Thread(target=ask, daemon=True)  # daemon, so that a hanging thread ends with its process
    thread.start()
    thread.join(patience_s)
    answer = (
        answers[0]
        if answers
        else TimeoutError(errno.ETIMEDOUT, f"its server does not answer for {patience_s:g} s", str(model))
    )
    if isinstance(answer, Exception):
        raise answer
    return answer


_MEMORY_TYPES = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
_MEMORY_DEVICES = ("ram", "zram")  # names of the devices of the drivers brd and zram


@dataclass(frozen=True)
class Layers:
    """The files and devices below the device of a folder."""

    # Readable files of loop devices, if the files are on a disk. Their pages in memory count like pages of the run's
    # files.
    files: tuple[Path, ...] = ()
    in_memory: tuple[str, ...] = ()  # a text for each layer that is in memory
    hidden: tuple[Path, ...] = ()  # files of loop devices that this user cannot read
    # The lowest devices below the device of the file system, combined into one device. A cold read fetches its data
    # from the lowest devices.
    lowest: Device | None = None
    emulated: bool = False  # whether the storage is emulated; then all other fields are empty

    def drop_from_cache(self) -> list[Residency]:
        """Drop the pages of the loop devices' files from the page cache, and return the residency of each file."""
        return [page_cache.drop_from_cache([file], [file], file.parent) for file in self.files]

    def share_in_memory(self, own: Residency, below: Sequence[Residency]) -> float | None:
        """Return the share of a folder's pages that are in memory, including pages of the loop devices' files.

        `own` is the residency of the folder's files, and `below` the residency of the loop devices' files. Returns None
        if the share is unknown.
        """
        if self.in_memory:
            return 1.0
        if own.unverifiable or self.hidden or any(residency.unverifiable for residency in below):
            return None
        return (
            min(1.0, (own.resident + sum(residency.resident for residency in below)) / own.pages) if own.pages else 0.0
        )


def layers_below(*folders: Path) -> Layers:
    """Return the layers below folders. The layers of several folders are combined.

    For an emulated storage, no layers are returned: the storage may be in memory, but its limits decide its speed.
    """
    layers = [_layers_of_folder(folder) for folder in folders]
    if len(layers) == 1:
        return layers[0]
    lowest = combine_devices(
        [folder_layers.lowest or device_of(folder) for folder_layers, folder in zip(layers, folders, strict=True)]
    )
    return Layers(
        files=tuple(dict.fromkeys(file for folder_layers in layers for file in folder_layers.files)),
        in_memory=tuple(dict.fromkeys(text for folder_layers in layers for text in folder_layers.in_memory)),
        hidden=tuple(dict.fromkeys(file for folder_layers in layers for file in folder_layers.hidden)),
        lowest=lowest if any(folder_layers.lowest for folder_layers in layers) else None,
        emulated=any(folder_layers.emulated for folder_layers in layers),
    )


def has_own_cache(folder: Path) -> bool:
    """Return whether reads of files in `folder` fill only the page cache of the folder's own file system.

    The kernel has a separate page cache for each file of each file system. So reads of a mounted device fill only one
    page cache. The exception is a loop device that reads its file without direct I/O: such reads also fill the page
    cache of the file.
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
    in_memory = [f"{device.name} is memory" for device in chain if device.name.rstrip("0123456789") in _MEMORY_DEVICES]
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
