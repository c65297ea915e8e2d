"""What is still to be done for a testbed to be up, or to be gone: pure functions of what was found.

A plan is a list of groups of steps. Only its first group is done before everything is inspected again, so that a
command that was killed at any moment is continued by the next one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed.spec import FIRST, GB, is_link, source
from campaign.testbed.state import MARKER, SCHEMA, unfinished
from campaign.testbed.steps import Step, Write, run
from jobs.system.emulated import DEVICE, FAULTS
from jobs.system.emulated import MARKER as EMULATED

if TYPE_CHECKING:
    from campaign.testbed.spec import Wanted
    from campaign.testbed.state import Loop, Seen, Storage

    Group = list[Step]

LARGEST_SHARE = 12 * GB  # a 5 GB file of the baseline (paper, IV), the 2 GB of Fig 4, six snapshots of 0.7 GB
_RESERVE = 1 * GB  # left free beneath
_LEAST = 60_000_000  # bytes in which ext4 has room for its journal and for files
_AT_ONCE = "lazy_itable_init=0,lazy_journal_init=0"  # else the kernel writes for minutes after the first mount
_TENTH = 100_000_000  # a share is whole tenths of a GB


def up(asked: Mapping[str, Wanted], owner: tuple[int, int], seen: Seen) -> list[Group]:
    """Return what makes the storages that are asked for, and leaves others of the folder as they are.

    `owner`: user and group of each storage's root.
    """
    _refuse_silent(seen.storages[name] for name in asked)
    _refuse_foreign(asked, seen)
    sizes = _sizes(asked, seen)
    steps: list[Group] = [] if seen.there else [[run("mkdir", "-p", "-m", "755", seen.folder)]]
    for name, wanted in asked.items():
        if _is_otherwise(seen.storages[name], wanted, seen.program.name):
            steps += _detached(seen.storages[name])
            seen = replace(seen, storages={**seen.storages, name: _without_device(seen.storages[name])})
    loops = _loops(asked, seen)
    attached = [loop.number for name in asked for loop in seen.storages[name].attached]
    steps += _bookkeeping(asked, seen, attached)
    if any(wanted.model for wanted in asked.values()) and seen.program.name not in seen.programs:
        new = seen.program.with_suffix(".new")
        steps.append([run("cc", "-O2", "-o", new, source(), "-lm"), run("mv", new, seen.program)])
    for name, wanted in asked.items():
        each = seen.storages[name]
        steps += _link(each, seen.storages[FIRST]) if is_link(name) else _image(each, sizes[name])
        if name == FIRST and each.size_bytes is None:
            steps += _marked(each, wanted, owner, [])
        steps += _device(each, wanted, seen.program)
        steps += _calmed(seen.storages[name])
    coming = [loop.number for loop in loops.values()]
    if missing := [number for number in coming if number not in attached]:
        steps += [[_marker(seen, _described(asked, seen), [*seen.numbers, *attached, *missing])]]
    for name, wanted in asked.items():
        steps += [[step] for step in seen.bounds.steps(loops[name].number, wanted.limits())]
        if wanted.node:
            steps += _mount_node(name, loops[name], wanted, owner, seen)
        else:
            steps += _mount(name, seen.storages[name], loops[name], wanted, owner)
    return steps


def writable(seen: Seen) -> list[Group]:
    """Return what lets the first node alone, and no other, write what all nodes read."""
    first = seen.storages[FIRST]
    steps = [group for each in _nodes(seen) if any(loop.read_only for loop in each.loops) for group in _detached(each)]
    return steps if first.ours_mounted else [*steps, [_writable(first)]]


def down(seen: Seen, *, keep: bool) -> list[Group]:
    """Return what takes a testbed away; with `keep` its images stay, with what is on them, for the next `up`."""
    _refuse_silent(seen.storages.values())
    steps: list[Group] = []
    for each in reversed(list(seen.storages.values())):
        steps += _detached(each)
    attached = [loop.number for each in seen.storages.values() for loop in each.attached]
    for number in dict.fromkeys([*seen.numbers, *attached]):
        steps += [[step] for step in seen.bounds.steps(number, {})]
    if seen.marker is None and not seen.leftovers:
        return steps
    if keep and seen.marker:
        return [*steps, [_marker(seen, seen.marker["storages"], [])]] if seen.numbers else steps
    return steps + _remove(seen)


def _refuse_foreign(asked: Iterable[str], seen: Seen) -> None:
    if seen.marker is None and seen.strangers:
        raise UsageError(
            f"{seen.folder} is no testbed of ours and holds other files, such as {seen.strangers[0]}",
            "name a folder that is empty or not there yet: --folder DIR",
        )
    for name in asked:
        each = seen.storages[name]
        theirs = {each.image.name, unfinished(each.image).name, each.point.name, each.model.name}.intersection(
            seen.strangers
        )
        if theirs and not each.mounted:
            raise UsageError(
                f"{seen.folder / min(theirs)} is there already, and not ours", "move it away, or name another --folder"
            )
        if each.mounted and not each.ours_mounted:
            raise EnvironmentFaultError(
                f"{each.mounted} is mounted at {each.point}, and is not ours", "unmount it, or name another --folder"
            )
        if cached := next((loop.path for loop in each.served if not loop.direct), None):
            raise EnvironmentFaultError(
                f"{cached} of {name} goes through the page cache, which would answer in place of its model",
                f"losetup --direct-io=on {cached}; where the kernel refuses that: testbed up model=rates",
            )
        if each.attached and each.size_bytes is None:
            raise EnvironmentFaultError(
                f"the file of {each.attached[0].path}, {each.image}, was taken away", "python -m campaign testbed down"
            )


def _refuse_silent(storages: Iterable[Storage]) -> None:
    """Refuse what a model may have to write yet: it does not answer, and nothing says that it never will."""
    for each in storages:
        if each.silent and not each.stuck and each.server:
            raise EnvironmentFaultError(
                f"the model of {each.point.name} (process {each.server.pid}) does not answer: the disk beneath may be"
                " busy",
                f"wait for it; or give up what it has not written (sudo kill -KILL {each.server.pid}); then repeat the"
                " same command",
            )


def _sizes(asked: Mapping[str, Wanted], seen: Seen) -> dict[str, int]:
    """Return the size of each storage in bytes; together they never have more than there is room for beneath.

    A file system in a file beneath which the room runs out loses data, and says "input/output error".
    """
    asked = {name: wanted for name, wanted in asked.items() if not is_link(name)}
    images = {name: each for name, each in seen.storages.items() if not is_link(name)}
    there = {name: size for name, each in images.items() if (size := each.size_bytes) is not None}
    for name, size in there.items():
        wanted = asked[name].size_bytes if name in asked else None
        if wanted is not None and wanted != size:
            raise UsageError(
                f"{name} has {size / GB:g} GB already, {wanted / GB:g} GB are asked for",
                "remove it first: python -m campaign testbed down",
            )
    fixed = {name: each.size_bytes for name, each in asked.items() if each.size_bytes is not None}
    new = [name for name in asked if name not in there and name not in fixed]
    promised = sum(size - min(size, seen.storages[name].allocated_bytes) for name, size in (there | fixed).items())
    room = seen.free_bytes - _RESERVE - promised
    share = min(LARGEST_SHARE, room // len(new) // _TENTH * _TENTH) if new else 0
    if (room < 0 and fixed.keys() - there.keys()) or (new and share < _LEAST):
        raise EnvironmentFaultError(
            f"beneath {seen.folder} {seen.free_bytes / GB:.1f} GB are free: too little for what is asked for,"
            f" {sum(fixed.values()) / GB:.1f} GB in all and {_RESERVE / GB:g} GB that stay free",
            "ask for less (hdd.size_gb=…, storages=[hdd,ssd]), or for another place: --folder DIR",
        )
    return {**dict.fromkeys(new, share), **fixed, **there}


def _is_otherwise(each: Storage, wanted: Wanted, program: str) -> bool:
    """Return whether a storage has a device, and not the one that is asked for.

    Its model is another, or one of another version, or has died; or its file system gave up, and must be mounted anew.
    """
    if wanted.node:
        return not all(loop.direct and loop.read_only for loop in each.loops)
    if each.failed and each.ours_mounted:
        return True
    if wanted.model is None:
        return bool(each.served or each.model_mounted)
    server = None if each.stuck else each.server
    runs = each.model_mounted and server and (server.program, server.words) == (program, wanted.words())
    return bool(each.loops or ((each.served or each.model_mounted) and not runs))


def _detached(each: Storage) -> list[Group]:
    """Return what takes a storage's device away.

    One whose model is known to answer nobody is cut off at once, so that all who wait for it have their error. What
    still has a file open there keeps the loop device until it ends, and no name for it.
    """
    umount = ["umount", *(["--lazy"] if each.stuck else [])]
    steps: Group = [run("kill", "-KILL", each.server.pid)] if each.stuck and each.server else []
    steps += [run(*umount, each.point)] if each.ours_mounted else []
    steps += [run("losetup", "--detach", loop.path) for loop in each.attached]
    steps += [run("umount", "--lazy", each.model)] if each.model_mounted else []
    return [steps] if each.stuck else [[step] for step in steps]


def _without_device(each: Storage) -> Storage:
    gone = replace(each, loops=(), served=(), model_mounted=False, server=None)
    return replace(gone, mounted=None, failed=False, says=None, owner=None, empty=True) if each.ours_mounted else gone


def _loops(asked: Iterable[str], seen: Seen) -> dict[str, Loop]:
    """Return the loop device of each storage; where it has none yet, the one that the kernel will give it."""
    coming = iter(seen.idle)
    return {name: loops[0] if (loops := seen.storages[name].attached) else next(coming) for name in asked}


def _bookkeeping(asked: Mapping[str, Wanted], seen: Seen, attached: list[str]) -> list[Group]:
    """Write down what is asked for before it is made; give up the bounds of devices that are no longer ours."""
    mine = {loop.number for each in seen.storages.values() for loop in each.attached}
    stale = [number for number in seen.numbers if number not in mine]
    steps: list[Group] = [[step] for number in stale for step in seen.bounds.steps(number, {})]
    kept = [number for number in seen.numbers if number in mine]
    numbers = list(dict.fromkeys([*kept, *attached]))
    described = _described(asked, seen)
    if not seen.marker or seen.marker["storages"] != described or seen.numbers != numbers:
        steps.append([_marker(seen, described, numbers)])
    return steps


def _described(asked: Mapping[str, Wanted], seen: Seen) -> dict[str, object]:
    return {**seen.marked, **{name: each.facts(name) for name, each in asked.items()}}


def _marker(seen: Seen, storages: Mapping[str, object], numbers: Iterable[str]) -> Write:
    described = {
        "schema": SCHEMA,
        "about": "made by python -m campaign testbed up; removed by python -m campaign testbed down",
        "storages": storages,
        "boot_id": seen.boot_id,
        "numbers": list(dict.fromkeys(numbers)),
    }
    return Write(seen.folder / MARKER, json.dumps(described), ours=True)


def _image(each: Storage, size: int) -> list[Group]:
    """Return what makes a storage's file."""
    new = unfinished(each.image)
    blocks = ("-b", 4096) if each.point.name == FIRST else ()  # the sector size that its loop devices have
    if each.size_bytes is not None:
        return [[run("rm", "-f", new)]] if each.unfinished else []
    return [
        [
            run("install", "-m", "600", "/dev/null", new),  # empty, and never readable by others: it holds all files
            run("truncate", "--size", size, new),
            run("mkfs.ext4", "-q", "-F", *blocks, "-m", 0, "-E", _AT_ONCE, new),
            run("sync", new),
            run("mv", new, each.image),
        ]
    ]


