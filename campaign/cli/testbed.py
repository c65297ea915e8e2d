"""Run `testbed`: emulated storages like the paper's, on one disk."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
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
Emulated storages on one disk, to rehearse with: ext4 on loop devices with the MB/s of the paper's Table I, and with the
latency, the seeks and the queues of a disk, of flash and of a file server (model=rates: MB/s alone). up makes them, or
what is missing of them; check measures them against that (2 minutes); down takes them away. A campaign uses them with
site=twin. up nodes=4 makes four emulated nodes, each with a page cache of its own, for storage=nodes; fill makes the
datasets of a campaign, whose words it takes, on what they read."""
_USAGE = """\
%(prog)s up [--dry-run] [KEY=VALUE ...] | down [--keep] [--dry-run] |
         fill KEY=VALUE ... | status [--json] | check [--json] [NAME ...]
         [--folder DIR]"""
_NONE, _EXAMPLE = "-", "+paper=hepcnn +size=smoke"
_FLAGS = {"keep": ("down",), "json": ("status", "check"), "dry_run": ("up", "down")}
_BASELINE_BYTES = 6 * GB  # its file of 5 GB (paper, IV), and the file system's own


def main(argv: list[str]) -> int:
    """Run a verb of the testbed; return 0, or 1 if `status` or `check` found a storage that is not as requested."""
    options = _make_parser().parse_intermixed_args(argv)  # a flag may stand among the words
    if not options.folder.isprintable():
        raise UsageError(f"--folder {options.folder!r} is no path", "name a folder, without line breaks")
    folder = Path(os.path.expanduser(options.folder)).absolute()  # noqa: PTH111 - that of Path raises for ~nobody
    folder = folder.resolve() if ".." in folder.parts else folder  # `mkdir -p X/new/../y` makes X/new
    for flag, verbs in _FLAGS.items():
        if getattr(options, flag) and options.what not in verbs:
            name = flag.replace("_", "-")
            raise UsageError(f"testbed {options.what} takes no --{name}", f"--{name} goes with {' and '.join(verbs)}")
    if options.what == "status":
        return _report_status(folder, as_json=options.json)
    if options.what == "check":
        return _check_speeds(folder, options.words, as_json=options.json)
    if options.words and options.what == "down":
        raise UsageError(f"testbed down takes no '{options.words[0]}'", "KEY=VALUE goes with testbed up")
    if options.dry_run:
        return _preview_steps(options, folder)
    if os.geteuid() != 0:
        raise EnvironmentFaultError(
            f"testbed {options.what} needs root: it attaches loop devices, mounts file systems and serves devices",
            f"sudo {shlex.join(python_command('-m', 'campaign', 'testbed', *_add_folder(argv, folder)))}",
        )
    if options.what == "fill":
        from campaign.testbed.fill import fill_nodes  # noqa: PLC0415 - Hydra is not on the way to status

        return fill_nodes(folder, options.words)
    return _bring_up(options, folder) if options.what == "up" else _take_down(options, folder)


def _add_folder(argv: list[str], folder: Path) -> list[str]:
    """Return the arguments with the folder among them: sudo drops the variable that names it."""
    named = any(word.partition("=")[0] == "--folder" for word in argv)
    return argv if named or folder == Path(DEFAULT_FOLDER) else [*argv, "--folder", str(folder)]


def _make_parser() -> arguments.CampaignParser:
    parser = arguments.CampaignParser(
        prog="python -m campaign testbed",
        usage=_USAGE,
        description=_ABOUT,
        epilog="The keys of up: python -m campaign help testbed",
    )
    parser.add_argument("what", choices=("up", "fill", "status", "check", "down"))
    parser.add_argument(
        "words",
        nargs="*",
        metavar="KEY=VALUE",
        help="of up: storages=[hdd,ssd], hdd.size_gb=3, …; of fill: a campaign's",
    )
    place = os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER
    parser.add_argument(
        "--folder", metavar="DIR", default=place, help=f"where it lies (${FOLDER_VARIABLE}, else {DEFAULT_FOLDER})"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, as for a shell; needs no root"
    )
    parser.add_argument("--keep", action="store_true", help="of down: the images stay, with the datasets on them")
    parser.add_argument("--json", action="store_true", help="of status and check: machine-readable, on stdout")
    return parser


