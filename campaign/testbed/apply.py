"""Bring a testbed of emulated storages up, take it down, and report its state."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from filelock import FileLock, Timeout

from campaign import console
from campaign.errors import EnvironmentFaultError
from campaign.testbed import plan, s3
from campaign.testbed.spec import FIRST, StorageRequest
from campaign.testbed.state import inspect_testbed

if TYPE_CHECKING:
    from campaign.testbed.state import StorageState, TestbedState
    from campaign.testbed.steps import Group, Step
    from jobs.model.settings import Node

_LOCK = Path("/run/tfio-testbed.lock")  # one lock per machine, because all testbeds share the machine's loop devices
_PATIENCE_S = 3.0  # udev may keep a loop device open for a short time
_ANSWER_S = 30.0  # a model answers within this time, even if the underlying disk is busy
_PAUSE_S = 0.1
# A group of steps may be needed again. For example, marking the file system of the nodes detaches loop devices, which
# must be attached again.
_MOST_TIMES = 3


def bring_up(
    folder: Path, requests: Mapping[str, StorageRequest], owner: tuple[int, int], store: s3.StoreRequest | None = None
) -> TestbedState:
    """Make the missing parts of the requested storages and of the object store; return the new state of the testbed.

    After an error, the same call can be repeated, and does only the steps that are still missing.
    """
    with _hold_lock():
        state = _carry_out_plans(
            partial(expected_state, folder, requests, store, _ANSWER_S), partial(plan.plan_creation, requests, owner)
        )
        if store:
            s3.bring_up_store(folder, store, owner)
    return state


def expected_state(
    folder: Path, requests: Mapping[str, StorageRequest], store: s3.StoreRequest | None, patience_s: float | None = None
) -> TestbedState:
    """Return the present state of the testbed; its free space is reduced by the future size of the object store."""
    state = inspect_testbed(folder, requests, patience_s)
    return replace(state, free_bytes=state.free_bytes - s3.bytes_promised_beneath(folder, store))


def take_down(folder: Path, *, keep: bool = False) -> TestbedState:
    """Remove the testbed and return its new state; with `keep`, the image files of the storages are not removed."""
    with _hold_lock():
        _require_unused(inspect_testbed(folder))
        s3.require_unused(folder)
        s3.take_down_store(folder, keep=keep)
        return _carry_out_plans(
            partial(inspect_testbed, folder, patience_s=_ANSWER_S), partial(plan.plan_removal, keep=keep)
        )


def write_on_first_node(folder: Path, work: Callable[[StorageState], int]) -> int:
    """Mount the first emulated node for writing, call `work` and return its result; all nodes read these files."""
    with _hold_lock():
        state = inspect_testbed(folder, patience_s=_ANSWER_S)
        facts_of_nodes = {name: facts for name, facts in state.storage_facts.items() if state.storages[name].is_node}
        if not facts_of_nodes:
            raise EnvironmentFaultError(
                f"there are no emulated nodes in {folder}", "as root, run `python -m campaign testbed up nodes=4`"
            )
        requests = {
            name: StorageRequest.from_facts(facts, state.storages[name].size_bytes)
            for name, facts in facts_of_nodes.items()
        }
        owner = state.storages[FIRST].owner or find_owner()
        _require_unused(replace(state, storages={name: state.storages[name] for name in requests}))
        inspect = partial(inspect_testbed, folder, requests, _ANSWER_S)
        plan_nodes = partial(plan.plan_creation, requests, owner)
        _carry_out_plans(inspect, plan_nodes)
        try:
            return work(_carry_out_plans(inspect, plan.plan_writable_node).storages[FIRST])
        finally:
            _carry_out_plans(inspect, plan_nodes)


def _require_unused(state: TestbedState) -> None:
    """Raise EnvironmentFaultError if a process has a file on a storage of the testbed open."""
    points = {
        os.path.realpath(storage.point): name
        for name, storage in state.storages.items()
        if storage.ours_mounted and not storage.stuck  # the model of a stuck storage will never answer
    }
    for pid in {*psutil.pids()} - s3.store_processes(state.folder) if points else ():
        for path in _files_of_process(pid):
            used = next((name for point, name in points.items() if Path(path).is_relative_to(point)), None)
            if used:
                raise EnvironmentFaultError(
                    f"{used} is busy: process {pid} has {path} open",
                    "end the process (a campaign with Ctrl-C), then repeat the command",
                )


def _files_of_process(pid: int) -> list[str]:
    """Return the paths of the open files and of the current folder of a process; empty if the process has ended.

    The function reads only links in /proc, because an access to the files would hang if their storage does not answer.
    """
    open_files = []
    # Path.glob would raise an error if the process ends meanwhile.
    for link in (f"/proc/{pid}/cwd", *glob.glob(f"/proc/{pid}/fd/*")):  # noqa: PTH207 - see above
        with suppress(OSError):
            open_files.append(os.readlink(link))  # noqa: PTH115 - see above
    return open_files


def find_owner() -> tuple[int, int]:
    """Return the user id and the group id that own the storages.

    Under sudo, these are the ids of the user who called sudo, otherwise the ids of this process.
    """
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if user.isdecimal() and group.isdecimal() else (os.geteuid(), os.getegid())


def storage_states(testbed: TestbedState) -> dict[str, Node]:
    """Return the state of each storage of a testbed, by the storage's name, for the command `testbed status`."""
    return {name: _storage_state(name, storage_facts, testbed) for name, storage_facts in testbed.storage_facts.items()}


