"""Run the verb `measure`: measure a storage by itself and under TensorFlow, and say what would help."""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells.cell_plan import Plan, PlannedCell
from campaign.cli import arguments, run
from campaign.cluster.placement import choose_cluster
from campaign.config import command_line, recipes
from campaign.config.collect import collect_points, make_cells
from campaign.config.command_line import quote_literally
from campaign.console import count_noun
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.storage.made_data import missing_data
from campaign.storage.roots import device_number, require_not_in_memory
from campaign.storage.unchanged import require_unchanged
from jobs.benchmarks import registry
from jobs.data.manifest import IMAGE_SUFFIXES
from jobs.errors import NotInstalledError
from jobs.judging import judge, stopping
from jobs.judging.bound import Bound
from jobs.lazy_imports import has_tensorflow
from jobs.model.conduct import Point
from jobs.model.record import Record
from jobs.system import files

_USAGE = """\
PATH [--data DIR] [KEY=VALUE[,VALUE...] ...] [--only CELL]
         [--dry-run] [--yes] [--json]"""
_ABOUT = """\
Measure how fast TensorFlow can read from the storage of a folder. The verb runs an ordinary campaign (recipe:
conf/measure). It first measures the storage by itself: one large file from end to end, then blocks at random places.
Then TensorFlow's input pipeline reads image files with 1, 4 and 16 threads, without decoding and with decoding. At the
end it prints one table and two sentences: how fast the storage feeds TensorFlow, and what would help.

  PATH         a folder on the storage, where you may write: 0.3 GB of
               test files are made there once, and stay there
  KEY=VALUE    a setting of `python -m campaign`: threads=1,2,8, runs=3, …

Before the first run it prints how many bytes it reads and writes, and how long that takes. On a terminal it then asks
whether to start, except with --yes or CAMPAIGN_YES=1. Recorded cells are not measured again, so the same command
continues after an interruption. --dry-run prints the cells and their state, and starts nothing. --json prints the table
and the sentences as JSON.

Exit codes: see `python -m campaign --help`."""
_DATA = "your own JPEG and PNG files on the same file system, which are never changed; default: made images"

_PLACE = ("storage=", "storage.name=", "storage.root=", "dataset.path=")  # settings that PATH and --data DIR replace
_FILES, _SECONDS = 1024, 2.0  # number of images that a run reads; seconds of a run of random reads
_NAME_LENGTH = 28  # characters of a storage name made from a path; names may have 32
_FAST, _SLOW = 100.0, 10.0  # bandwidths in MB/s, for which the expected time is printed
# Seconds of a run beside its reads; seconds to start the campaign; images that one processor decodes per second.
_RUN_S, _START_S, _IMAGES_PER_S = 1.5, 20.0, 200.0


def main(argv: Sequence[str]) -> int:
    """Measure the storage of a folder; return the exit code of the campaign."""
    parser = arguments.make_parser("measure", _ABOUT, _USAGE, json=False, open_ended=True)
    parser.add_argument("--data", metavar="DIR", help=_DATA)
    options, rest = arguments.take_options(parser, argv, command_line.FLAGS)
    data = None if options.data is None else _folder(options.data, "--data")
    split = command_line.parse_command_line(rest)
    if split.hydra_flags:
        raise UsageError(f"measure has no single configuration for {split.hydra_flags[0]}", "--dry-run lists its cells")
    named = [word for word in split.overrides if "=" not in word or word.startswith(("/", "./", "../", "~"))]
    path = _path(named, data)
    rest.remove(named[0])
    split = replace(split, overrides=tuple(word for word in split.overrides if word not in named))
    if others := [word for word in split.overrides if word.startswith("benchmark=")]:
        raise UsageError(f"{others[0]}: measure has its own benchmarks, baseline and micro", "leave this word out")
    if clash := [word for word in split.overrides if word.startswith(_PLACE)]:
        raise UsageError(f"{clash[0]}: PATH says where the storage is, and --data where images are", "leave it out")
    sizes = _sizes(data) if data else []
    planned = run.restrict_plan(run.plan_points(_points(path, data, split, len(sizes))), split.only)
    if not planned.conduct["redo"]:
        for entry in planned.entries:
            if recorded := planned.verdicts.read(planned.folder.record(entry.cell.id))[0]:
                require_unchanged(recorded)
    if choose_cluster([entry.cell for entry in planned.entries], planned.conduct) != "slurm":
        planned = _without_tensorflow(planned)
    words, no_room = _needs(planned, path, sizes)
    console.say(words)
    if no_room and not split.dry_run:
        raise EnvironmentFaultError(
            no_room, "free some space, name another folder, or lower benchmark.file_mb or dataset.files"
        )
    if planned.to_do and not run.may_start(sure=split.dry_run or split.assume_yes):
        return 1
    again = ["measure", str(path), *([f"--data={data}"] if data else []), *rest]
    return run.run_plan(planned, again, split, lambda after: _show(after, path), lambda after: _as_json(after, path))


