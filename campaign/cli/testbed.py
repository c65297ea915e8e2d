"""Run the verb `testbed`: make, check and remove emulated storages like those of the paper, on one disk."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from campaign import console
from campaign.cli import arguments
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.testbed import apply, plan, s3, throttle
from campaign.testbed.spec import DEFAULT_FOLDER, FOLDER_VARIABLE, GB, StorageRequest
from campaign.testbed.state import inspect_testbed
from campaign.testbed.steps import CallStep
from jobs.model.codes import Wait, wait_sentence
from jobs.objects.client import ROOM_CURE, BucketSpace
from jobs.system.device import mount_of, mounts
from jobs.system.programs import python_command

if TYPE_CHECKING:
    from campaign.testbed.state import TestbedState
    from campaign.testbed.steps import Group
    from jobs.model.settings import Node
    from jobs.system.device import Mount

_ABOUT = """\
Make emulated storages on one disk, to rehearse a campaign: ext4 on loop devices with the MB/s of the paper's Table I,
and with the latency, the seeks and the queues of a disk, of flash and of a file server (model=rates emulates only the
MB/s). `up` makes the missing storages. `check` compares their speed with their models (2 minutes). `down` removes them.
A campaign uses the storages with site=twin. `up nodes=4` makes four emulated nodes, each with its own page cache, for
storage=nodes; `fill` takes the settings of a campaign, and makes its datasets on these nodes."""
_USAGE = """\
%(prog)s up [--dry-run] [KEY=VALUE ...] | down [--keep | --yes] [--dry-run] |
         fill KEY=VALUE ... | status [--json] | check [--json] [NAME ...]
         [--folder DIR]"""
_NONE, _EXAMPLE = "-", "+paper=hepcnn +size=smoke"
_FLAGS = {"keep": ("down",), "yes": ("down",), "json": ("status", "check"), "dry_run": ("up", "down")}
# The names that campaigns, staging and the testbed make in the data folder of a storage; also hidden `.tfio-…` names.
_OWN_NAMES = re.compile(r"datasets|baseline|checkpoints|staged|tfio-.*|\.tfio-.*|\.testbed-.*")
_BASELINE_BYTES = 6 * GB  # for a baseline's file of 5 GB (Section IV of the paper) and the file system's own data


def main(argv: list[str]) -> int:
    """Run `testbed up`, `fill`, `status`, `check` or `down`; return the exit code.

    The code is 1 if `status` or `check` finds a storage that is not as requested, else 0.
    """
    options = _make_parser().parse_intermixed_args(argv)  # flags may be mixed with KEY=VALUE words
    if not options.folder.isprintable():
        raise UsageError(f"--folder {options.folder!r} is no path", "name a folder without line breaks")
    folder = Path(os.path.expanduser(options.folder)).absolute()  # noqa: PTH111 - Path.expanduser raises for ~nobody
    folder = folder.resolve() if ".." in folder.parts else folder  # `mkdir -p X/new/../y` would also make X/new
    for flag, verbs in _FLAGS.items():
        if getattr(options, flag) and options.what not in verbs:
            name = flag.replace("_", "-")
            cure = f"--{name} is a flag of testbed {' and testbed '.join(verbs)}"
            raise UsageError(f"testbed {options.what} takes no --{name}", cure)
    if options.what == "status":
        return _report_status(folder, as_json=options.json)
    if options.what == "check":
        return _check_speeds(folder, options.words, as_json=options.json)
    if options.words and options.what == "down":
        raise UsageError(f"testbed down takes no '{options.words[0]}'", "only testbed up and fill take KEY=VALUE")
    if options.dry_run:
        return _preview_steps(options, folder)
    if os.geteuid() != 0:
        raise EnvironmentFaultError(
            f"testbed {options.what} needs root: it attaches loop devices and mounts file systems",
            f"sudo {shlex.join(python_command('-m', 'campaign', 'testbed', *_add_folder(argv, folder)))}",
        )
    if options.what == "fill":
        from campaign.testbed.fill import fill_nodes  # noqa: PLC0415 - imports Hydra, which other verbs do not need

        return fill_nodes(folder, options.words)
    return _bring_up(options, folder) if options.what == "up" else _take_down(options, folder)


def _add_folder(argv: list[str], folder: Path) -> list[str]:
    """Add ``--folder`` to the arguments, because sudo drops the environment variable that names the folder."""
    named = any(word.partition("=")[0] == "--folder" for word in argv)
    return argv if named or folder == Path(DEFAULT_FOLDER) else [*argv, "--folder", str(folder)]


def _make_parser() -> arguments.CampaignParser:
    parser = arguments.CampaignParser(
        prog="python -m campaign testbed",
        usage=_USAGE,
        description=_ABOUT,
        epilog="The settings of `testbed up`: python -m campaign help testbed",
    )
    parser.add_argument("what", choices=("up", "fill", "status", "check", "down"))
    parser.add_argument(
        "words",
        nargs="*",
        metavar="KEY=VALUE",
        help="for up: storages=[hdd,ssd], hdd.size_gb=3, …; for fill: settings of a campaign",
    )
    place = os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER
    parser.add_argument(
        "--folder",
        metavar="DIR",
        default=place,
        help=f"folder of the testbed (default: ${FOLDER_VARIABLE}, or else {DEFAULT_FOLDER})",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the shell commands of up or down, run nothing; needs no root"
    )
    parser.add_argument("--keep", action="store_true", help="for down: keep the disk images with their datasets")
    parser.add_argument("--yes", action="store_true", help="for down: delete files of yours on the storages, too")
    parser.add_argument("--json", action="store_true", help="for status and check: print the result as JSON on stdout")
    return parser


def _bring_up(options: argparse.Namespace, folder: Path) -> int:
    from campaign.config.testbed_words import requested_storages, requested_store  # noqa: PLC0415 - imports Hydra

    store = requested_store(options.words)
    state = apply.bring_up(folder, requested_storages(options.words), apply.find_owner(), store)
    _print_state(state)
    if any(each.is_node and each.empty for each in state.storages.values()):
        console.say(f"the emulated nodes have no dataset yet: testbed fill {_EXAMPLE} makes the datasets of a campaign")
    if store:
        _report_how_to_use_store(folder)
    if str(folder) != (os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER):
        console.say(f"to use this testbed with site=twin: export {FOLDER_VARIABLE}={shlex.quote(str(folder))}")
    return 0


def _report_how_to_use_store(folder: Path) -> None:
    store = s3.store_state(folder) or {}
    place = shlex.quote(str(Path(store["site"]).parent.parent))
    console.say(
        f"to use the object store: . {shlex.quote(store['credentials'])} && python -m campaign --config-dir {place}"
        f" site={s3.SITE} storage=s3"
    )


def _take_down(options: argparse.Namespace, folder: Path) -> int:
    found = inspect_testbed(folder)
    if found.marker is None:
        _require_nothing_mounted(folder)
        console.say(f"no testbed in {folder}")
    if not (options.keep or options.yes) and (own := _files_of_users(found)):
        raise UsageError(
            f"the storages hold files that neither a campaign nor the testbed made, and `down` would delete them:"
            f" {own[0]}{' and others' * (len(own) > 1)}",
            "copy them to another place, then give --yes; or keep the disk images with --keep",
        )
    state = apply.take_down(folder, keep=options.keep)
    if state.marker is None and state.foreign_names:
        console.say(f"{folder} was not removed: it contains foreign files, such as {state.foreign_names[0]}")
    return 0


def _files_of_users(state: TestbedState) -> list[Path]:
    """Return the files and folders in the storages' data folders whose names no campaign and no testbed uses."""
    found: list[Path] = []
    for storage in state.storages.values():
        if storage.ours_mounted and not storage.stuck and not storage.empty:
            with suppress(OSError):  # the device of this storage fails, and `down` must be able to remove it
                found += [path for path in sorted(storage.root.iterdir()) if not _OWN_NAMES.fullmatch(path.name)]
    return found


