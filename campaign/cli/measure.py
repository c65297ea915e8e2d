"""`python -m campaign measure PATH`: what a storage gives, what TensorFlow gets of it, and what would help."""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells.cell_plan import Entry, Plan
from campaign.cli import run
from campaign.config import command_line, recipes
from campaign.config.collect import collect
from campaign.config.points import cells_of
from campaign.console import counted
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.storage.roots import device_number
from jobs.data.manifest import IMAGE_SUFFIXES
from jobs.judging import stopping
from jobs.judging.bound import Bound, help_of
from jobs.judging.work_done import work_of
from jobs.model.conduct import Point
from jobs.model.record import Record
from jobs.system.device import mount_of

HELP = """\
usage: python -m campaign measure PATH [--data DIR] [KEY=VALUE[,VALUE...] ...] [--only CELL] [--dry-run] [--yes]

How fast does the storage of a folder feed TensorFlow? An ordinary campaign on it: what it gives by itself, one file
from end to end and blocks at random places; what the pipeline reads of it, with 1, 4 and 16 threads; and the same with
decoding (conf/measure has the recipe). It ends with one table and two sentences: how fast it feeds, what would help.

  PATH         a folder on the storage, where you may write: 0.3 GB of test files are made there once, and stay
  --data DIR   your own JPEG and PNG, on the same file system, instead of images that are made; never changed
  KEY=VALUE    as of `python -m campaign`: threads=1,2,8, runs=3, cluster=…, campaign_dir=…, checks.other_cpu_max=…

It says first how many bytes it reads and writes and how long that takes, and on a terminal it asks; --yes and
CAMPAIGN_YES=1 do not ask. What is recorded is not measured again: the same command goes on after an interruption.
--dry-run prints the cells and their state and starts nothing. Exit codes: those of `python -m campaign`."""

_STORAGE, _PIPELINE = "storage", "pipeline"  # files of conf/measure
_DATA = "--data"
_PLACE = ("storage=", "storage.name=", "storage.root=", "dataset.path=")  # what PATH and DIR say
_FILES, _SECONDS = 1024, 2.0  # images that a run reads; seconds of a run of random reads
_IN_MEMORY = ("tmpfs", "ramfs")
_NAME_LENGTH = 28  # of at most 32
_FAST, _SLOW = 100.0, 10.0  # MB/s, for which the time is told beforehand
_RUN_S, _START_S, _IMAGES_PER_S = 1.5, 20.0, 200.0  # of a run beside its reads; once; decoded by one processor


def main(argv: Sequence[str]) -> int:
    """Measure the storage of a folder; the exit code is that of the campaign."""
    if {"-h", "--help"}.intersection(argv):
        print(HELP)
        return 0
    data, rest = _data(argv)
    split = command_line.split(rest)
    if split.shown:
        raise UsageError(f"measure has no single configuration for {split.shown}", "--dry-run lists its cells")
    named = [word for word in split.overrides if _is_place(word)]
    path = _path(named, data)
    rest.remove(named[0])
    split = replace(split, overrides=tuple(word for word in split.overrides if word not in named))
    if clash := [word for word in split.overrides if word.startswith(_PLACE)]:
        raise UsageError(f"{clash[0]}: PATH says where the storage is, and --data where images are", "leave it out")
    sizes = _sizes(data) if data else []
    planned = run.restricted(run.planned(_points(path, data, split, len(sizes))), split.only)
    needs = _needs(planned, path, sizes)
    console.say(str(needs))
    if not split.dry_run and not _agreed(needs, sure=split.sure):
        console.say("nothing was started")
        return 1
    words = ["measure", str(path), *([f"{_DATA}={data}"] if data else []), *rest]
    return run.carry_out(planned, words, split, shown=lambda after: _show(after, path))