def _storage_state(name: str, facts: Node, state: TestbedState) -> Node:
    storage = state.storages[name]
    values = {key: value for key, value in facts.items() if key != "name"}
    has_begun = storage.attached or storage.mounted or storage.size_bytes is None
    missing = _missing_step(name, StorageRequest.from_facts(facts, storage.size_bytes), state) if has_begun else None
    status = "down" if not has_begun else "incomplete" if missing else "up"
    return {
        "emulated": True,
        "state": status,
        "missing": missing,
        "root": str(storage.root),
        "size_bytes": storage.size_bytes,
        "device": storage.attached[0].path if storage.attached else None,
        **values,
    }


def _missing_step(name: str, request: StorageRequest, state: TestbedState) -> str | None:
    """Return the next missing step of a storage, or the error that prevents this step; None if the storage is up."""
    storage = state.storages[name]
    try:
        # The request has the present size. Another size could report too little free space for an existing storage.
        steps = plan.plan_creation({name: request}, storage.owner or find_owner(), state)
    except EnvironmentFaultError as error:
        return error.message
    return str(steps[0][0]) if steps else None


def _carry_out_plans(
    inspect: Callable[[], TestbedState], make_plan: Callable[[TestbedState], list[Group]]
) -> TestbedState:
    """Do the first group of steps, inspect the testbed and plan again, until the plan is empty; return the last state.

    Raise EnvironmentFaultError if steps do not change the state, or if another program undoes steps repeatedly.
    """
    finished: list[Group] = []
    patience_s = 0.0
    while groups := make_plan(state := inspect()):
        group = groups[0]
        if group in finished[-1:] and patience_s < _PATIENCE_S:
            time.sleep(_PAUSE_S)
            patience_s += _PAUSE_S
            continue
        if group in finished[-1:] or finished.count(group) == _MOST_TIMES:
            is_without_effect = group in finished[-1:]
            reason = "has changed nothing" if is_without_effect else f"was done and undone {_MOST_TIMES} times"
            raise EnvironmentFaultError(
                f"{'; '.join(map(str, group))}: this step {reason}",
                "another program mounts the storage or has an open file on it; end that program and repeat the command",
            )
        for step in group:
            _do_step(step)
        finished.append(group)
        patience_s = 0.0
    return state


def _do_step(step: Step) -> None:
    step.do()


@contextmanager
def _hold_lock() -> Iterator[None]:
    """Hold the lock of testbed commands during the ``with`` block, with a umask that lets all users read new files."""
    old_umask = os.umask(0o022)
    lock = FileLock(_LOCK, mode=0o600, fallback_to_soft=False)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            console.say("another testbed command is running; waiting until that command ends")
            lock.acquire()
        with lock:
            yield
    finally:
        lock.release(force=True)
        os.umask(old_umask)
