"""Run `clean`: list what campaigns have made on storages, and remove it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from campaign import console
from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.cli import arguments
from campaign.config import command_line
from campaign.console import count_noun
from campaign.errors import CampaignError, UsageError
from campaign.storage import checkpoint_targets, datasets, made_data
from campaign.storage.made_data import MadeFolder
from campaign.worker.batch import read_batches, read_file
from jobs.data import staged_copies
from jobs.errors import DatasetError
from jobs.model.conduct import Point
from jobs.model.record import ODD_FIGURES, Data
from jobs.model.settings import Settings
from jobs.model.work import ListedItem, WorkList
from jobs.parser import nearest_hint

_ABOUT = """\
List what campaigns have made: data sets, files of baselines, staged copies, snapshots that a cut run left. Looked at
are the storages of the words (site=mysite, storage.root=/scratch/me; without words those of the default configuration)
and of the records in campaign_dir. What is named (by its path, its folder's name or the start of it) is removed, with
--unused all that no record and no open job in campaign_dir reads; it asks first. A folder without our marker, or with
files that are not ours, is left, and so is what a run holds a lock on. Objects in buckets are not looked at."""
_OTHERS = "site=… or storage.root=… names others"
_HOUR_S, _DAY_H = 3600, 24


def main(argv: list[str]) -> int:
    """List what was made, or remove the named things; return 1 if something was left or the answer was no, else 0."""
    usage = "[--json] [--unused] [--yes] [KEY=VALUE ...] [NAME ...]"
    parser = arguments.make_parser("clean", _ABOUT, usage, json=True, open_ended=True)
    parser.add_argument("--unused", action="store_true", help="remove what no campaign in campaign_dir reads")
    parser.add_argument("--yes", action="store_true", help="do not ask (also CAMPAIGN_YES=1)")
    options, words = arguments.take_options(parser, argv)
    split = command_line.parse_command_line(words)
    from campaign.config.collect import collect_points  # noqa: PLC0415 - Hydra is not on the way to clean --help

    names = [word for word in split.overrides if "=" not in word]
    points = collect_points([*split.config_dir_flags, *(word for word in split.overrides if "=" in word)]) or []
    folder = CampaignFolder(Path(points[0]["campaign_dir"]).expanduser().resolve())
    roots, used = _roots_and_folders_in_use(folder)
    things = made_data.made_folders({*_roots_of_points(points), *roots}, used)
    chosen = [_find_by_name(things, name) for name in names] + [
        each for each in things if options.unused and not each.used
    ]
    chosen = list(dict.fromkeys(chosen))
    if not options.json:
        _print_table(chosen if names or options.unused else things, "is unused" if things else "was made")
    left = _remove(chosen, folder, sure=options.yes) if chosen else {}
    if options.json:
        console.show_json([_thing_as_json(each, chosen, left) for each in things])
    for each, why in left.items():
        console.say(f"left: {each.path}: {why}")
    return 1 if left else 0


def _roots_of_points(points: Sequence[Point]) -> Iterator[Path]:
    """Yield the roots of the storages of the points and of their site."""
    for point in points:
        yield from _roots_of_settings(point)
        roots = (storage.get("root") for storage in point["site"]["storages"].values())
        yield from (Path(root).expanduser() for root in roots if root)


def _roots_of_settings(settings: Settings) -> Iterator[Path]:
    """Yield the roots of the storages that a cell reads from and saves to, if they are folders."""
    roots = (settings["storage"].get("root"), *checkpoint_targets.target_roots(settings))
    yield from (Path(root).expanduser() for root in roots if root and "://" not in root)


def _roots_and_folders_in_use(folder: CampaignFolder) -> tuple[set[Path], set[Path]]:
    """Return the roots of a campaign's storages, and the folders that its records and jobs read.

    Data count as read if records or maps of copies name them, or if open jobs will read them.
    """
    roots, used = set[Path](), set[Path]()
    for path in folder.records.glob("*/record.json"):
        recorded, _ = record.read_or_fault(path)
        if recorded:
            used.update(_folders_of_data(recorded["dataset"]))
            with suppress(*ODD_FIGURES, RuntimeError):  # settings of another shape, or without a home, name no place
                roots.update(_roots_of_settings(recorded["cell"]["settings"]))
    for path in folder.staging.glob("*.json"):
        with suppress(DatasetError):  # plan.json is no map
            copies = staged_copies.load_map(path)
            roots.add(copies.root)
            used.add(copies.copies)
    for batch in read_batches(folder):
        for index in batch.open_workers():
            with suppress(CampaignError):  # its front process was killed before it could submit
                work = read_file(batch.work_list(index), WorkList)
                for item in (*work["cells"], *work.get("to_make", ())):
                    used.update(_folders_to_read(item))
    return roots, used


def _folders_to_read(item: ListedItem) -> Iterator[Path]:
    """Yield the folders that a job will read for a cell."""
    yield from _folders_of_data(item["dataset"])
    dataset, root = item["settings"].get("dataset"), item.get("root")
    if root and dataset and "path" not in dataset:
        yield from datasets.possible_folders(dataset, Path(root), datasets.stripe_layout(item["settings"]["storage"]))


def _folders_of_data(data: Data | None) -> Iterator[Path]:
    """Yield the folders of a data set."""
    yield from (Path(place) for place in ((data or {}).get("path"), (data or {}).get("folder")) if place)


def _find_by_name(things: Sequence[MadeFolder], name: str) -> MadeFolder:
    """Return the thing with this path, this folder name or this start of it; raises UsageError for none or several."""
    path = Path(name).expanduser().absolute()
    same = [each for each in things if path == each.path or name == each.path.name]
    same = same or [each for each in things if each.path.name.startswith(name)]
    if len(same) == 1:
        return same[0]
    what = f"'{name}' may be {len(same)} things" if same else f"nothing that was made is called '{name}'"
    paths = [str(each.path) for each in same or things]
    raise UsageError(what, nearest_hint(name, paths) if paths else f"nothing was made on these storages; {_OTHERS}")


def _remove(chosen: Sequence[MadeFolder], folder: CampaignFolder, *, sure: bool) -> dict[MadeFolder, str]:
    """Ask, and remove; return the things that were left, each with the reason."""
    size = sum(each.bytes for each in chosen) / 1e9
    answer = sure or console.ask_for_yes(f"remove {count_noun(len(chosen), 'folder')} of {size:,.2f} GB in all?")
    if answer is None:
        raise UsageError("nothing is removed without a yes, and there is no terminal to ask on", "--yes")
    if not answer:
        return dict.fromkeys(chosen, "the answer was no")
    reasons = {each: made_data.remove_made(each, folder.root) for each in chosen}
    left = {each: why for each, why in reasons.items() if why}
    gone = [each for each in chosen if each not in left]
    console.say(f"removed {count_noun(len(gone), 'folder')} of {sum(each.bytes for each in gone) / 1e9:,.2f} GB")
    return left


def _print_table(things: Sequence[MadeFolder], what: str) -> None:
    if not things:
        console.say(f"nothing {what} on these storages; {_OTHERS}")
        return
    rows = [("made", "MB", "files", "age", "", "place")]
    for each in things:
        used, hours = "used" if each.used else "", (time.time() - each.made_s) / _HOUR_S
        age = f"{hours / _DAY_H:.0f} d" if hours >= _DAY_H else f"{hours:.0f} h"
        rows.append((each.kind, f"{each.bytes / 1e6:,.1f}", f"{each.files:,}", age, used, str(each.path)))
    console.show_table(rows, range(1, 5))


def _thing_as_json(each: MadeFolder, chosen: Sequence[MadeFolder], left: dict[MadeFolder, str]) -> dict[str, object]:
    values = {**asdict(each), "path": str(each.path), "root": str(each.root), "age_s": time.time() - each.made_s}
    return {**values, "removed": each in chosen and each not in left, "left_because": left.get(each)}
