"""The steps for one storage of a testbed: its file, its device, its mount, as a function of what was found of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.testbed import serving
from campaign.testbed.spec import FIRST
from campaign.testbed.state import unfinished
from campaign.testbed.steps import Call, Write, run
from jobs.system.emulated import DEVICE, FAULTS
from jobs.system.emulated import MARKER as EMULATED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from campaign.testbed.spec import Wanted
    from campaign.testbed.state import Loop, Seen, Storage
    from campaign.testbed.steps import Group, Step
    from jobs.model.settings import Node

_AT_ONCE = "lazy_itable_init=0,lazy_journal_init=0"  # else the kernel writes for minutes after the first mount


def is_otherwise(each: Storage, wanted: Wanted, program: str) -> bool:
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


def detached(each: Storage) -> list[Group]:
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


def without_device(each: Storage) -> Storage:
    """Return a storage as it is found after `detached`."""
    gone = replace(each, loops=(), served=(), model_mounted=False, server=None)
    return replace(gone, mounted=None, failed=False, says=None, owner=None, empty=True) if each.ours_mounted else gone


def image(each: Storage, size: int) -> list[Group]:
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


def link(each: Storage, first: Storage) -> list[Group]:
    """Return what gives the image of all nodes another name: by it a loop device is known to be this node's."""
    same = each.inode is not None and each.inode == first.inode
    return [] if same else [[run("ln", "--force", first.image, each.image)]]


def marked(first: Storage, wanted: Wanted, owner: tuple[int, int], others: Iterable[Storage]) -> list[Group]:
    """Return what marks the file system that all nodes read, and gives its data folder an owner.

    One group: a kill within leaves a node that is writable, or not mounted, which the next `up` mends.
    """
    return [
        [
            *(step for each in others for steps in detached(each) for step in steps),
            run("mkdir", "-p", "-m", "755", first.point),
            mounted_to_write(first),
            Write(first.point / EMULATED, json.dumps(wanted.facts(FIRST)), ours=True),
            _owned(first, owner),
            run("umount", first.point),
        ]
    ]


def mounted_to_write(first: Storage) -> Step:
    """Return what mounts the image so that it can be written; the loop device goes with the mount."""
    return run("mount", "-t", "ext4", "-o", "loop,nosuid,nodev", first.image, first.point)


def _owned(each: Storage, owner: tuple[int, int]) -> Step:
    user, group = owner
    return run("install", "-d", "-m", "755", "-o", user, "-g", group, each.root)


def device(each: Storage, wanted: Wanted, program: Path) -> list[Group]:
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


def calmed(each: Storage) -> list[Group]:
    """Return what ends the faults that somebody has given to a storage's model.

    A file system that met one gives up when it writes next: it is to do so now, to be mended with the rest.
    """
    faults = (each.server.faults if each.server else None) or ()
    steps: Group = [Write(each.model / FAULTS, f"{name} 0") for name in faults]
    if steps and each.ours_mounted:
        steps += [run(*words, each.point, may_fail=True) for words in (("touch",), ("sync", "--file-system"))]
    return [steps] if steps else []


def mounted(name: str, loop: Loop, wanted: Wanted, owner: tuple[int, int], seen: Seen) -> list[Group]:
    """Return what mounts a storage whose device is bounded already, and marks it before it can be used."""
    each = seen.storages[name]
    steps: list[Group] = [] if each.point_there else [[run("mkdir", "-p", "-m", "755", each.point)]]
    if not each.mounted:
        options = "ro,nosuid,nodev" if wanted.node else "nosuid,nodev"
        steps.append([run("mount", "-t", "ext4", "-o", options, loop.path, each.point)])
    known = each.says == wanted.facts(name)
    owned = each.owner is not None and (each.owner == owner or not each.empty)
    if wanted.node:
        right = not each.mounted or name != FIRST or (known and owned)
        return steps if right else marked(each, wanted, owner, seen.nodes)
    if not known:
        steps.append([Write(each.point / EMULATED, json.dumps(wanted.facts(name)), ours=True)])
    return steps if owned else [*steps, [_owned(each, owner)]]


def measured(name: str, loop: Loop, wanted: Wanted, seen: Seen) -> list[Group]:
    """Return what measures the kernel's costs of a storage that is up, once in each boot."""
    each = seen.storages[name]
    of: Node = {"boot_id": seen.boot_id, "storage": wanted.facts(name)}
    if each.costs and each.costs.items() >= of.items():
        return []
    line = f"# measure what it takes the kernel to serve {name}, and write {each.serving}"
    return [[Call(line, partial(serving.measure, each.point, Path(loop.path), each.serving, of))]]
