"""Run the verb `clean`, which lists the folders that campaigns have made on storages, and removes chosen folders."""

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
from campaign.errors import UsageError
from campaign.storage import checkpoint_targets, made_data
from campaign.storage.made_data import MadeFolder
from jobs.data import staged_copies
from jobs.errors import DatasetError
from jobs.model.conduct import Point
from jobs.model.record import ODD_FIGURES
from jobs.model.settings import Settings
from jobs.parser import nearest_hint
from jobs.system.files import resolve_links

_ABOUT = """\
List the folders that campaigns have made: data sets, files of baselines, staged copies, snapshots of interrupted runs.
It searches the storages that the arguments name (site=mysite, storage.root=/scratch/me) or else those of the default
configuration, and the storages of the records in campaign_dir. After a question it removes each folder that you name,
by its path, its name or the start of its name; later runs make missing data again. It never removes a folder without
the marker file of this tool, a folder with foreign files, or a folder that a run has locked. It does not search
buckets."""
_OTHERS = "site=… or storage.root=… names other storages"
_HOUR_S, _DAY_H = 3600, 24


def main(argv: list[str]) -> int:
    """List the folders that campaigns have made, or remove the chosen folders.

    Returns 1 if a chosen folder was not removed, else 0.
    """
    usage = "[--json] [--yes] [KEY=VALUE ...] [NAME ...]"
    parser = arguments.make_parser("clean", _ABOUT, usage, json=True, open_ended=True)
    parser.add_argument("--yes", action="store_true", help="do not ask before removing; CAMPAIGN_YES=1 does the same")
    options, words = arguments.take_options(parser, argv)
    split = command_line.parse_command_line(words)
    from campaign.config.collect import collect_points  # noqa: PLC0415 - clean --help starts faster without Hydra

    names = [word for word in split.overrides if "=" not in word]
    points = collect_points([*split.config_dir_flags, *(word for word in split.overrides if "=" in word)]) or []
    folder = CampaignFolder(resolve_links(points[0]["campaign_dir"]))
    things = made_data.made_folders({*_roots_of_points(points), *_roots_of_records(folder)})
    chosen = list(dict.fromkeys(_find_by_name(things, name) for name in names))
    if not options.json:
        _print_table(chosen or things)
    left = _remove(chosen, folder, sure=options.yes) if chosen else {}
    if options.json:
        console.show_json([_thing_as_json(each, chosen, left) for each in things])
    for each, why in left.items():
        console.say(f"left: {each.path}: {why}")
    return 1 if left else 0


def _roots_of_points(points: Sequence[Point]) -> Iterator[Path]:
    """Yield the root folders of the storages that the points use, and of all storages of their site."""
    for point in points:
        yield from _roots_of_settings(point)
        roots = (storage.get("root") for storage in point["site"]["storages"].values())
        yield from (Path(root).expanduser() for root in roots if root)


def _roots_of_settings(settings: Settings) -> Iterator[Path]:
    """Yield the root folders of the storages that a cell reads from and saves to; skip buckets."""
    roots = (settings["storage"].get("root"), *checkpoint_targets.target_roots(settings))
    yield from (Path(root).expanduser() for root in roots if root and "://" not in root)


def _roots_of_records(folder: CampaignFolder) -> set[Path]:
    """Return the root folders of the storages that a campaign's records and maps of staged copies name."""
    roots = set[Path]()
    for path in folder.records.glob("*/record.json"):
        recorded, _ = record.read_or_fault(path)
        with suppress(*ODD_FIGURES, RuntimeError, OSError):  # skip settings that name no folder
            roots.update(_roots_of_settings(recorded["cell"]["settings"]) if recorded else ())
    for path in folder.staging.glob("*.json"):
        with suppress(DatasetError):  # plan.json lies in the same folder and is not a map of copies
            roots.add(staged_copies.load_map(path).root)
    return roots


def _find_by_name(things: Sequence[MadeFolder], name: str) -> MadeFolder:
    """Return the folder with this path, this name or this start of its name.

    Raises UsageError if no folder or several folders match.
    """
    path = Path(name).expanduser().absolute()
    same = [each for each in things if path == each.path or name == each.path.name]
    same = same or [each for each in things if each.path.name.startswith(name)]
    if len(same) == 1:
        return same[0]
    what = f"'{name}' matches {len(same)} folders" if same else f"no campaign made a folder that is called '{name}'"
    paths = [str(each.path) for each in same or things]
    raise UsageError(
        what, nearest_hint(name, paths) if paths else f"campaigns made no folder on these storages; {_OTHERS}"
    )


def _remove(chosen: Sequence[MadeFolder], folder: CampaignFolder, *, sure: bool) -> dict[MadeFolder, str]:
    """Ask the user, and remove the chosen folders; return the folders that were not removed, each with the reason."""
    size = sum(each.bytes for each in chosen) / 1e9
    answer = sure or console.ask_for_yes(f"remove {count_noun(len(chosen), 'folder')} of {size:,.2f} GB in all?")
    if answer is None:
        raise UsageError("nothing was removed: there is no terminal to ask on", "--yes removes without a question")
    if not answer:
        return dict.fromkeys(chosen, "you did not answer yes")
    reasons = {each: made_data.remove_made(each, folder.root) for each in chosen}
    left = {each: why for each, why in reasons.items() if why}
    gone = [each for each in chosen if each not in left]
    console.say(f"removed {count_noun(len(gone), 'folder')} of {sum(each.bytes for each in gone) / 1e9:,.2f} GB")
    return left


def _print_table(things: Sequence[MadeFolder]) -> None:
    if not things:
        console.say(f"no folder was made by a campaign on these storages; {_OTHERS}")
        return
    rows = [("made", "MB", "files", "age", "place")]
    for each in things:
        hours = (time.time() - each.made_s) / _HOUR_S
        age = f"{hours / _DAY_H:.0f} d" if hours >= _DAY_H else f"{hours:.0f} h"
        rows.append((each.kind, f"{each.bytes / 1e6:,.1f}", f"{each.files:,}", age, str(each.path)))
    console.show_table(rows, range(1, 4))


def _thing_as_json(each: MadeFolder, chosen: Sequence[MadeFolder], left: dict[MadeFolder, str]) -> dict[str, object]:
    values = {**asdict(each), "path": str(each.path), "root": str(each.root), "age_s": time.time() - each.made_s}
    return {**values, "removed": each in chosen and each not in left, "left_because": left.get(each)}
