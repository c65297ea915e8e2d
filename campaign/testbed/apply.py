"""Bring a testbed up, take it down, and report its state."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from filelock import FileLock, Timeout

from campaign import console
from campaign.errors import EnvironmentFaultError
from campaign.testbed import plan, s3
from campaign.testbed.spec import FIRST, Wanted
from campaign.testbed.state import inspect

if TYPE_CHECKING:
    from campaign.testbed.state import Seen, Storage
    from campaign.testbed.steps import Group, Step
    from jobs.model.settings import Node

_LOCK = Path("/run/tfio-testbed.lock")  # one for the machine: its loop devices are shared
_PATIENCE_S = 3.0  # udev may hold a loop device for a moment
_ANSWER_S = 30.0  # in which a model answers, however busy the disk beneath it
_MOMENT_S = 0.1
_MOST_TIMES = 3  # what nodes read is marked on a second mount, after which the devices are attached again


def up(folder: Path, asked: Mapping[str, Wanted], owner: tuple[int, int], store: s3.Store | None = None) -> Seen:
    """Make what is missing of the storages, and of the object store, that are asked for; returns what there is then.

    What was done before an error stays, and the same call continues from there.
    """
    with _alone():
        seen = _settle(lambda: expected(folder, asked, store, _ANSWER_S), lambda seen: plan.up(asked, owner, seen))
        if store:
            s3.up(folder, store, owner)
    return seen


def expected(
    folder: Path, asked: Mapping[str, Wanted], store: s3.Store | None, patience_s: float | None = None
) -> Seen:
    """Return what there is, without the room that the object store will take."""
    seen = inspect(folder, asked, patience_s)
    return replace(seen, free_bytes=seen.free_bytes - s3.promised_beneath(folder, store))


def down(folder: Path, *, keep: bool = False) -> Seen:
    """Take the testbed away, but for its images where they are to be kept; returns what there is then."""
    with _alone():
        _see_that_nobody_uses(inspect(folder))
        s3.see_that_nobody_uses(folder)
        s3.down(folder, keep=keep)
        return _settle(lambda: inspect(folder, patience_s=_ANSWER_S), lambda seen: plan.down(seen, keep=keep))


def fill(folder: Path, work: Callable[[Storage], int]) -> int:
    """Let `work` write what all emulated nodes read, on the first one; then they are up again. Returns what it does."""
    with _alone():
        found = inspect(folder, patience_s=_ANSWER_S)
        facts = {name: each for name, each in found.marked.items() if found.storages[name].is_node}
        if not facts:
            raise EnvironmentFaultError(
                f"no emulated nodes in {folder}", "python -m campaign testbed up nodes=4, as root"
            )
        asked = {name: Wanted.of(each, found.storages[name].size_bytes) for name, each in facts.items()}
        whose = found.storages[FIRST].owner or owner()
        _see_that_nobody_uses(replace(found, storages={name: found.storages[name] for name in asked}))

        def up() -> Seen:
            return _settle(lambda: inspect(folder, asked, _ANSWER_S), lambda seen: plan.up(asked, whose, seen))

        up()
        try:
            return work(_settle(lambda: inspect(folder, asked, _ANSWER_S), plan.writable).storages[FIRST])
        finally:
            up()


def _see_that_nobody_uses(seen: Seen) -> None:
    """Refuse before anything is taken away: half a testbed is of no use to who still works on the other half."""
    points = {
        os.path.realpath(each.point): name
        for name, each in seen.storages.items()
        if each.ours_mounted and not each.stuck  # nobody gets anything from such a one any more
    }
    ours = s3.processes(seen.folder)
    for process in psutil.process_iter() if points else ():
        if process.pid in ours:
            continue
        for path in _open(process):
            used = next((name for point, name in points.items() if Path(path).is_relative_to(point)), None)
            if used:
                raise EnvironmentFaultError(
                    f"{used} is busy: process {process.pid} has {path} open",
                    "end it (a campaign: Ctrl-C), then give the same command again",
                )


def _open(process: psutil.Process) -> list[str]:
    """Return the files of a process and where it is; nothing of one that has ended.

    Links of the kernel's are read, and nothing of what they lead to: that may be on a storage that does not answer.
    """
    found = []
    for link in _links(Path("/proc", str(process.pid))):
        with suppress(OSError):
            found.append(str(link.readlink()))
    return found


def _links(process: Path) -> list[Path]:
    with suppress(OSError):
        return [process / "cwd", *(process / "fd").iterdir()]
    return []


def owner() -> tuple[int, int]:
    """Return user and group that the storages belong to: who called sudo, else who we are."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if user.isdecimal() and group.isdecimal() else (os.geteuid(), os.getegid())


def states(seen: Seen) -> dict[str, Node]:
    """Return the state of each storage, by its name."""
    return {name: _state(name, facts, seen) for name, facts in seen.marked.items()}


def _state(name: str, facts: Node, seen: Seen) -> Node:
    each = seen.storages[name]
    said = {key: value for key, value in facts.items() if key != "name"}
    begun = each.attached or each.mounted or each.size_bytes is None
    missing = _missing(name, Wanted.of(facts, each.size_bytes), seen) if begun else None
    state = "down" if not begun else "incomplete" if missing else "up"
    return {
        "emulated": True,
        "state": state,
        "missing": missing,
        "root": str(each.root),
        "size_bytes": each.size_bytes,
        "device": each.attached[0].path if each.attached else None,
        **said,
    }


def _missing(name: str, wanted: Wanted, seen: Seen) -> str | None:
    """Return what a storage lacks: its next step, or what stands in the way of any; None where it is up."""
    each = seen.storages[name]
    try:
        # What is not made is not counted: asked for in full, a storage would be said to lack room.
        steps = plan.up({name: wanted}, each.owner or owner(), seen)
    except EnvironmentFaultError as error:
        return error.message
    return str(steps[0][0]) if steps else None


def _settle(see: Callable[[], Seen], wanted: Callable[[Seen], list[Group]]) -> Seen:
    """Do the first group of the plan, inspect and plan again, until nothing is left to do.

    Raises EnvironmentFaultError where steps change nothing that is seen, or where others undo them again and again.
    """
    done: list[Group] = []
    patience_s = 0.0
    while groups := wanted(seen := see()):
        group = groups[0]
        if group in done[-1:] and patience_s < _PATIENCE_S:
            time.sleep(_MOMENT_S)
            patience_s += _MOMENT_S
            continue
        if group in done[-1:] or done.count(group) == _MOST_TIMES:
            why = "nothing has changed" if group in done[-1:] else f"undone, {_MOST_TIMES} times"
            raise EnvironmentFaultError(
                f"{'; '.join(map(str, group))}: it was done, and {why}",
                "somebody else mounts it, or uses it (an open file); end that, then repeat the same command",
            )
        for step in group:
            _do(step)
        done.append(group)
        patience_s = 0.0
    return seen


def _do(step: Step) -> None:
    step.do()


@contextmanager
def _alone() -> Iterator[None]:
    """Keep two testbeds from being made at once, and what is made readable for everybody."""
    before = os.umask(0o022)
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
        os.umask(before)
