"""Plan the steps that make or remove a testbed; a plan is a pure function of the testbed's state.

A plan is a list of groups of steps. Only the first group of a plan is done. Then the testbed is inspected and planned
again. So a new command can complete the work of a killed command.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import serving
from campaign.testbed.spec import FIRST, GB, is_linked_node, model_source
from campaign.testbed.state import MARKER, SCHEMA, unfinished_image
from campaign.testbed.steps import CallStep, WriteStep, program_step
from jobs.system.layers import DEVICE, FAULTS
from jobs.system.layers import MARKER as EMULATED

if TYPE_CHECKING:
    from campaign.testbed.spec import StorageRequest
    from campaign.testbed.state import LoopDevice, StorageState, TestbedState
    from campaign.testbed.steps import Group, Step
    from jobs.model.settings import Node

LARGEST_SHARE = 12 * GB  # for a baseline's file of 5 GB (paper, IV), 2 GB of files for Fig 4, six snapshots of 0.7 GB
_RESERVE = 1 * GB  # this space remains free on the underlying disk
_LEAST = 60_000_000  # smallest size in bytes in which ext4 has space for its journal and for files
_TENTH = 100_000_000  # the default size of a storage is rounded down to a multiple of 0.1 GB
# Without these options of mkfs.ext4, the kernel would write to the file system for minutes after the first mount.
_AT_ONCE = "lazy_itable_init=0,lazy_journal_init=0"


def differs_from_request(storage: StorageState, request: StorageRequest, program: str) -> bool:
    """Return whether the device of a storage must be made again, because it is broken or differs from the request.

    A device is broken if its file system failed or if its model has ended. It differs if its model has other parameters
    or another version than requested. `program` is the name of the program that serves models.
    """
    if request.node:
        return not all(loop.direct and loop.read_only for loop in storage.loops)
    if storage.failed and storage.ours_mounted:
        return True
    if request.model is None:
        return bool(storage.model_loops or storage.model_mounted)
    server = None if storage.stuck else storage.server
    is_served = (
        storage.model_mounted
        and server
        and (server.program, server.server_arguments) == (program, request.server_arguments())
    )
    return bool(storage.loops or ((storage.model_loops or storage.model_mounted) and not is_served))


def detach_steps(storage: StorageState) -> list[Group]:
    """Return the steps that detach a storage's loop devices and unmount its model.

    If the model will never answer, a single group of steps kills the model's server and unmounts the storage. Then
    processes that wait for the storage get an error. If a process has an open file on the storage, the unmounted loop
    device remains until the process ends.
    """
    umount = ["umount", *(["--lazy"] if storage.stuck else [])]
    steps: Group = [program_step("kill", "-KILL", storage.server.pid)] if storage.stuck and storage.server else []
    steps += [program_step(*umount, storage.point)] if storage.ours_mounted else []
    steps += [program_step("losetup", "--detach", loop.path) for loop in storage.attached]
    steps += [program_step("umount", "--lazy", storage.model)] if storage.model_mounted else []
    return [steps] if storage.stuck else [[step] for step in steps]


def without_device(storage: StorageState) -> StorageState:
    """Return the state that a storage has after the steps of `detach_steps`."""
    detached = replace(storage, loops=(), model_loops=(), model_mounted=False, server=None)
    return (
        replace(detached, mounted=None, failed=False, marker_facts=None, owner=None, empty=True)
        if storage.ours_mounted
        else detached
    )


def image_steps(storage: StorageState, size: int) -> list[Group]:
    """Return the steps that make a missing image file of `size` bytes, or remove an unfinished image file."""
    unfinished = unfinished_image(storage.image)
    sector_size = ("-b", 4096) if storage.point.name == FIRST else ()  # equal to the sector size of its loop devices
    if storage.size_bytes is not None:
        return [[program_step("rm", "-f", unfinished)]] if storage.unfinished else []
    return [
        [
            # Only root may read the image file, because it will contain the files of all users of the storage.
            program_step("install", "-m", "600", "/dev/null", unfinished),
            program_step("truncate", "--size", size, unfinished),
            program_step("mkfs.ext4", "-q", "-F", *sector_size, "-m", 0, "-E", _AT_ONCE, unfinished),
            program_step("sync", unfinished),
            program_step("mv", unfinished, storage.image),
        ]
    ]


def link_steps(storage: StorageState, first: StorageState) -> list[Group]:
    """Return the steps that make a hard link to the first node's image file.

    All nodes have the same image file. The name of the link shows which node uses a loop device.
    """
    is_linked = storage.inode is not None and storage.inode == first.inode
    return [] if is_linked else [[program_step("ln", "--force", first.image, storage.image)]]


def mark_steps(
    first: StorageState, request: StorageRequest, owner: tuple[int, int], others: Iterable[StorageState]
) -> list[Group]:
    """Return the steps that write the marker into the file system of the nodes, and set the owner of its data folder.

    The steps are one group. If this process is killed between two steps, a node is writable or not mounted, and the
    next `testbed up` repairs the node.
    """
    return [
        [
            *(step for storage in others for steps in detach_steps(storage) for step in steps),
            program_step("mkdir", "-p", "-m", "755", first.point),
            mount_to_write(first),
            WriteStep(first.point / EMULATED, json.dumps(request.facts(FIRST)), ours=True),
            _own_step(first, owner),
            program_step("umount", first.point),
        ]
    ]


def mount_to_write(first: StorageState) -> Step:
    """Return the step that mounts the image of the first node for writing; `umount` also detaches the loop device."""
    return program_step("mount", "-t", "ext4", "-o", "loop,nosuid,nodev", first.image, first.point)


def _own_step(storage: StorageState, owner: tuple[int, int]) -> Step:
    user, group = owner
    return program_step("install", "-d", "-m", "755", "-o", user, "-g", group, storage.root)


def device_steps(storage: StorageState, request: StorageRequest, program: Path) -> list[Group]:
    """Return the steps that attach a loop device to the image file, or to the file that the storage's model serves."""
    if storage.attached:
        return []
    if request.node:
        # After a power loss during `testbed fill`, e2fsck must replay the journal, because a read-only mount cannot.
        repair = [program_step("e2fsck", "-p", storage.image, may_fail=True)] if storage.point.name == FIRST else []
        options = ("--read-only", "--direct-io=on", "--sector-size=4096")
        return [[*repair, program_step("losetup", "--find", *options, storage.image)]]
    if request.model is None:
        return [[program_step("losetup", "--find", storage.image)]]
    steps: list[Group] = [] if storage.model_there else [[program_step("mkdir", "-m", "755", storage.model)]]
    if not storage.model_mounted:
        steps.append([program_step(program, storage.model, storage.image, *request.server_arguments())])
    return [*steps, [program_step("losetup", "--find", "--direct-io=on", storage.model / DEVICE)]]