def _without_tensorflow(planned: Plan) -> Plan:
    """Remove the cells that need TensorFlow from the plan, and print a note, if TensorFlow is not installed."""
    settings = [entry.cell.settings for entry in planned.entries]
    alone = tuple(entry for entry in planned.entries if not registry.benchmarks_with_tensorflow([entry.cell.settings]))
    if not alone or len(alone) == len(settings) or has_tensorflow():
        return planned
    lacks = NotInstalledError("TensorFlow", registry.benchmarks_with_tensorflow(settings))
    console.say(f"note: {lacks.message}: only what the storage gives by itself is measured; hint: {lacks.hint}")
    return replace(planned, entries=alone)


def _path(named: Sequence[str], data: Path | None) -> Path:
    """Return the folder whose storage is measured; raises an error if the folder is not suitable."""
    if len(named) != 1:
        which = f"not {len(named)}: {', '.join(named)}" if named else "and none is named"
        raise UsageError(f"measure takes one folder, {which}", "python -m campaign measure /scratch/me")
    path = _folder(named[0], "PATH")
    if not os.access(path, os.W_OK | os.X_OK):
        cure = "name a folder on the same storage where you may write; --data DIR may be read-only"
        raise EnvironmentFaultError(f"{path} is not writable for you, and test files must be made there", cure)
    require_not_in_memory(path)
    if data and device_number(data) != device_number(path):
        cure = f"name a folder on the file system of {data} as PATH: both must be on the measured storage"
        raise UsageError(f"{data} lies on another file system than {path}", cure)
    if data and path.is_relative_to(data):
        why = f"{path} lies in the images {data}, and test files would be made among your images"
        raise UsageError(why, f"name a folder outside {data}")
    return path


