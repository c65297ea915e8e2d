"""What is still to be done for a testbed to be up, or to be gone: pure functions of what was found.

A plan is a list of groups of steps. Only its first group is done before everything is inspected again, so that a
command that was killed at any moment is continued by the next one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import storage
from campaign.testbed.spec import FIRST, GB, is_link, source
from campaign.testbed.state import MARKER, SCHEMA, unfinished
from campaign.testbed.steps import Write, run

if TYPE_CHECKING:
    from campaign.testbed.spec import Wanted
    from campaign.testbed.state import Loop, Seen, Storage
    from campaign.testbed.steps import Group

LARGEST_SHARE = 12 * GB  # a 5 GB file of the baseline (paper, IV), the 2 GB of Fig 4, six snapshots of 0.7 GB
_RESERVE = 1 * GB  # left free beneath
_LEAST = 60_000_000  # bytes in which ext4 has room for its journal and for files
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
        if storage.is_otherwise(seen.storages[name], wanted, seen.program.name):
            steps += storage.detached(seen.storages[name])
            seen = replace(seen, storages={**seen.storages, name: storage.without_device(seen.storages[name])})
    loops = _loops(asked, seen)
    attached = [loop.number for name in asked for loop in seen.storages[name].attached]
    steps += _bookkeeping(asked, seen, attached)
    if any(wanted.model for wanted in asked.values()) and seen.program.name not in seen.programs:
        new = seen.program.with_suffix(".new")
        steps.append([run("cc", "-O2", "-o", new, source(), "-lm"), run("mv", new, seen.program)])
    for name, wanted in asked.items():
        each = seen.storages[name]
        steps += storage.link(each, seen.storages[FIRST]) if is_link(name) else storage.image(each, sizes[name])
        if name == FIRST and each.size_bytes is None:
            steps += storage.marked(each, wanted, owner, [])
        steps += storage.device(each, wanted, seen.program)
        steps += storage.calmed(seen.storages[name])
    coming = [loop.number for loop in loops.values()]
    if missing := [number for number in coming if number not in attached]:
        steps += [[_marker(seen, _described(asked, seen), [*seen.numbers, *attached, *missing])]]
    for name, wanted in asked.items():
        steps += [[step] for step in seen.bounds.steps(loops[name].number, wanted.limits())]
        steps += storage.mounted(name, loops[name], wanted, owner, seen)
        steps += storage.measured(name, loops[name], wanted, seen)
    return steps


def writable(seen: Seen) -> list[Group]:
    """Return what lets the first node alone, and no other, write what all nodes read."""
    first = seen.storages[FIRST]
    up = [each for each in seen.nodes if any(loop.read_only for loop in each.loops)]
    steps = [group for each in up for group in storage.detached(each)]
    return steps if first.ours_mounted else [*steps, [storage.mounted_to_write(first)]]


def down(seen: Seen, *, keep: bool) -> list[Group]:
    """Return what takes a testbed away; with `keep` its images stay, with what is on them, for the next `up`."""
    _refuse_silent(seen.storages.values())
    steps: list[Group] = []
    for each in reversed(list(seen.storages.values())):
        steps += storage.detached(each)
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


def _remove(seen: Seen) -> list[Group]:
    """Return what removes the files; the marker last, for without it nothing is known to be ours."""
    stay = [each for each in seen.storages.values() if each.mounted and not each.ours_mounted]
    steps: list[Group] = []
    for each in seen.storages.values():
        if each.size_bytes is not None or each.unfinished:
            steps.append([run("rm", "-f", each.image, unfinished(each.image), each.serving)])
        if each.point_there and each not in stay and each.point.name not in seen.strangers:
            steps.append([run("rmdir", each.point)])
        steps += [[run("rmdir", each.model)]] if each.model_there else []
    last: Group = [run("rm", "-f", *(seen.folder / name for name in (*seen.programs, *seen.leftovers, MARKER)))]
    return [*steps, last if seen.strangers or stay else [*last, run("rmdir", seen.folder)]]