def end_fault_steps(storage: StorageState) -> list[Group]:
    """Return the steps that end the injected faults of a storage's model.

    After an injected fault, a file system may fail at its next write. So the steps also write to the file system. If it
    fails then, the next plan repairs it.
    """
    faults = (storage.server.faults if storage.server else None) or ()
    steps: Group = [WriteStep(storage.model / FAULTS, f"{name} 0") for name in faults]
    if steps and storage.ours_mounted:
        steps += [
            program_step(*words, storage.point, may_fail=True) for words in (("touch",), ("sync", "--file-system"))
        ]
    return [steps] if steps else []


def mount_steps(
    name: str, loop: LoopDevice, request: StorageRequest, owner: tuple[int, int], state: TestbedState
) -> list[Group]:
    """Return the steps that mount a storage, write the marker into the file system, and make the data folder."""
    storage = state.storages[name]
    steps: list[Group] = [] if storage.point_there else [[program_step("mkdir", "-p", "-m", "755", storage.point)]]
    if not storage.mounted:
        options = "ro,nosuid,nodev" if request.node else "nosuid,nodev"
        steps.append([program_step("mount", "-t", "ext4", "-o", options, loop.path, storage.point)])
    is_marked = storage.marker_facts == request.facts(name)
    has_owner = storage.owner is not None and (storage.owner == owner or not storage.empty)
    if request.node:
        is_ready = not storage.mounted or name != FIRST or (is_marked and has_owner)
        return steps if is_ready else mark_steps(storage, request, owner, state.nodes)
    if not is_marked:
        steps.append([WriteStep(storage.point / EMULATED, json.dumps(request.facts(name)), ours=True)])
    return steps if has_owner else [*steps, [_own_step(storage, owner)]]