def _data(argv: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Return the folder of the user's own images, and the words without it."""
    rest, data = list(argv), None
    for place in reversed([place for place, word in enumerate(rest) if word.partition("=")[0] == _DATA]):
        word, *after = rest[place:]
        value = word.partition("=")[2] or (after[0] if after and "=" not in word else "")
        if not value:
            raise UsageError("--data needs a folder", "--data /data/images: JPEG and PNG on the storage of PATH")
        del rest[place : place + (1 if "=" in word else 2)]
        data = _folder(value, "--data")
    return data, rest


def _is_place(word: str) -> bool:
    return "=" not in word or word.startswith(("/", "./", "../", "~"))


def _path(named: Sequence[str], data: Path | None) -> Path:
    """Return the folder that is measured."""
    if len(named) != 1:
        which = f"not {len(named)}: {', '.join(named)}" if named else "and none is named"
        raise UsageError(f"measure takes one folder, {which}", "python -m campaign measure /scratch/me")
    path = _folder(named[0], "PATH")
    if not os.access(path, os.W_OK | os.X_OK):
        cure = "name a folder on the same storage where you may write; --data DIR may be read-only"
        raise EnvironmentFaultError(f"{path} is not writable for you, and test files must be made there", cure)
    if (kind := mount_of(path).fstype) in _IN_MEMORY:
        raise EnvironmentFaultError(f"{path} lies in memory ({kind}), and is never cold", "name a folder on a device")
    if data and device_number(data) != device_number(path):
        cure = f"name a folder of that file system as PATH: what {path} gives says nothing of it"
        raise UsageError(f"{data} lies on another file system than {path}", cure)
    return path


def _folder(text: str, what: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        wrong = "is a file, not a folder" if path.exists() else "is not there"
        raise UsageError(f"{what} {path} {wrong}", "name a folder on the storage that is to be measured")
    return path.resolve()


def _points(path: Path, data: Path | None, split: command_line.Words, images: int) -> list[Point]:
    """Compose the recipe on the storage of a folder; `images` are as many of the user's as a run may read."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", str(path)).strip("_")[-_NAME_LENGTH:].strip("_") or "root"
    where = [f"storage.name={name}", _word("storage.root", path)]
    chosen = [word for word in split.overrides if word.startswith("dataset=")]
    of_data = [*(["dataset=folder", _word("dataset.path", data)] if data else []), *where]
    sized = any(word.startswith("dataset.files=") for word in split.overrides)
    of_data += [] if data or chosen or sized else [f"dataset.files={_FILES}"]
    found = {}
    for recipe, benchmark in ((_STORAGE, "baseline"), (_PIPELINE, "micro")):
        own = recipes.Recipe(recipe, benchmark, None, ()).takes(split.overrides)
        own = own if recipe == _PIPELINE else [word for word in own if not word.startswith("threads=")]
        if data and recipe == _PIPELINE and images < _FILES:
            own = ["iterations=null", *own]
        found[recipe] = collect([*split.flags, f"+measure={recipe}", *of_data, *own]) or []
        if found[recipe]:
            cells_of(found[recipe])
    return [*found[_STORAGE], *_random(found[_STORAGE], found[_PIPELINE]), *found[_PIPELINE]]


def _random(storage: Sequence[Point], pipeline: Sequence[Point]) -> list[Point]:
    """Return random reads of blocks as large as the files, by the readers of the pipeline and by twice the most.

    What twice the readers get tells a storage that has no more to give from one that is slow to answer.
    """
    threads = sorted({point["threads"] for point in pipeline})
    return [
        {
            **point,
            "benchmark": point["benchmark"] | {"access": "random_read", "seconds_max": _SECONDS},
            "threads": count,
        }
        for point in storage[:1]
        for count in [*threads, 2 * threads[-1]]
    ]


def _word(key: str, path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    if "${" in text:
        raise UsageError(f"{path} has ${{ in its name, which would be looked up", "name it by a link without")
    return f'{key}="{text}"'


@dataclass(frozen=True)
class _Needs:
    """What a campaign takes: bytes that it reads and writes at most, and seconds by how fast the storage is."""

    cells: int
    to_do: int
    runs: int
    read_bytes: float
    random_reads: tuple[float, ...]  # bytes of each run of them
    made_bytes: int
    no_room: str
    decoded: int  # images

    def seconds(self, mb_per_s: float) -> float:
        """Return how long it takes where the storage gives so many MB/s."""
        cores = len(os.sched_getaffinity(0))
        moved_s = (self.read_bytes - sum(self.random_reads) + self.made_bytes) / 1e6 / mb_per_s
        moved_s += sum(min(_SECONDS, size / 1e6 / mb_per_s) for size in self.random_reads)
        return _START_S + _RUN_S * self.runs + moved_s + self.decoded / (_IMAGES_PER_S * cores)

    def __str__(self) -> str:
        if not self.to_do:
            return f"{counted(self.cells, 'cell')}, 0 to run"
        moved = f"reads {self.read_bytes / 1e9:.2g} GB and makes {self.made_bytes / 1e9:.2g} GB of files at most"
        fast, slow = (max(1, math.ceil(self.seconds(rate) / 60)) for rate in (_FAST, _SLOW))
        times = f"about {fast} min where the storage gives {_FAST:g} MB/s, {slow} min at {_SLOW:g}"
        return f"{counted(self.cells, 'cell')}, {self.to_do} to run: {moved}; {times}"


def _needs(planned: Plan, path: Path, sizes: Sequence[int]) -> _Needs:
    from campaign.storage import to_make  # noqa: PLC0415 - numpy is not on the way to --help

    todo, warmups = planned.to_do, planned.conduct["warmup_runs"]
    things = to_make.to_make(todo)
    runs = {entry.cell.id: entry.missing + warmups for entry in todo}
    mean = statistics.fmean(sizes) if sizes else None
    decoded = sum(runs[each.cell.id] * _images(each) for each in todo if _decodes(each))
    return _Needs(
        cells=len(planned.entries),
        to_do=len(todo),
        runs=sum(runs.values()),
        read_bytes=sum(runs[each.cell.id] * _run_bytes(each, mean) for each in todo),
        random_reads=tuple(
            _run_bytes(each, mean) for each in todo if _is_random(each) for _ in range(runs[each.cell.id])
        ),
        made_bytes=sum(thing.bytes for thing in things),
        no_room=_no_room(path, sum(thing.bytes for thing in things)),
        decoded=decoded + sum(thing.files for thing in things if thing.files > 1),
    )


def _no_room(path: Path, size: int) -> str:
    from jobs.system import durable  # noqa: PLC0415 - as above

    return durable.lack_of_room(path, size)


def _is_random(entry: Entry) -> bool:
    return bool(entry.cell.settings["benchmark"].get("access") == "random_read")


def _decodes(entry: Entry) -> bool:
    return bool(entry.cell.settings["benchmark"].get("preprocess"))


def _images(entry: Entry) -> int:
    settings = entry.cell.settings
    asked = settings.get("iterations")
    files = settings["dataset"].get("files")
    known = [count for count in (asked and asked * settings["batch_size"], files) if count]
    return int(min(known, default=_FILES))


def _run_bytes(entry: Entry, mean: float | None) -> float:
    """Return the bytes that a run reads at most; random reads stop after a time, and read no block twice."""
    settings = entry.cell.settings
    if "file_mb" in settings["benchmark"]:
        return float(settings["benchmark"]["file_mb"] * 1e6)
    dataset = settings["dataset"]
    of_file = dataset.get("median_bytes", 0) * math.exp(dataset.get("sigma", 0.0) ** 2 / 2)
    return _images(entry) * (mean or of_file)


def _sizes(folder: Path) -> list[int]:
    """Return the sizes of the images of a folder, of as many as a run reads."""
    images = (Path(at, name) for at, _, names in os.walk(folder) for name in names if _is_image(name))
    return [image.lstat().st_size for image in itertools.islice(images, _FILES)]


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def _agreed(needs: _Needs, *, sure: bool) -> bool:
    if needs.no_room:
        raise EnvironmentFaultError(needs.no_room, "free some, name another folder, or benchmark.file_mb=100")
    return not needs.to_do or sure or console.agreed("start?") is not False


@dataclass(frozen=True)
class _Row:
    """A cell as the table has it."""

    what: str
    place: int  # of its kind, in the table
    entry: Entry
    record: Record | None
    bound: Bound | None
    rates: tuple[float, ...]  # MB/s of the runs that count
    images: float | None  # images/s

    @property
    def threads(self) -> int:
        return int(self.entry.cell.settings.get("threads") or 1)

    @property
    def mb_per_s(self) -> float | None:
        return statistics.median(self.rates) if self.rates and self.entry.state == "done" else None


_HEADS = ("", "threads", "MB/s", "min to max", "images/s", "of storage", "price", "bound by")
_ABOUT_COLUMNS = (
    "of storage: of random blocks by as many readers; price: what files that are only read lose to the framework, and"
    " decoded ones to decoding"
)
_KINDS = ("one file, end to end", "random blocks", "files, read only", "files, decoded")


def _show(planned: Plan, path: Path) -> None:
    """Print the table and the two sentences."""
    rows = sorted((_row(planned, entry) for entry in planned.entries), key=lambda each: (each.place, each.threads))
    known = {(row.place, row.threads): row.mb_per_s for row in rows if row.mb_per_s}
    lines = [_HEADS, *(_cells(row, known) for row in rows)]
    for line in console.table(lines, right={1, 2, 3, 4, 5, 6}):
        console.show(line)
    console.show(_ABOUT_COLUMNS)
    console.show("")
    for sentence in _sentences(rows, known, path, planned.folder.root):
        console.show(sentence)
    console.show(f"report: {planned.folder.root / 'report.html'}")


def _row(planned: Plan, entry: Entry) -> _Row:
    record, _ = planned.verdicts.read(planned.folder.record(entry.cell.id))
    runs: list[Any] = stopping.measured(record, "valid") if record else []
    benchmark = entry.cell.settings["benchmark"]
    place = 2 + bool(benchmark["preprocess"]) if "preprocess" in benchmark else int(benchmark["access"] != "read")
    images = [each["images_per_s"] for each in runs if "images_per_s" in each]
    return _Row(
        what=_KINDS[place],
        place=place,
        entry=entry,
        record=record,
        bound=planned.verdicts.bound(record) if record else None,
        rates=tuple(each["read_mb_per_s"] for each in runs),
        images=statistics.median(images) if images else None,
    )


def _cells(row: _Row, known: Mapping[tuple[int, int], float]) -> tuple[str, ...]:
    if row.mb_per_s is None:
        return (row.what, str(row.threads), "-", row.entry.state, *[""] * (len(_HEADS) - 4))
    of_storage, before = known.get((1, row.threads)), known.get((row.place - 1, row.threads))
    return (
        row.what,
        str(row.threads),
        f"{row.mb_per_s:.4g}",
        f"{min(row.rates):.4g} to {max(row.rates):.4g}",
        f"{row.images:.0f}" if row.images else "",
        f"{row.mb_per_s / of_storage:.0%}" if of_storage and row.place > 1 else "",
        f"{max(0.0, 1 - row.mb_per_s / before):.0%}" if before and row.place > 1 else "",
        row.bound.word if row.bound else "",
    )


def _sentences(rows: Sequence[_Row], known: Mapping[tuple[int, int], float], path: Path, campaign: Path) -> list[str]:
    """Return how fast the storage feeds TensorFlow, and what would help."""
    fed = [row for row in rows if row.place == len(_KINDS) - 1 and row.mb_per_s]
    gives = max((rate for (place, _), rate in known.items() if place < 2 and rate), default=None)  # noqa: PLR2004
    if not fed:
        return ["How fast it feeds TensorFlow is not known: no cell with decoding is done."]
    best = max(fed, key=lambda row: row.mb_per_s or 0.0)
    read = max((row for row in rows if row.place == 2 and row.mb_per_s), key=_rate, default=None)  # noqa: PLR2004
    only = (
        f"; files that are only read come at {_rate(read):.4g} MB/s ({counted(read.threads, 'thread')})" if read else ""
    )
    itself = f", of {gives:.4g} MB/s that the storage gives by itself" if gives else ""
    served = bool(best.record and (best.record["provenance"].get("emulated") or {}).get("storage"))
    first = (
        f"{path}{' (emulated)' if served else ''} feeds TensorFlow with {best.images:.0f} images/s"
        f" ({_rate(best):.4g} MB/s) at most, by {counted(best.threads, 'thread')}{only}{itself}."
    )
    return [first, _help(best, campaign)]


def _rate(row: _Row) -> float:
    return row.mb_per_s or 0.0


def _help(best: _Row, campaign: Path) -> str:
    usual = campaign == Path("results").resolve()
    more = shlex.join(["python", "-m", "campaign", "advise", best.entry.cell.id.rpartition("-")[2]])
    more += "" if usual else f" {shlex.quote(str(campaign))}"
    work = work_of(best.record) if best.record else None
    if best.bound and work and (helps := help_of(best.bound, work)):
        return f"What would help: {helps} ({best.bound}); {more} says more."
    why = best.bound.words if best.bound else "it has no run with figures"
    return f"What would help is not decided ({why}); {more} says what would tell."