def _bring_up(options: argparse.Namespace, folder: Path) -> int:
    from campaign.config.testbed_words import requested_storages, requested_store  # noqa: PLC0415 - Hydra is not on the way to status

    store = requested_store(options.words)
    state = apply.bring_up(folder, requested_storages(options.words), apply.find_owner(), store)
    _print_state(state)
    if any(each.is_node and each.empty for each in state.storages.values()):
        console.say(f"no dataset is there for emulated nodes: testbed fill {_EXAMPLE} makes that of a campaign")
    if store:
        _report_how_to_use_store(folder)
    if str(folder) != (os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER):
        console.say(f"site=twin finds it with: export {FOLDER_VARIABLE}={shlex.quote(str(folder))}")
    return 0


def _report_how_to_use_store(folder: Path) -> None:
    store = s3.store_state(folder) or {}
    place = shlex.quote(str(Path(store["site"]).parent.parent))
    console.say(
        f"use it with: . {shlex.quote(store['credentials'])} && python -m campaign --config-dir {place}"
        f" site={s3.SITE} storage=s3"
    )


def _take_down(options: argparse.Namespace, folder: Path) -> int:
    if inspect_testbed(folder).marker is None:
        _require_nothing_mounted(folder)
        console.say(f"no testbed in {folder}")
    state = apply.take_down(folder, keep=options.keep)
    if state.marker is None and state.foreign_names:
        console.say(f"{folder} stays: it holds what is not ours, such as {state.foreign_names[0]}")
    return 0


def _require_nothing_mounted(folder: Path) -> None:
    """Refuse to call a testbed gone whose storages are still mounted: somebody removed its files."""
    left = [each for each in mounts() if Path(os.path.realpath(folder)) in Path(each.point).parents]
    if left:
        raise EnvironmentFaultError(
            f"{folder} no longer says that it is a testbed, and file systems are mounted in it:"
            f" {shlex.join(each.point for each in left)}",
            f"if it was the testbed's: sudo sh -c {shlex.quote(' && '.join(_removal_commands(left)))}",
        )


def _removal_commands(left: Sequence[Mount]) -> list[str]:
    """Return the commands that remove file systems, their loop devices and the limits of these by hand."""
    throttled, points = throttle.find_throttle(), shlex.join(each.point for each in left)
    loops = [Path(each.source) for each in left if each.source.startswith("/dev/loop")]
    numbers = [device.stat().st_rdev for device in loops]
    bounds = [step for each in numbers for step in throttled.steps(f"{os.major(each)}:{os.minor(each)}", {})]
    detached = [f"losetup -d {shlex.join(map(str, loops))}"] if loops else []
    return [f"umount {points}", *map(str, bounds), *detached, f"rmdir {points}"]


def _preview_steps(options: argparse.Namespace, folder: Path) -> int:
    """Print the steps as they would be done; return 0."""
    groups: list[Group]
    if options.what == "up":
        from campaign.config.testbed_words import requested_storages, requested_store  # noqa: PLC0415 - Hydra is not on the way to status

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
    console.say("nothing to do" if not groups else "nothing was done; loop devices are those that are free now")
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
    """Measure the storages of these names, or all; return 1 if one differs from its model."""
    from campaign.testbed import check  # noqa: PLC0415 - NumPy is not on the way to status

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
            wanted = StorageRequest.of(state.marker["storages"][name], each.size_bytes)
            rows += check.measure_storage(name, each, wanted, _report_wait, show)
    if as_json:
        facts = {"folder": str(folder), "tolerance": check.TOLERANCE, "rows": [row.facts() for row in rows]}
        console.show_json(facts)
    else:
        for line in check.format_rows(rows):
            console.show(line)
    differs = any(row.differs for row in rows)
    if differs and load >= 1:
        console.say(f"the load average was {load:.1f}: repeat it while nobody else uses this machine")
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
    """Print the state of each storage, and the disk beneath all of them."""
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
        f"beneath: {beneath.source} ({beneath.fstype}), {state.free_bytes / GB:.1f} GB free; none is faster than that"
    )
    sizes = {name: each.size_bytes for name, each in state.storages.items() if each.size_bytes is not None}
    small = [name for name, size in sizes.items() if size < _BASELINE_BYTES and not state.storages[name].is_node]
    too_small = [f"the baseline's file of 5 GB does not fit on {', '.join(small)}"] if small else []
    for doubt in (*state.device_limits.doubts, *too_small):
        console.say(f"warning: {doubt}")