def _require_nothing_mounted(folder: Path) -> None:
    """Raise EnvironmentFaultError if the folder has no testbed marker, but file systems are still mounted in it.

    Then somebody has removed files of a running testbed.
    """
    left = [each for each in mounts() if Path(os.path.realpath(folder)) in Path(each.point).parents]
    if left:
        raise EnvironmentFaultError(
            f"{folder} has no testbed marker, but file systems are mounted in this folder:"
            f" {shlex.join(each.point for each in left)}",
            f"if they belonged to a testbed: sudo sh -c {shlex.quote(' && '.join(_removal_commands(left)))}",
        )


def _removal_commands(left: Sequence[Mount]) -> list[str]:
    """Return the shell commands that unmount file systems, and remove their loop devices and the devices' limits."""
    throttled, points = throttle.find_throttle(), shlex.join(each.point for each in left)
    loops = [Path(each.source) for each in left if each.source.startswith("/dev/loop")]
    numbers = [device.stat().st_rdev for device in loops]
    bounds = [step for each in numbers for step in throttled.steps(f"{os.major(each)}:{os.minor(each)}", {})]
    detached = [f"losetup -d {shlex.join(map(str, loops))}"] if loops else []
    return [f"umount {points}", *map(str, bounds), *detached, f"rmdir {points}"]


def _preview_steps(options: argparse.Namespace, folder: Path) -> int:
    """Print the shell commands of `up` or `down` without running them; return 0."""
    groups: list[Group]
    if options.what == "up":
        from campaign.config.testbed_words import requested_storages, requested_store  # noqa: PLC0415 - imports Hydra

        wanted, store = requested_storages(options.words), requested_store(options.words)
        groups = plan.plan_creation(wanted, apply.find_owner(), apply.expected_state(folder, wanted, store))
        groups += [steps] if store and (steps := s3.store_steps(folder, store, apply.find_owner())) else []
    else:
        groups = plan.plan_removal(inspect_testbed(folder), keep=options.keep)
        if (s3.store_state(folder) or {}).get("state") == "up":
            groups.append([CallStep(f"# end ceph-mon, ceph-osd and radosgw in {folder / s3.FOLDER}", lambda: None)])
    for group in groups:
        for step in group:
            console.show(str(step))
    console.say("nothing to do" if not groups else "nothing was done; `up` may choose other loop devices")
    return 0