def _nodes(seen: Seen) -> list[Storage]:
    return [each for each in seen.storages.values() if each.is_node]


def _link(each: Storage, first: Storage) -> list[Group]:
    """Return what gives the image of all nodes another name: by it a loop device is known to be this node's."""
    same = each.inode is not None and each.inode == first.inode
    return [] if same else [[run("ln", "--force", first.image, each.image)]]


def _marked(first: Storage, wanted: Wanted, owner: tuple[int, int], others: Iterable[Storage]) -> list[Group]:
    """Return what marks the file system that all nodes read, and gives its data folder an owner.

    One group: a kill within leaves a node that is writable, or not mounted, which the next `up` mends.
    """
    user, group = owner
    return [
        [
            *(step for each in others for steps in _detached(each) for step in steps),
            run("mkdir", "-p", "-m", "755", first.point),
            _writable(first),
            Write(first.point / EMULATED, json.dumps(wanted.facts(FIRST)), ours=True),
            run("install", "-d", "-m", "755", "-o", user, "-g", group, first.root),
            run("umount", first.point),
        ]
    ]


def _writable(first: Storage) -> Step:
    """Return what mounts the image so that it can be written; the loop device goes with the mount."""
    return run("mount", "-t", "ext4", "-o", "loop,nosuid,nodev", first.image, first.point)