def measure_steps(name: str, loop: LoopDevice, request: StorageRequest, state: TestbedState) -> list[Group]:
    """Return the steps that measure the kernel's CPU costs to serve a storage.

    Return no step if the costs were measured since the machine was booted.
    """
    storage = state.storages[name]
    identity: Node = {"boot_id": state.boot_id, "storage": request.facts(name)}
    if storage.costs and storage.costs.items() >= identity.items():
        return []
    line = f"# measure the CPU costs of the kernel to serve {name}, and write {storage.serving}"
    return [[CallStep(line, partial(serving.measure_costs, storage.point, Path(loop.path), storage.serving, identity))]]


def plan_creation(requests: Mapping[str, StorageRequest], owner: tuple[int, int], state: TestbedState) -> list[Group]:
    """Return the steps that make the requested storages; other storages in the folder do not change.

    `owner` are the user id and the group id that will own the root of each storage.
    """
    _refuse_silent_models(state.storages[name] for name in requests)
    _refuse_foreign_files(requests, state)
    sizes = _choose_sizes(requests, state)
    steps: list[Group] = [] if state.exists else [[program_step("mkdir", "-p", "-m", "755", state.folder)]]
    for name, request in requests.items():
        if differs_from_request(state.storages[name], request, state.program.name):
            steps += detach_steps(state.storages[name])
            state = replace(state, storages={**state.storages, name: without_device(state.storages[name])})
    loops = _choose_loops(requests, state)
    attached_numbers = [loop.number for name in requests for loop in state.storages[name].attached]
    steps += _bookkeeping_steps(requests, state, attached_numbers)
    if any(request.model for request in requests.values()) and state.program.name not in state.programs:
        unfinished_program = state.program.with_suffix(".new")
        steps.append(
            [
                program_step("cc", "-O2", "-o", unfinished_program, model_source(), "-lm"),
                program_step("mv", unfinished_program, state.program),
            ]
        )
    for name, request in requests.items():
        storage = state.storages[name]
        steps += (
            link_steps(storage, state.storages[FIRST]) if is_linked_node(name) else image_steps(storage, sizes[name])
        )
        if name == FIRST and storage.size_bytes is None:
            steps += mark_steps(storage, request, owner, [])
        steps += device_steps(storage, request, state.program)
        steps += end_fault_steps(state.storages[name])
    numbers = [loop.number for loop in loops.values()]
    if new_numbers := [number for number in numbers if number not in attached_numbers]:
        steps += [
            [
                _write_marker(
                    state,
                    _describe_storages(requests, state),
                    [*state.limited_devices, *attached_numbers, *new_numbers],
                )
            ]
        ]
    for name, request in requests.items():
        steps += [[step] for step in state.device_limits.steps(loops[name].number, request.limits())]
        steps += mount_steps(name, loops[name], request, owner, state)
        steps += measure_steps(name, loops[name], request, state)
    return steps


def plan_writable_node(state: TestbedState) -> list[Group]:
    """Return the steps that detach all emulated nodes and mount the first node for writing."""
    first = state.storages[FIRST]
    read_only = [storage for storage in state.nodes if any(loop.read_only for loop in storage.loops)]
    steps = [group for storage in read_only for group in detach_steps(storage)]
    return steps if first.ours_mounted else [*steps, [mount_to_write(first)]]


