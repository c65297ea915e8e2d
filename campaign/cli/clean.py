"""`python -m campaign clean`: what campaigns have made on storages, and its removal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from campaign import console
from campaign.cells import record
from campaign.cells.contract import Data, Point, WorkList
from campaign.cells.folder import CampaignFolder
from campaign.cli import arguments
from campaign.config import command_line
from campaign.console import counted
from campaign.errors import CampaignError, UsageError, nearest
from campaign.storage import checkpoint_targets, datasets, made
from campaign.storage.made import Made
from campaign.worker.batch import read_all, read_file
from jobs.data import staging
from jobs.errors import DatasetError
from jobs.settings import Settings

_ABOUT = """\
List what campaigns have made: data sets, files of baselines, staged copies, snapshots that a cut run left. Looked at
are the storages of the words (site=mysite, storage.root=/scratch/me; without words those of the default configuration)
and of the records in campaign_dir. What is named (by its path, its folder's name or the start of it) is removed, with
--unused all that no record and no open job in campaign_dir reads; it asks first. A folder without our marker, or with
files that are not ours, is left, and so is what a run holds a lock on. Objects in buckets are not looked at."""


def main(argv: list[str]) -> int:
    """List what was made, or remove what is named; exit code 1 where something was left or the answer was no."""
    parser = arguments.parser("clean", _ABOUT, json=True)
    parser.usage = "%(prog)s [--json] [--unused] [--yes] [KEY=VALUE ...] [NAME ...]"
    parser.add_argument("--unused", action="store_true", help="remove what no campaign in campaign_dir reads")
    parser.add_argument("--yes", action="store_true", help="do not ask (also CAMPAIGN_YES=1)")
    options, words = parser.parse_known_args(argv)
    from campaign.config.collect import collect  # noqa: PLC0415 - Hydra is not on the way to clean --help

    names = [word for word in words if not word.startswith("-") and "=" not in word and not _is_value(word, words)]
    points = collect(command_line.split([word for word in words if word not in names]).hydra) or []
    folder = CampaignFolder(Path(points[0]["campaign_dir"]).expanduser().resolve())
    things = made.made_below([*_roots(points), *_recorded_roots(folder)], set(_used(folder)))
    chosen = _chosen(things, names) + [each for each in things if options.unused and not each.used]
    chosen = list(dict.fromkeys(chosen))
    if not options.json:
        _print(chosen if names or options.unused else things)
    left = _removed(chosen, folder, sure=options.yes) if chosen else {}
    if options.json:
        print(json.dumps([_as_json(each, chosen, left) for each in things], indent=1))
    for each, why in left.items():
        console.say(f"left: {each.path}: {why}")
    return 1 if left else 0


def _is_value(word: str, words: Sequence[str]) -> bool:
    """Return whether a word belongs to the flag before it: ``--config-dir FOLDER``."""
    return words.index(word) > 0 and words[words.index(word) - 1] in command_line.CONFIG_DIR


def _roots(points: Sequence[Point]) -> Iterator[Path]:
    """Yield the roots of the storages that the words name, where they are folders."""
    for point in points:
        for storage in (point["storage"], *point["site"]["storages"].values()):
            if storage.get("root"):
                yield Path(storage["root"]).expanduser()
        yield from _targets(point)


def _targets(settings: Settings) -> Iterator[Path]:
    yield from (Path(root) for root in checkpoint_targets.roots(settings) if "://" not in root)


def _recorded_roots(folder: CampaignFolder) -> Iterator[Path]:
    """Yield the roots of the storages of a campaign's records and of its staged copies."""
    for path in folder.records.glob("*/record.json"):
        recorded, _ = record.read_or_fault(path)
        settings = recorded["cell"]["settings"] if recorded else None
        if settings and settings["storage"].get("root"):
            yield Path(settings["storage"]["root"]).expanduser()
            yield from _targets(settings)
    yield from (found.root for found in _maps(folder))


def _maps(folder: CampaignFolder) -> Iterator[staging.StagedFiles]:
    for path in folder.staging.glob("*.json"):
        with suppress(DatasetError):  # plan.json is no map
            yield staging.load(path)


def _used(folder: CampaignFolder) -> Iterator[Path]:
    """Yield the folders that the records of a campaign, its open jobs and its maps of copies read."""
    for path in folder.records.glob("*/record.json"):
        recorded, _ = record.read_or_fault(path)
        yield from _folders(recorded["dataset"] if recorded else None)
    yield from (found.copies for found in _maps(folder))
    for batch in read_all(folder):
        for index in batch.open_workers():
            with suppress(CampaignError):  # its front process was killed before it could submit
                work = read_file(batch.work_list(index), WorkList)
                for item in (*work["cells"], *work.get("to_make", ())):
                    yield from _folders(item["dataset"])
                    wanted, root = item["settings"].get("dataset", {}), item.get("root")
                    if root and wanted.get("path") is None and wanted:
                        layout = datasets.layout_of(item["settings"]["storage"])
                        yield from datasets.folders_of(wanted, Path(root), layout)


def _folders(data: Data | None) -> Iterator[Path]:
    yield from (Path(place) for place in ((data or {}).get("path"), (data or {}).get("folder")) if place)


def _chosen(things: Sequence[Made], names: Sequence[str]) -> list[Made]:
    chosen: list[Made] = []
    for name in names:
        found = made.named(things, name)
        if len(found) != 1:
            what = f"'{name}' may be {len(found)} things" if found else f"nothing that was made is called '{name}'"
            paths = [str(each.path) for each in found or things]
            hint = nearest(name, paths) if paths else "nothing was made on these storages; site=… names others"
            raise UsageError(what, hint)
        chosen += found
    return chosen


def _removed(chosen: Sequence[Made], folder: CampaignFolder, *, sure: bool) -> dict[Made, str]:
    """Ask, and remove; returns what was left, and why."""
    size = sum(each.bytes for each in chosen) / 1e9
    answer = sure or console.agreed(f"remove {counted(len(chosen), 'folder')} of {size:,.2f} GB in all?")
    if answer is None:
        raise UsageError("nothing is removed without a yes, and there is no terminal to ask on", "--yes")
    if not answer:
        return dict.fromkeys(chosen, "the answer was no")
    reasons = {each: made.remove(each, folder.root) for each in chosen}
    left = {each: why for each, why in reasons.items() if why}
    gone = [each for each in chosen if each not in left]
    console.say(f"removed {counted(len(gone), 'folder')} of {sum(each.bytes for each in gone) / 1e9:,.2f} GB")
    return left


def _print(things: Sequence[Made]) -> None:
    rows = [("made", "MB", "files", "age", "", "place")]
    for each in things:
        used = "used" if each.used else ""
        rows.append((each.kind, f"{each.bytes / 1e6:,.1f}", f"{each.files:,}", made.age(each), used, str(each.path)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for kind, *middle, place in rows:
        cells = (text.rjust(width) for text, width in zip(middle, widths[1:-1], strict=True))
        console.show("  ".join((kind.ljust(widths[0]), *cells, place)))
    if not things:
        console.say("nothing was made on these storages; site=… or storage.root=… names others")


def _as_json(each: Made, chosen: Sequence[Made], left: dict[Made, str]) -> dict[str, object]:
    values = {**asdict(each), "path": str(each.path), "root": str(each.root), "age_s": time.time() - each.made_s}
    return {**values, "removed": each in chosen and each not in left, "left_because": left.get(each)}