def _mount_node(name: str, loop: Loop, wanted: Wanted, owner: tuple[int, int], seen: Seen) -> list[Group]:
    """Return what mounts one node's view of what all of them read."""
    each = seen.storages[name]
    if not each.mounted:
        made: list[Group] = [] if each.point_there else [[run("mkdir", "-p", "-m", "755", each.point)]]
        return [*made, [run("mount", "-t", "ext4", "-o", "ro,nosuid,nodev", loop.path, each.point)]]
    known = each.says == wanted.facts(name) and each.owner is not None and (each.owner == owner or not each.empty)
    return [] if known or name != FIRST else _marked(each, wanted, owner, _nodes(seen))


def _device(each: Storage, wanted: Wanted, program: Path) -> list[Group]:
    """Return what makes a block device of the file: with a model, of the file that serves it in the model's time."""
    if each.attached:
        return []
    if wanted.node:
        # A file system that lost its power while it was filled has a journal, which a read-only mount cannot replay.
        mended = [run("e2fsck", "-p", each.image, may_fail=True)] if each.point.name == FIRST else []
        past_cache = ("--read-only", "--direct-io=on", "--sector-size=4096")
        return [[*mended, run("losetup", "--find", *past_cache, each.image)]]
    if wanted.model is None:
        return [[run("losetup", "--find", each.image)]]
    steps: list[Group] = [] if each.model_there else [[run("mkdir", "-m", "755", each.model)]]
    if not each.model_mounted:
        steps.append([run(program, each.model, each.image, *wanted.words())])
    return [*steps, [run("losetup", "--find", "--direct-io=on", each.model / DEVICE)]]


