"""Benchmark ``command``: any program, and what it costs it to wait for its data (docs/stall.md).

By hand, on any node::

    python -m jobs command FOLDER --cache cold -- python train.py --epochs 1
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import field as each_anew

from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.user_program import WORD, Program
from jobs.data import manifest
from jobs.errors import DatasetError
from jobs.model.declared import Setting
from jobs.model.request import Request
from jobs.model.settings import Named, Node, Settings
from jobs.ready_run import Work
from jobs.system import page_cache
from jobs.system.cgroup import memory_left_bytes
from jobs.system.extents import PAGE_BYTES
from jobs.system.process_tree import ENDING_S

_PLACEHOLDERS = ("threads", "batch_size", "prefetch", "iterations", "seed", "cache")
_DATA = "data"


class Keys(Named):
    """Any program that reads files: a training of yours, fio, dd (docs/stall.md)."""

    argv: Annotated[
        list[str],
        Setting(
            "program and its arguments, without a shell; {data}, {threads}, {batch_size}, {prefetch}, {iterations},"
            " {seed} and {cache} stand for the values of the cell"
        ),
    ] = each_anew(default_factory=list)
    environment: Annotated[
        dict[str, str],
        Setting("variables of the program's environment beside yours; the same placeholders as in argv"),
    ] = each_anew(default_factory=dict)
    workdir: Annotated[
        str | None, Setting("folder in which the program is started; null: the one in which the command is given")
    ] = None
    metric: Annotated[
        str | None,
        Setting(
            "regular expression whose first group is a number that the program prints, for example"
            " 'speed: ([0-9.]+) img/s'; null: runs per hour are reported"
        ),
    ] = None
    matches: Annotated[
        Literal["last", "median"],
        Setting("which of several printed numbers counts; last: the last one; median: the median of all"),
    ] = "last"
    unit: Annotated[str, Setting("unit of the printed number")] = ""
    better: Annotated[Literal["higher", "lower"], Setting("which printed number is the better one")] = "higher"
    begins: Annotated[
        str | None,
        Setting(
            "regular expression of the first line that the program prints in the part that is timed; null: the timed"
            " part begins with jobs.mark(), if the program calls it"
        ),
    ] = None


def data_files(folder: Path, listed: manifest.Manifest) -> dict[Path, int]:
    """Return the files of a data set with their sizes in bytes; of several names of one file the first."""
    found: dict[object, tuple[Path, int]] = {}
    for entry in listed.files:
        path = folder / entry.name
        try:
            status = path.stat()
            found.setdefault((status.st_dev, status.st_ino), (path, entry.size))
        except OSError:
            found[path] = (path, entry.size)
    return dict(found.values())


@contextmanager
def begin(request: Request) -> Iterator[Work]:
    """Start the process that supervises the program.

    Raises DatasetError where data must be warm and do not fit into memory.
    """
    settings, folder = request["settings"], Path(request["dataset"])
    listed = manifest.load(Path(request["manifest"] or folder))
    sizes = data_files(folder, listed)
    if settings["cache"] == "warm":
        require_room(sum(sizes.values()))
    data = folder / listed.files[0].name if listed.parameters.get("file") else folder
    with tempfile.TemporaryDirectory(prefix="tfio-mark-") as held:
        values = values_of(settings, str(data))
        program = Program(settings["benchmark"], values, request.get("limit_s"), Path(held, "mark"))
        with closing(program):
            yield Work(partial(_measure, program, sizes), folder, list(sizes), list(sizes), sizes, may_write=True)


def require_room(data_bytes: int) -> None:
    """Raise DatasetError where data do not fit into the memory that is left: they cannot be warm."""
    left = memory_left_bytes()
    if left is not None and data_bytes > left:
        raise DatasetError(
            f"cache=warm: the data have {data_bytes / 1e9:.1f} GB, and {left / 1e9:.1f} GB of memory are left for"
            " them: they cannot be warm",
            "name a part of the data that fits, and let the program read this part; more memory"
            " (cluster.mem_gb=…); or measure cold runs alone (cache=cold)",
        )


def values_of(settings: Settings, data: str) -> dict[str, Any]:
    """Return what the placeholders stand for."""
    return {name: settings[name] for name in _PLACEHOLDERS if name in settings} | {_DATA: data}


def _measure(program: Program, sizes: Mapping[Path, int], watched: AbstractContextManager[Any]) -> dict[str, Any]:
    """Run the program; the clock runs from its start to the end of the last process that it started."""
    with watched:
        outcome = program.run()
    after = page_cache.residency(sizes)
    program.require_well(outcome)
    ended = outcome.ended
    return {
        "wall_s": outcome.wall_s,
        "program_s": ended.program_s,
        "left_s": ended.left_s,
        "marked_s": program.marked_s(outcome),
        "runs_per_hour": 3600 / outcome.wall_s,
        **program.printed(),
        "data_bytes": sum(sizes.values()),
        "data_pages_bytes": after.pages * PAGE_BYTES,
        "data_in_memory_bytes": None if after.unverifiable else after.resident * PAGE_BYTES,
        "program": {
            "argv": program.argv,
            "cpus": len(os.sched_getaffinity(0)),
            "cpu_s": ended.cpu_s,
            "largest_bytes": ended.largest_bytes,
            "read_bytes": ended.read_bytes,
            "written_bytes": ended.written_bytes,
        },
    }


def _texts(own: Node) -> Sequence[str]:
    return [*map(str, own["argv"]), *map(str, own["environment"].values())]


class _Command(Benchmark):
    """What depends on the program: only what it is told of the cell can change its result."""

    def figure_of(self, node: Node) -> Figure:
        return Figure("printed", node["unit"], node["better"]) if node["metric"] else self.figure

    def acting(self, point: Mapping[str, Any]) -> Settings:
        own = {**point["benchmark"]}
        own["workdir"] = str(Path(own["workdir"] or ".").expanduser().resolve())
        used = {name for text in _texts(own) for name in WORD.findall(text)}
        idle = set(_PLACEHOLDERS) - used - {"cache"}
        return {name: value for name, value in super().acting({**point, "benchmark": own}).items() if name not in idle}

    def page_cache(self, settings: Settings) -> str:
        return str(settings["cache"])

    def refusal(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        argv = values["benchmark.argv"]
        if not argv or not argv[0].strip():
            return "benchmark=command has no program", "benchmark.argv=[python,train.py,--data,'{data}']"
        if values.get("storage.kind") == "s3":
            return "benchmark=command: a program reads files, and the storage has objects", "a storage with folders"
        environment = [str(each) for name, each in values.items() if name.startswith("benchmark.environment.")]
        for word in {word for text in (*argv, *environment) for word in WORD.findall(text)}:
            close = difflib.get_close_matches(word, (*_PLACEHOLDERS, _DATA), n=1, cutoff=0.8)
            if close and close[0] != word:
                return f"benchmark.argv: {{{word}}} stands for nothing", f"did you mean {{{close[0]}}}?"
        for key in ("metric", "begins"):
            if fault := _fault(key, values[f"benchmark.{key}"]):
                return fault
        return None


def _fault(key: str, pattern: str | None) -> tuple[str, str] | None:
    """Return what is wrong with a regular expression, and the cure."""
    if pattern is None:
        return None
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return f"benchmark.{key}={pattern} is no regular expression: {error}", "see Python's module re"
    if key == "metric" and groups != 1:
        return f"benchmark.metric={pattern} has {groups} groups", "one pair of brackets, round the number"
    return None


BENCHMARK = _Command(
    name="command",
    version=1,
    kind="program",
    keys=Keys,
    begin=begin,
    figure=Figure("runs_per_hour", "runs/h"),
    about="run any program, with its data cold or warm",
    data="files",
    settings=("benchmark", "dataset", "storage", "cache", *(name for name in _PLACEHOLDERS if name != "cache")),
    imports=(),
    ending_s=ENDING_S,
    wall_parts=("program_s", "left_s"),
)
