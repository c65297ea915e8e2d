"""Bring a testbed up, take it down, and report its state."""

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

_LOCK = Path("/run/tfio-testbed.lock")  # one for the machine: its loop devices are shared
_PATIENCE_S = 3.0  # udev may hold a loop device for a short time
_ANSWER_S = 30.0  # a model answers within this time, even if the disk beneath is busy
_PAUSE_S = 0.1
_MOST_TIMES = 3  # a group may be needed again: marking the nodes' file system detaches devices, which come back


def bring_up(
    folder: Path, requests: Mapping[str, StorageRequest], owner: tuple[int, int], store: s3.StoreRequest | None = None
) -> TestbedState:
    """Make the missing parts of the requested storages and of the object store; return the new state of the testbed.

    After an error the finished steps stay done, and the same call continues after them.
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
    """Return the present state, with the free space reduced by the space that the object store will take."""
    state = inspect_testbed(folder, requests, patience_s)
    return replace(state, free_bytes=state.free_bytes - s3.bytes_promised_beneath(folder, store))


def take_down(folder: Path, *, keep: bool = False) -> TestbedState:
    """Remove the testbed, with `keep` all but its images; return the new state of the testbed."""
    with _hold_lock():
        _require_unused(inspect_testbed(folder))
        s3.require_unused(folder)
        s3.take_down_store(folder, keep=keep)
        return _carry_out_plans(
            partial(inspect_testbed, folder, patience_s=_ANSWER_S), partial(plan.plan_removal, keep=keep)
        )


def write_on_first_node(folder: Path, work: Callable[[StorageState], int]) -> int:
    """Call `work` while the first emulated node, whose files all nodes read, is writable; return its result."""
    with _hold_lock():
        state = inspect_testbed(folder, patience_s=_ANSWER_S)
        facts_of_nodes = {name: facts for name, facts in state.storage_facts.items() if state.storages[name].is_node}
        if not facts_of_nodes:
            raise EnvironmentFaultError(
                f"no emulated nodes in {folder}", "python -m campaign testbed up nodes=4, as root"
            )
        requests = {
            name: StorageRequest.of(facts, state.storages[name].size_bytes) for name, facts in facts_of_nodes.items()
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
    """Raise EnvironmentFaultError if a process has files of the testbed open."""
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
                    "end it (a campaign: Ctrl-C), then repeat the same command",
                )


def _files_of_process(pid: int) -> list[str]:
    """Return the paths of the open files and of the current folder of a process; empty if the process has ended.

    The function reads only links of the kernel, because the files may be on a storage that does not answer.
    """
    open_files = []
    for link in (f"/proc/{pid}/cwd", *glob.glob(f"/proc/{pid}/fd/*")):  # noqa: PTH207 - Path.glob raises if it ends
        with suppress(OSError):
            open_files.append(os.readlink(link))  # noqa: PTH115 - the same
    return open_files


def find_owner() -> tuple[int, int]:
    """Return the user and the group that own the storages: those of the caller of sudo, otherwise our own."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if user.isdecimal() and group.isdecimal() else (os.geteuid(), os.getegid())


def storage_states(testbed: TestbedState) -> dict[str, Node]:
    """Return the state of each storage, by its name."""
    return {name: _storage_state(name, storage_facts, testbed) for name, storage_facts in testbed.storage_facts.items()}


def _storage_state(name: str, facts: Node, state: TestbedState) -> Node:
    storage = state.storages[name]
    values = {key: value for key, value in facts.items() if key != "name"}
    has_begun = storage.attached or storage.mounted or storage.size_bytes is None
    missing = _missing_step(name, StorageRequest.of(facts, storage.size_bytes), state) if has_begun else None
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
    """Return the next step that a storage lacks, or the error that prevents this step; None if the storage is up."""
    storage = state.storages[name]
    try:
        # The request has the present size: a full request could report missing room for a storage that exists.
        steps = plan.plan_creation({name: request}, storage.owner or find_owner(), state)
    except EnvironmentFaultError as error:
        return error.message
    return str(steps[0][0]) if steps else None


def _carry_out_plans(
    inspect: Callable[[], TestbedState], make_plan: Callable[[TestbedState], list[Group]]
) -> TestbedState:
    """Do the first group of the plan, inspect and plan again, until the plan is empty; return the last state.

    Raises EnvironmentFaultError if steps change nothing in the state, or if other programs undo steps repeatedly.
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
            reason = "nothing has changed" if group in finished[-1:] else f"undone, {_MOST_TIMES} times"
            raise EnvironmentFaultError(
                f"{'; '.join(map(str, group))}: it was done, and {reason}",
                "another program mounts it or has a file of it open; end that program, then repeat the same command",
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
    """Hold the lock of testbed commands in a block, with a umask that makes new files readable for everybody."""
    old_umask = os.umask(0o022)
    lock = FileLock(_LOCK, mode=0o600, fallback_to_soft=False)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            console.say("another testbed command is running; waiting for it")
            lock.acquire()
        with lock:
            yield
    finally:
        lock.release(force=True)
        os.umask(old_umask)