def _calmed(each: Storage) -> list[Group]:
    """Return what ends the faults that somebody has given to a storage's model.

    A file system that met one gives up when it writes next: it is to do so now, to be mended with the rest.
    """
    faults = (each.server.faults if each.server else None) or ()
    steps: Group = [Write(each.model / FAULTS, f"{name} 0") for name in faults]
    if steps and each.ours_mounted:
        steps += [run(*words, each.point, may_fail=True) for words in (("touch",), ("sync", "--file-system"))]
    return [steps] if steps else []


def _mount(name: str, each: Storage, loop: Loop, wanted: Wanted, owner: tuple[int, int]) -> list[Group]:
    """Return what mounts a storage whose device is bounded already, and marks it before it can be used."""
    steps: list[Group] = [] if each.point_there else [[run("mkdir", "-m", "755", each.point)]]
    if not each.mounted:
        steps.append([run("mount", "-t", "ext4", "-o", "nosuid,nodev", loop.path, each.point)])
    if each.says != wanted.facts(name):
        steps.append([Write(each.point / EMULATED, json.dumps(wanted.facts(name)), ours=True)])
    if each.owner is None or (each.owner != owner and each.empty):
        user, group = owner
        steps.append([run("install", "-d", "-m", "755", "-o", user, "-g", group, each.root)])
    return steps


def _remove(seen: Seen) -> list[Group]:
    """Return what removes the files; the marker last, for without it nothing is known to be ours."""
    stay = [each for each in seen.storages.values() if each.mounted and not each.ours_mounted]
    steps: list[Group] = []
    for each in seen.storages.values():
        if each.size_bytes is not None or each.unfinished:
            steps.append([run("rm", "-f", each.image, unfinished(each.image))])
        if each.point_there and each not in stay and each.point.name not in seen.strangers:
            steps.append([run("rmdir", each.point)])
        steps += [[run("rmdir", each.model)]] if each.model_there else []
    last: Group = [run("rm", "-f", *(seen.folder / name for name in (*seen.programs, *seen.leftovers, MARKER)))]
    return [*steps, last if seen.strangers or stay else [*last, run("rmdir", seen.folder)]]
