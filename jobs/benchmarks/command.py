"""Benchmark ``command``: run any program, to measure the time that it waits for its data (docs/reference/stall.md).

To run the benchmark by hand, on any node::

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
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import field as each_anew

from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.benchmarks.user_program import WORD, ProgramRun
from jobs.data import manifest
from jobs.errors import DatasetError, ProgramError
from jobs.model.declared import Setting
from jobs.model.settings import Node, NodeWithName, Settings
from jobs.model.work import RunRequest
from jobs.program_checks import READ_MIN
from jobs.ready_run import ReadyRun
from jobs.system import page_cache
from jobs.system.cgroup import memory_left_bytes
from jobs.system.page_cache import PAGE_BYTES
from jobs.system.programs import ENDING_S

if TYPE_CHECKING:
    from jobs.events.posix_window import Window

_PLACEHOLDERS = ("threads", "batch_size", "prefetch", "iterations", "seed", "cache")
_DATA = "data"
_ASKED_MIN = 0.5  # share of the bytes of the data that a program must get from reads, if its exit code is not 0


class Keys(NodeWithName):
    """Any program that reads files, such as your own training, fio or dd (docs/reference/stall.md)."""

    argv: Annotated[
        list[str],
        Setting(
            "program and its arguments, which are not given to a shell; {data}, {threads}, {batch_size}, {prefetch},"
            " {iterations}, {seed} and {cache} are replaced by the values of the cell"
        ),
    ] = each_anew(default_factory=list)
    environment: Annotated[
        dict[str, str],
        Setting("environment variables that the program gets in addition to yours, with the placeholders of argv"),
    ] = each_anew(default_factory=dict)
    workdir: Annotated[
        str | None, Setting("folder in which the program is started; null: the current folder of your shell")
    ] = None
    metric: Annotated[
        str | None,
        Setting(
            "regular expression whose first group is a number that the program prints, for example"
            " 'speed: ([0-9.]+) img/s'; null: the metric is the runtime"
        ),
    ] = None
    matches: Annotated[
        Literal["last", "median"],
        Setting(
            "result of a run whose program prints several numbers; last: the last number; median: the median of all"
            " numbers"
        ),
    ] = "last"
    unit: Annotated[str, Setting("unit of the printed number")] = ""
    better: Annotated[Literal["higher", "lower"], Setting("whether a higher or a lower printed number is better")] = (
        "higher"
    )
    begins: Annotated[
        str | None,
        Setting(
            "regular expression of a printed line; the timed part begins when the program prints the first matching"
            " line; null: the timed part begins when the program calls jobs.mark()"
        ),
    ] = None


def data_files(folder: Path, listing: manifest.Manifest) -> dict[Path, int]:
    """Return the size in bytes of each file of a data set, by path.

    A file with several names (hard links) is listed only once.
    """
    files: dict[object, tuple[Path, int]] = {}
    for entry in listing.files:
        path = folder / entry.name
        try:
            status = path.stat()
            files.setdefault((status.st_dev, status.st_ino), (path, entry.size))
        except OSError:
            files[path] = (path, entry.size)
    return dict(files.values())


@contextmanager
def begin_run(request: RunRequest) -> Iterator[ReadyRun]:
    """Yield the run of a program; the process that supervises the program is started before.

    Raises DatasetError if ``cache=warm`` is set and the data do not fit into memory.
    """
    settings, folder = request["settings"], Path(request["dataset"])
    listing = manifest.load_manifest(Path(request["manifest"] or folder))
    sizes = data_files(folder, listing)
    if settings["cache"] == "warm":
        require_memory(sum(sizes.values()))
    data = folder / listing.files[0].name if listing.parameters.get("file") else folder
    is_profiled = settings.get("profile", {}).get("posix", "none") != "none" and request.get("profile")
    with tempfile.TemporaryDirectory(prefix="tfio-program-") as name:
        scratch, values = Path(name).resolve(), placeholder_values(settings, str(data))
        hooks = _hooks(scratch) if is_profiled else {}
        with closing(
            ProgramRun(settings["benchmark"], values, request.get("limit_s"), scratch / "mark", **hooks)
        ) as program:
            yield ReadyRun(
                partial(_measure, program, sizes, settings["cache"]),
                folder,
                files=list(sizes),
                proof=list(sizes),
                sizes=sizes,
                whole="file" not in listing.parameters and not settings.get("dataset", {}).get("list"),
                may_write=True,
                calls=partial(_calls, program, scratch, sizes) if is_profiled else None,
            )


def _hooks(folder: Path) -> dict[str, str]:
    from jobs.profiler import ProfilerError, files_seen  # noqa: PLC0415 - imports numpy

    try:
        return files_seen.recording_environment(folder)
    except ProfilerError as error:
        raise ProgramError(error.message) from error


def _calls(program: ProgramRun, folder: Path, sizes: Mapping[Path, int]) -> Window:
    from jobs.profiler import ProfilerError, files_seen  # noqa: PLC0415 - imports numpy

    try:
        return files_seen.window_of_files(folder, sizes, *program.edges_ns)
    except ProfilerError as error:
        raise ProgramError(error.message) from error


def require_memory(data_bytes: int) -> None:
    """Raise DatasetError if the data do not fit into the free memory, because a warm run needs all data in memory."""
    free_bytes = memory_left_bytes()
    if free_bytes is not None and data_bytes > free_bytes:
        raise DatasetError(
            f"cache=warm: the data have {data_bytes / 1e9:.1f} GB, but only {free_bytes / 1e9:.1f} GB of memory are"
            " free, so the data cannot be warm",
            "name a smaller part of the data, and let the program read only this part; or request more memory"
            " (cluster.mem_gb=…); or measure only cold runs (cache=cold; with `stall`: --cold)",
        )


def placeholder_values(settings: Settings, data: str) -> dict[str, Any]:
    """Return the value of each placeholder, by name; `data` is the path that replaces ``{data}``."""
    return {name: settings[name] for name in _PLACEHOLDERS if name in settings} | {_DATA: data}


def _measure(
    program: ProgramRun, sizes: Mapping[Path, int], cache: str, watched: AbstractContextManager[Any]
) -> dict[str, Any]:
    """Run the program and return the metrics; the clock runs until the last of the program's processes has ended.

    Raises ProgramError for an exit code other than 0, unless the program read its data. After a cold run, their pages
    in memory show this. After another run, only the bytes of all reads do, which may be of other files, too.
    """
    with watched:
        program.run()
    after = page_cache.residency(sizes)
    ended = program.ended
    in_memory = cache == "cold" and not after.unverifiable
    read_bytes, least = (after.resident * PAGE_BYTES, READ_MIN) if in_memory else (ended.asked_bytes, _ASKED_MIN)
    program.raise_failure(worked=read_bytes >= least * sum(sizes.values()))
    return {
        "wall_s": program.wall_s,
        "program_s": ended.program_s,
        "left_s": ended.descendants_s,
        "marked_s": program.marked_s,
        **program.printed(),
        "data_bytes": sum(sizes.values()),
        "data_pages_bytes": after.pages * PAGE_BYTES,
        "data_in_memory_bytes": None if after.unverifiable else after.resident * PAGE_BYTES,
        "program": {
            "argv": program.argv,
            "exit": ended.exit,
            "cpus": len(os.sched_getaffinity(0)),
            "cpu_s": ended.cpu_s,
            "largest_bytes": ended.largest_bytes,
            "read_bytes": ended.read_bytes,
            "written_bytes": ended.written_bytes,
        },
    }


def _argument_texts(own: Node) -> Sequence[str]:
    return [*map(str, own["argv"]), *map(str, own["environment"].values())]


class _Command(Benchmark):
    """The benchmark ``command``; a common setting can change its result only if a placeholder uses the setting."""

    def figure_of(self, node: Node) -> Figure:
        return Figure("printed", node["unit"], node["better"]) if node["metric"] else self.figure

    def effective_settings(self, point: Mapping[str, Any]) -> Settings:
        own = {**point["benchmark"]}
        own["workdir"] = str(Path(own["workdir"] or ".").expanduser().resolve())
        used_words = {name for text in _argument_texts(own) for name in WORD.findall(text)}
        unused = set(_PLACEHOLDERS) - used_words - {"cache"}
        return {
            name: value
            for name, value in super().effective_settings({**point, "benchmark": own}).items()
            if name not in unused
        }

    def page_cache(self, settings: Settings) -> str:
        return str(settings["cache"])

    def settings_error(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        argv = values["benchmark.argv"]
        if not argv or not argv[0].strip():
            return "benchmark=command has no program", "benchmark.argv=[python,train.py,--data,'{data}']"
        if values.get("storage.kind") == "s3":
            return "benchmark=command needs files, but the storage has objects", "a storage with folders"
        environment = [str(text) for name, text in values.items() if name.startswith("benchmark.environment.")]
        for word in {word for text in (*argv, *environment) for word in WORD.findall(text)}:
            similar = difflib.get_close_matches(word, (*_PLACEHOLDERS, _DATA), n=1, cutoff=0.8)
            if similar and similar[0] != word:
                return f"benchmark.argv: {{{word}}} is no placeholder", f"did you mean {{{similar[0]}}}?"
        if values["profile.posix"] == "trace" or values["profile.tensorflow"] != "none":
            return "benchmark=command can only count the POSIX calls of a program", "profile.posix=counters"
        for key in ("metric", "begins"):
            if fault := _check_pattern(key, values[f"benchmark.{key}"]):
                return fault
        return None


def _check_pattern(key: str, pattern: str | None) -> tuple[str, str] | None:
    """Return an error message and its cure for an invalid regular expression, or None for a valid expression."""
    if pattern is None:
        return None
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return f"benchmark.{key}={pattern} is no regular expression: {error}", "see Python's module re"
    if key == "metric" and groups != 1:
        return f"benchmark.metric={pattern} has {groups} groups, not 1", "put brackets round the number only"
    return None


BENCHMARK = _Command(
    name="command",
    version=1,
    kind="program",
    keys=Keys,
    begin=begin_run,
    figure=Figure("wall_s", "s", "lower"),
    about="run any program, with its data cold or warm",
    data="files",
    settings=("benchmark", "dataset", "storage", "profile", *_PLACEHOLDERS),
    imports=(),
    ending_s=ENDING_S,
    wall_parts=("program_s", "left_s"),
)