def _report_status(folder: Path, *, as_json: bool) -> int:
    state = inspect_testbed(folder)
    storages = apply.storage_states(state)
    store = s3.store_state(folder)
    if state.marker is None:
        _require_nothing_mounted(folder)
    if as_json:
        beneath = {**asdict(mount_of(folder)), "free_bytes": state.free_bytes}
        console.show_json({"folder": str(folder), "beneath": beneath, "storages": storages, "s3": store})
    else:
        _print_state(state)
    states = [each["state"] for each in (*storages.values(), *([store] if store else []))]
    return 0 if states and set(states) == {"up"} else 1


def _check_speeds(folder: Path, names: Sequence[str], *, as_json: bool) -> int:
    """Measure the named storages, or else all storages; return 1 if a storage differs from its model, else 0."""
    from campaign.testbed import check  # noqa: PLC0415 - imports NumPy, which other verbs do not need

    state = inspect_testbed(folder)
    states = apply.storage_states(state)
    chosen = list(dict.fromkeys(names or (name for name in states if not state.storages[name].is_node)))
    for name in chosen:
        storage = states.get(name, {"state": "unknown", "missing": None})
        if storage["state"] != "up":
            why = f": {storage['missing']}" if storage["missing"] else ""
            raise EnvironmentFaultError(
                f"{name} is {storage['state']} in {folder}{why}", "python -m campaign testbed up, as root"
            )
    if not chosen or state.marker is None:
        what = "nothing to check" if state.marker else "no testbed"
        raise EnvironmentFaultError(f"{what} in {folder}", "python -m campaign testbed up, as root")
    rows: list[check.CheckRow] = []
    load = os.getloadavg()[0]
    with console.interrupt_on_kill(), console.progress() as show:
        for name in chosen:
            each = state.storages[name]
            wanted = StorageRequest.from_facts(state.marker["storages"][name], each.size_bytes)
            rows += check.measure_storage(name, each, wanted, _report_wait, show)
    if as_json:
        facts = {"folder": str(folder), "tolerance": check.TOLERANCE, "rows": [row.facts() for row in rows]}
        console.show_json(facts)
    else:
        for line in check.format_rows(rows):
            console.show(line)
    differs = any(row.differs for row in rows)
    if differs and load >= 1:
        console.say(f"the load average was {load:.1f}: repeat the check while nobody else uses this machine")
    return 1 if differs else 0


def _report_wait(wait: Wait) -> None:
    console.say(f"waiting for {wait_sentence(wait)}")


def _print_store(store: Node) -> None:
    room = None if store["used_bytes"] is None else BucketSpace(store["used_bytes"], store["quota_bytes"])
    disk = f"{store['size_bytes'] / GB:g} GB on {store['device'] or 'no device'}"
    used = f", {room}" if room else ""
    console.show(f"s3 is {store['state']}: {store['endpoint']}, bucket {store['bucket']}, {disk}{used}")
    if room and room.is_nearly_full:
        console.say(f"warning: s3 is nearly full: {ROOM_CURE}")


def _print_state(state: TestbedState) -> None:
    """Print the state of each storage, and of the disk that holds the images of all storages."""
    storages = apply.storage_states(state)
    if store := s3.store_state(state.folder):
        _print_store(store)
    if not storages and not store:
        console.show(f"no testbed in {state.folder}")
    if not storages:
        return
    rows = [("emulated", "state", "GB", "model", "MB/s read", "MB/s written", "reads/s", "writes/s", "device", "root")]
    for name, each in storages.items():
        numbers = (each["read_mb_per_s"], each["write_mb_per_s"], each["read_iops"], each["write_iops"])
        size = None if each["size_bytes"] is None else each["size_bytes"] / GB
        size_text, *figures = (_NONE if number is None else f"{number:g}" for number in (size, *numbers))
        model = (each.get("model") or {"kind": "rates"})["kind"]
        rows.append((name, each["state"], size_text, model, *figures, each["device"] or _NONE, each["root"]))
    console.show_table(rows)
    for name, each in storages.items():
        if each["missing"]:
            console.show(f"{name} is incomplete: {each['missing']}")
    beneath = mount_of(state.folder)
    console.show(
        f"images on {beneath.source} ({beneath.fstype}), {state.free_bytes / GB:.1f} GB free;"
        " no storage is faster than this disk"
    )
    sizes = {name: each.size_bytes for name, each in state.storages.items() if each.size_bytes is not None}
    small = [name for name, size in sizes.items() if size < _BASELINE_BYTES and not state.storages[name].is_node]
    too_small = [f"the baseline's file of 5 GB does not fit on {', '.join(small)}"] if small else []
    for doubt in (*state.device_limits.doubts, *too_small):
        console.say(f"warning: {doubt}")