def plan_removal(state: TestbedState, *, keep: bool) -> list[Group]:
    """Return the steps that remove a testbed; with `keep`, the image files remain for the next `testbed up`."""
    _refuse_silent_models(state.storages.values())
    steps: list[Group] = []
    for storage in reversed(list(state.storages.values())):
        steps += detach_steps(storage)
    attached_numbers = [loop.number for storage in state.storages.values() for loop in storage.attached]
    for number in dict.fromkeys([*state.limited_devices, *attached_numbers]):
        steps += [[step] for step in state.device_limits.steps(number, {})]
    if state.marker is None and not state.leftovers:
        return steps
    if keep and state.marker:
        return [*steps, [_write_marker(state, state.marker["storages"], [])]] if state.limited_devices else steps
    return steps + _removal_steps(state)


def _refuse_foreign_files(requests: Iterable[str], state: TestbedState) -> None:
    if state.marker is None and state.foreign_names:
        raise UsageError(
            f"{state.folder} is no testbed of this program, and has other files, such as {state.foreign_names[0]}",
            "choose an empty or a new folder: --folder DIR",
        )
    for name in requests:
        storage = state.storages[name]
        foreign_names = {
            storage.image.name,
            unfinished_image(storage.image).name,
            storage.point.name,
            storage.model.name,
        }.intersection(state.foreign_names)
        if foreign_names and not storage.mounted:
            raise UsageError(
                f"{state.folder / min(foreign_names)} exists already, and was not made by this program",
                "move that file away, or choose another folder: --folder DIR",
            )
        if storage.mounted and not storage.ours_mounted:
            raise EnvironmentFaultError(
                f"{storage.mounted} is mounted at {storage.point}, and was not mounted by this program",
                f"unmount {storage.mounted}, or choose another folder: --folder DIR",
            )
        if cached := next((loop.path for loop in storage.model_loops if not loop.direct), None):
            raise EnvironmentFaultError(
                f"{cached} of {name} goes through the page cache, which would answer instead of the model",
                f"losetup --direct-io=on {cached}; if the kernel refuses direct I/O: testbed up model=rates",
            )
        if storage.attached and storage.size_bytes is None:
            raise EnvironmentFaultError(
                f"the file of {storage.attached[0].path}, {storage.image}, was removed",
                "python -m campaign testbed down",
            )


def _refuse_silent_models(storages: Iterable[StorageState]) -> None:
    """Raise EnvironmentFaultError if a model does not answer and may still have data to write."""
    for storage in storages:
        if storage.silent and not storage.stuck and storage.server:
            raise EnvironmentFaultError(
                f"the model of {storage.point.name} (process {storage.server.pid}) does not answer: the underlying"
                " disk may be busy",
                "wait until the model answers; or kill the model and lose its unwritten data:"
                f" sudo kill -KILL {storage.server.pid}; then repeat the command",
            )