def _folder(text: str, what: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir() or not text.strip():
        wrong = (
            "names no folder" if not text.strip() else "is a file, not a folder" if path.exists() else "is not there"
        )
        raise UsageError(f"{what} {path} {wrong}", "name a folder on the storage that is to be measured")
    return files.resolve_links(path)


def _points(path: Path, data: Path | None, split: command_line.CommandLine, images: int) -> list[Point]:
    """Return the points of the recipes in conf/measure, on the storage of the folder `path`.

    If the user has fewer `images` than a run reads by default, a run reads all of them once.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", str(path)).strip("_")[-_NAME_LENGTH:].strip("_") or "root"
    where = [f"storage.name={name}", f"storage.root={quote_literally(str(path))}"]
    if data:
        where = ["dataset=folder", f"dataset.path={quote_literally(str(data))}", *where]
    elif not any(word.startswith(("dataset=", "dataset.files=")) for word in split.overrides):
        where.append(f"dataset.files={_FILES}")
    points = {}
    for recipe, benchmark in (("storage", "baseline"), ("pipeline", "micro")):  # files of conf/measure
        own = recipes.Recipe(recipe, benchmark, None, ()).accepted_overrides(split.overrides)
        if benchmark == "baseline":
            own = [word for word in own if not word.startswith("threads=")]
        elif data and images < _FILES:
            own = ["iterations=null", *own]
        points[recipe] = collect_points([*split.config_dir_flags, f"+measure={recipe}", *where, *own]) or []
        if points[recipe]:
            make_cells(points[recipe])
    return [*points["storage"], *_random(points["storage"], points["pipeline"]), *points["pipeline"]]


def _random(storage: Sequence[Point], pipeline: Sequence[Point]) -> list[Point]:
    """Return points that read random blocks of the files' size, with each number of threads of the pipeline.

    One more point has twice the largest number of threads. Its bandwidth shows whether the storage has reached its
    maximum or is only slow to answer each read.
    """
    threads = sorted({point["threads"] for point in pipeline})
    changed = {"access": "random_read", "seconds_max": _SECONDS}
    return [
        {**point, "benchmark": point["benchmark"] | changed, "threads": count}
        for point in storage[:1]
        for count in [*threads, 2 * threads[-1]]
    ]


def _needs(planned: Plan, path: Path, sizes: Sequence[int]) -> tuple[str, str]:
    """Return one line with the bytes and the minutes that the campaign takes, and an error if the disk is too full.

    The error is empty if the free space suffices.
    """
    todo, mean = planned.to_do, statistics.fmean(sizes) if sizes else None
    if not todo:
        return f"{count_noun(len(planned.entries), 'cell')}, 0 to run", ""
    things = missing_data(todo)
    made, decoded = sum(thing.bytes for thing in things), sum(thing.files for thing in things if thing.files > 1)
    read, times_s = 0.0, {_FAST: _START_S, _SLOW: _START_S}
    for entry in todo:
        own, runs = entry.cell.settings["benchmark"], entry.missing + planned.conduct["warmup_runs"]
        images, size = _reads(entry, mean)
        read += runs * size
        decoded += runs * images if own.get("preprocess") else 0
        most_s = _SECONDS if own.get("access") == "random_read" else math.inf
        for rate in times_s:
            times_s[rate] += runs * (_RUN_S + min(most_s, size / 1e6 / rate))
    decoding_s = decoded / (_IMAGES_PER_S * len(os.sched_getaffinity(0)))
    fast, slow = (max(1, math.ceil((s + made / 1e6 / rate + decoding_s) / 60)) for rate, s in times_s.items())
    moved = f"reads {read / 1e9:.2g} GB and makes {made / 1e9:.2g} GB of files at most"
    times = f"about {fast} min where the storage gives {_FAST:g} MB/s, {slow} min at {_SLOW:g}"
    words = f"{count_noun(len(planned.entries), 'cell')}, {len(todo)} to run: {moved}; {times}"
    return words, files.error_if_too_large(path, made)


def _reads(entry: PlannedCell, mean: float | None) -> tuple[int, float]:
    """Return how many images a run reads, and the largest number of bytes that it can read.

    A baseline run reads at most its file, because random reads read no block twice.
    """
    settings = entry.cell.settings
    if "file_mb" in settings["benchmark"]:
        return 0, float(settings["benchmark"]["file_mb"] * 1e6)
    dataset, steps = settings["dataset"], settings.get("iterations")
    counts = [count for count in (steps and steps * settings["batch_size"], dataset.get("files")) if count]
    images = int(min(counts, default=_FILES))
    return images, images * (mean or dataset.get("median_bytes", 0) * math.exp(dataset.get("sigma", 0.0) ** 2 / 2))


def _sizes(folder: Path) -> list[int]:
    """Return the sizes of the images in a folder, at most of as many images as a run reads.

    Raises UsageError if all images are empty.
    """
    images = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    images = (image for image in images if image.name.lower().endswith(IMAGE_SUFFIXES))
    sizes = [image.lstat().st_size for image in itertools.islice(images, _FILES)]
    if sizes and not any(sizes):
        raise UsageError(f"the images in {folder} are empty", "name a folder with images that can be decoded")
    return sizes


@dataclass(frozen=True)
class _Row:
    """One row of the table: a cell with its bandwidth."""

    place: int  # index into `_KINDS`
    threads: int
    entry: PlannedCell
    record: Record | None
    bound: Bound | None
    rates: tuple[float, ...]  # MB/s of the valid runs
    images: float | None  # images/s, median of the valid runs
    refusal: tuple[str, str] = ("", "")  # why the cell is not compared with others, and the cure

    @property
    def unstable(self) -> bool:
        """Whether the runs scatter more widely than the check `spread` allows."""
        spread = judge.spread_of_cell(self.record) if self.record else None
        return spread is not None and spread["passed"] is False

    @property
    def mb_per_s(self) -> float | None:
        return statistics.median(self.rates) if self.rates and self.entry.state == "done" else None


_HEADS = ("", "threads", "MB/s", "min to max", "images/s", "of storage", "price", "bound by")
_ABOUT_COLUMNS = (
    "of storage: share of the MB/s of random blocks with as many threads; price: share of the MB/s that TensorFlow"
    " costs (files, read only) or that decoding costs (files, decoded)"
)
_DAGGER = "\N{DAGGER}"  # as in the tables of the analysis
_ABOUT_DAGGER = f"{_DAGGER} unstable: (max - min) / median is above checks.spread_max"
_KINDS = ("one file, end to end", "random blocks", "files, read only", "files, decoded")
_FILE, _RANDOM, _READ, _DECODED = range(len(_KINDS))


def _rows(planned: Plan) -> tuple[list[_Row], dict[tuple[int, int], float]]:
    """Return the sorted rows of the table, and the MB/s by kind and number of threads."""
    rows = sorted((_row(planned, entry) for entry in planned.entries), key=lambda row: (row.place, row.threads))
    return rows, {(row.place, row.threads): rate for row in rows if (rate := row.mb_per_s)}


def _as_json(planned: Plan, path: Path) -> dict[str, Any]:
    """Return the table and the sentences that `_show` prints, as plain values for ``--json``."""
    rows, known = _rows(planned)
    cells = [
        {
            "cell": row.entry.cell.id, "kind": _KINDS[row.place], "threads": row.threads, "status": row.entry.state,
            "mb_per_s": row.mb_per_s, "runs_mb_per_s": row.rates, "images_per_s": row.images,
            "unstable": row.unstable, "bound": row.bound and row.bound.as_json,
        }
        for row in rows
    ]  # fmt: skip
    says = _sentences(rows, known, path, planned.folder.root)
    return {"campaign_dir": str(planned.folder.root), "path": str(path), "cells": cells, "says": says}


def _show(planned: Plan, path: Path) -> None:
    """Print the table and the two sentences."""
    rows, known = _rows(planned)
    comparable = {(row.place, row.threads): rate for row in rows if (rate := row.mb_per_s) and not any(row.refusal)}
    lines = [_cells(row, {} if any(row.refusal) else comparable) for row in rows]
    table = console.format_table([_HEADS, *lines], right={1, 2, 3, 4, 5, 6})
    about_dagger = [_ABOUT_DAGGER] if any(row.unstable and row.mb_per_s for row in rows) else []
    for line in (*table, _ABOUT_COLUMNS, *about_dagger, "", *_sentences(rows, known, path, planned.folder.root)):
        console.show(line)
    console.show(f"report: {planned.folder.root / 'report.html'}")


def _row(planned: Plan, entry: PlannedCell) -> _Row:
    record, _ = planned.verdicts.read(planned.folder.record(entry.cell.id))
    runs: list[Any] = stopping.measured_runs(record, "valid") if record else []
    own = entry.cell.settings["benchmark"]
    images = [run["images_per_s"] for run in runs if "images_per_s" in run]
    return _Row(
        place=_READ + bool(own["preprocess"]) if "preprocess" in own else int(own["access"] != "read"),
        threads=int(entry.cell.settings.get("threads") or 1),
        entry=entry,
        record=record,
        bound=planned.verdicts.bound(record) if record else None,
        rates=tuple(run["read_mb_per_s"] for run in runs),
        images=statistics.median(images) if images else None,
        refusal=judge.refusal_of_comparison(record) if record else ("", ""),
    )


def _cells(row: _Row, known: Mapping[tuple[int, int], float]) -> tuple[str, ...]:
    rate, what = row.mb_per_s, (_KINDS[row.place], str(row.threads))
    if rate is None:
        return (*what, "-", row.entry.state, *[""] * (len(_HEADS) - 4))
    storage, before = known.get((_RANDOM, row.threads)), known.get((row.place - 1, row.threads))
    return (
        *what,
        f"{rate:.4g}{_DAGGER * row.unstable}",
        f"{min(row.rates):.4g} to {max(row.rates):.4g}",
        f"{row.images:.0f}" if row.images else "",
        f"{rate / storage:.0%}" if storage and row.place > _RANDOM else "",
        f"{max(0.0, 1 - rate / before):.0%}" if before and row.place > _RANDOM else "",
        row.bound.word if row.bound else "",
    )


def _sentences(rows: Sequence[_Row], known: Mapping[tuple[int, int], float], path: Path, campaign: Path) -> list[str]:
    """Return the sentences below the table: which cells are not compared with others and why, then `_answers`."""
    counts = Counter(row.refusal for row in rows if any(row.refusal))
    refusals = [
        f"{n} of {count_noun(len(rows), 'cell')} {why}; not compared with others; {cure}"
        for (why, cure), n in counts.items()
    ]
    return [*refusals, *_answers(rows, known, path, campaign)]


def _answers(rows: Sequence[_Row], known: Mapping[tuple[int, int], float], path: Path, campaign: Path) -> list[str]:
    """Return two sentences: how fast TensorFlow reads from the storage, and what would make it faster."""
    best, read = (
        max((row for row in rows if row.place == place and row.mb_per_s), key=_rate, default=None)
        for place in (_DECODED, _READ)
    )
    gives = max((rate for (place, _), rate in known.items() if place <= _RANDOM), default=None)
    if not best:
        alone = [f"{path} gives {gives:.4g} MB/s by itself."] if gives else []
        decoding = [row for row in rows if row.place == _DECODED]
        if read and not decoding:
            reads = f"TensorFlow reads {_rate(read):.4g} MB/s at most, with {count_noun(read.threads, 'thread')}"
            return [*alone, f"{reads}, without decoding."]
        reasons = (row.record.get("reason") for row in decoding if row.record)
        why = next(filter(None, reasons), "no cell with decoding is done")
        return [*alone, f"How fast the storage feeds TensorFlow is not known: {why}."]
    only = (
        f"; without decoding TensorFlow reads {_rate(read):.4g} MB/s ({count_noun(read.threads, 'thread')})"
        if read
        else ""
    )
    itself = f"; the storage by itself gives {gives:.4g} MB/s" if gives else ""
    served = best.record and (best.record["provenance"].get("emulated") or {}).get("storage")
    says = (
        f"{path}{' (emulated)' if served else ''} feeds TensorFlow with {best.images:.0f} images/s"
        f" ({_rate(best):.4g} MB/s) at most, with {count_noun(best.threads, 'thread')}{only}{itself}."
    )
    return [says, _help(best, campaign)]


def _rate(row: _Row) -> float:
    return row.mb_per_s or 0.0


def _help(best: _Row, campaign: Path) -> str:
    usual = campaign == files.resolve_links("results")
    more = shlex.join(["python", "-m", "campaign", "show", best.entry.cell.id.rpartition("-")[2]])
    more += "" if usual else f" {shlex.quote(str(campaign))}"
    if best.bound and best.bound.helps:
        return f"What would help: {best.bound.helps} ({best.bound}); {more} says more."
    why = best.bound.because if best.bound else "the cell has no run with figures"
    return f"What would help is not decided ({why}); {more} says more."