def _choose_sizes(requests: Mapping[str, StorageRequest], state: TestbedState) -> dict[str, int]:
    """Return the size of each storage in bytes; all storages together must fit into the free space of the disk.

    If the underlying disk becomes full, a file system in an image file loses data and reports "input/output error".
    """
    requests = {name: request for name, request in requests.items() if not is_linked_node(name)}
    images = {name: storage for name, storage in state.storages.items() if not is_linked_node(name)}
    present_sizes = {name: size for name, storage in images.items() if (size := storage.size_bytes) is not None}
    for name, size in present_sizes.items():
        requested = requests[name].size_bytes if name in requests else None
        if requested is not None and requested != size:
            raise UsageError(
                f"{name} has {size / GB:g} GB already, not the requested {requested / GB:g} GB",
                "remove the testbed first: python -m campaign testbed down",
            )
    requested_sizes = {name: request.size_bytes for name, request in requests.items() if request.size_bytes is not None}
    new_names = [name for name in requests if name not in present_sizes and name not in requested_sizes]
    promised_bytes = sum(
        size - min(size, state.storages[name].allocated_bytes)
        for name, size in (present_sizes | requested_sizes).items()
    )
    room_bytes = state.free_bytes - _RESERVE - promised_bytes
    share_bytes = min(LARGEST_SHARE, room_bytes // len(new_names) // _TENTH * _TENTH) if new_names else 0
    if (room_bytes < 0 and requested_sizes.keys() - present_sizes.keys()) or (new_names and share_bytes < _LEAST):
        raise EnvironmentFaultError(
            f"on the disk of {state.folder}, {state.free_bytes / GB:.1f} GB are free: too little for the requested"
            f" {sum(requested_sizes.values()) / GB:.1f} GB and the {_RESERVE / GB:g} GB that must remain free",
            "request less space (hdd.size_gb=…, storages=[hdd,ssd]), or use another disk: --folder DIR",
        )
    return {**dict.fromkeys(new_names, share_bytes), **requested_sizes, **present_sizes}


def _choose_loops(requests: Iterable[str], state: TestbedState) -> dict[str, LoopDevice]:
    """Return the loop device of each requested storage; a new storage gets the device that the kernel will assign."""
    free_loops = iter(state.free_loops)
    return {name: loops[0] if (loops := state.storages[name].attached) else next(free_loops) for name in requests}


def _bookkeeping_steps(requests: Mapping[str, StorageRequest], state: TestbedState, attached: list[str]) -> list[Group]:
    """Return the steps that write the request into the marker, and remove the limits of loop devices no longer used.

    `attached` are the device numbers of the loop devices that the requested storages have already.
    """
    own_devices = {loop.number for storage in state.storages.values() for loop in storage.attached}
    foreign_numbers = [number for number in state.limited_devices if number not in own_devices]
    steps: list[Group] = [[step] for number in foreign_numbers for step in state.device_limits.steps(number, {})]
    own_numbers = [number for number in state.limited_devices if number in own_devices]
    numbers = list(dict.fromkeys([*own_numbers, *attached]))
    storage_facts = _describe_storages(requests, state)
    if not state.marker or state.marker["storages"] != storage_facts or state.limited_devices != numbers:
        steps.append([_write_marker(state, storage_facts, numbers)])
    return steps


def _describe_storages(requests: Mapping[str, StorageRequest], state: TestbedState) -> dict[str, object]:
    return {**state.storage_facts, **{name: request.facts(name) for name, request in requests.items()}}


def _write_marker(state: TestbedState, storages: Mapping[str, object], numbers: Iterable[str]) -> WriteStep:
    marker = {
        "schema": SCHEMA,
        "about": "made by python -m campaign testbed up; removed by python -m campaign testbed down",
        "storages": storages,
        "boot_id": state.boot_id,
        "numbers": list(dict.fromkeys(numbers)),
    }
    return WriteStep(state.folder / MARKER, json.dumps(marker), ours=True)


def _removal_steps(state: TestbedState) -> list[Group]:
    """Return the steps that remove the files of a testbed.

    The marker is removed last, because only the marker shows which files belong to the testbed.
    """
    foreign_mounts = [storage for storage in state.storages.values() if storage.mounted and not storage.ours_mounted]
    steps: list[Group] = []
    for storage in state.storages.values():
        if storage.size_bytes is not None or storage.unfinished:
            steps.append([program_step("rm", "-f", storage.image, unfinished_image(storage.image), storage.serving)])
        if storage.point_there and storage not in foreign_mounts and storage.point.name not in state.foreign_names:
            steps.append([program_step("rmdir", storage.point)])
        steps += [[program_step("rmdir", storage.model)]] if storage.model_there else []
    last: Group = [
        program_step("rm", "-f", *(state.folder / name for name in (*state.programs, *state.leftovers, MARKER)))
    ]
    return [*steps, last if state.foreign_names or foreign_mounts else [*last, program_step("rmdir", state.folder)]]
