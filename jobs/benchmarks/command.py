"""Benchmark ``command``: any program, and what it costs it to wait for its data (docs/stall.md).

By hand, on any node::

    python -m jobs command FOLDER --cache cold -- python train.py --epochs 1
"""

from __future__ import annotations

import difflib
import os
import re
import select
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import field as each_anew

from jobs import marks
from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.data import manifest
from jobs.errors import DatasetError, ProgramError
from jobs.model.declared import Setting
from jobs.model.request import Request
from jobs.model.settings import Named, Node, Settings
from jobs.ready_run import Work
from jobs.system import page_cache
from jobs.system.cgroup import memory_left_bytes
from jobs.system.extents import PAGE_BYTES
from jobs.system.process_tree import ENDING_S, Ended, Keeper

_PLACEHOLDERS = ("threads", "batch_size", "prefetch", "iterations", "seed", "cache")
_DATA = "data"
_WORD = re.compile(r"\{([a-z_]+)\}")
_OURS = ("PYTHONSAFEPATH",)  # what this project sets for its own processes
_STDERR = 2
_CHUNK = 1 << 16
_KEPT_BYTES = 1 << 26  # of the output, in which `benchmark.metric` is looked for
_LINE_BYTES = 1 << 16  # of a line that marks where the timed part begins


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


@dataclass
class _Output:
    """What a program prints: passed on as it comes, the end of it kept, and watched for a line."""

    begins: re.Pattern[str] | None
    kept: bytearray = field(default_factory=bytearray)
    marked_s: float | None = None  # when the line that `begins` the timed part came, by `time.perf_counter`
    _line: bytearray = field(default_factory=bytearray)

    def take(self, chunk: bytes) -> None:
        """Take what was printed now."""
        os.write(_STDERR, chunk)
        self.kept += chunk
        if len(self.kept) > 2 * _KEPT_BYTES:
            del self.kept[:-_KEPT_BYTES]
        if self.begins and self.marked_s is None:
            self._line += chunk
            *lines, rest = bytes(self._line).split(b"\n")
            if any(self.begins.search(line.decode(errors="replace")) for line in (*lines, rest)):
                self.marked_s = time.perf_counter()
            self._line = bytearray(rest[-_LINE_BYTES:])

    @property
    def text(self) -> str:
        """The end of what was printed."""
        return self.kept.decode(errors="replace")


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with the values in the place of their placeholders; other words in braces stay as they are."""
    return _WORD.sub(lambda found: str(values[found[1]]) if found[1] in values else found[0], text)


def printed(text: str, metric: str, matches: str) -> float:
    """Return the number that a program printed. Raises ProgramError where `metric` finds none."""
    found = re.findall(metric, text, re.MULTILINE)
    words = [each[0] if isinstance(each, tuple) else each for each in found]
    try:
        numbers = [float(word.replace(",", "")) for word in words]
    except ValueError as error:
        raise ProgramError(f"benchmark.metric={metric} found a word that is no number: {error}") from error
    if not numbers:
        raise ProgramError(f"benchmark.metric={metric} was not found in what the program printed")
    return numbers[-1] if matches == "last" else statistics.median(numbers)


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
    """Start the program's keeper. Raises DatasetError where data that are to be warm do not fit into the memory."""
    settings, folder = request["settings"], Path(request["dataset"])
    listed = manifest.load(Path(request["manifest"] or folder))
    sizes = data_files(folder, listed)
    if settings["cache"] == "warm":
        require_room(sum(sizes.values()))
    data = folder / listed.files[0].name if listed.parameters.get("file") else folder
    with tempfile.TemporaryDirectory(prefix="tfio-mark-") as held:
        program = _Program(settings, str(data), sizes, request.get("limit_s"), Path(held, "mark"))
        with closing(program):
            yield Work(program.measure, folder, list(sizes), list(sizes), sizes, may_write=True)


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


class _Program:
    """One run of a program: its keeper, what it prints, and what it read."""

    def __init__(
        self, settings: Settings, data: str, sizes: Mapping[Path, int], limit_s: float | None, marked: Path
    ) -> None:
        own = settings["benchmark"]
        values = {name: settings[name] for name in _PLACEHOLDERS if name in settings} | {_DATA: data}
        self._own, self._sizes, self._limit_s, self._marked = own, sizes, limit_s, marked
        self._argv = [filled(word, values) for word in own["argv"]]
        added = {name: filled(str(text), values) for name, text in own["environment"].items()}
        environment = {name: text for name, text in os.environ.items() if name not in _OURS}
        self._output = _Output(re.compile(own["begins"]) if own["begins"] else None)
        self._read, write = os.pipe()
        try:
            folder = own["workdir"] or str(Path.cwd())
            environment |= {**added, marks.VARIABLE: str(marked)}
            self._keeper = Keeper(self._argv, folder, environment, write)
        finally:
            os.close(write)

    def close(self) -> None:
        """End what is left of the program."""
        self._keeper.close()
        os.close(self._read)

    def measure(self, watched: AbstractContextManager[Any]) -> dict[str, Any]:
        """Run the program; the clock runs from its start to the end of the last process that it started."""
        with watched:
            began_s = time.perf_counter()
            self._keeper.begin()
            in_time = self._follow(began_s)
            wall_s = time.perf_counter() - began_s
            ended = self._keeper.wait()
        after = page_cache.residency(self._sizes)
        self._require_well(ended, in_time=in_time)
        marked_s = self._output.marked_s if self._own["begins"] else marks.first(self._marked)
        if self._own["begins"] and marked_s is None:
            raise ProgramError(
                f"no line that the program printed fits benchmark.begins={self._own['begins']}: nothing marks where the"
                " timed part begins; does it write its lines at once? (PYTHONUNBUFFERED=1, python -u)"
            )
        return {
            "wall_s": wall_s,
            "program_s": ended.program_s,
            "left_s": ended.left_s,
            "marked_s": None if marked_s is None else max(0.0, began_s + wall_s - marked_s),
            "runs_per_hour": 3600 / wall_s,
            **self._printed(),
            "data_bytes": sum(self._sizes.values()),
            "data_pages_bytes": after.pages * PAGE_BYTES,
            "data_in_memory_bytes": None if after.unverifiable else after.resident * PAGE_BYTES,
            "program": {
                "argv": self._argv,
                "cpus": len(os.sched_getaffinity(0)),
                "cpu_s": ended.cpu_s,
                "largest_bytes": ended.largest_bytes,
                "read_bytes": ended.read_bytes,
                "written_bytes": ended.written_bytes,
            },
        }

    def _printed(self) -> dict[str, float]:
        if not self._own["metric"]:
            return {}
        return {"printed": printed(self._output.text, self._own["metric"], self._own["matches"])}

    def _follow(self, began_s: float) -> bool:
        """Pass on what the program prints until all is over; returns False where its time was up before."""
        deadline_s = began_s + self._limit_s if self._limit_s else float("inf")
        reads, in_time = [self._read, self._keeper.answer], True
        while self._keeper.answer in reads:
            left_s = deadline_s - time.perf_counter() if in_time else float("inf")
            if left_s <= 0:
                self._keeper.stop()
                in_time = False
                continue
            ready, _, _ = select.select(reads, [], [], None if left_s == float("inf") else left_s)
            if self._read in ready and not self._take():
                reads.remove(self._read)
            elif self._keeper.answer in ready:
                break
        while self._read in reads and select.select([self._read], [], [], 0)[0] and self._take():
            pass
        return in_time

    def _take(self) -> bool:
        chunk = os.read(self._read, _CHUNK)
        self._output.take(chunk)
        return bool(chunk)

    def _require_well(self, ended: Ended, *, in_time: bool) -> None:
        name = self._argv[0]
        if ended.error:
            raise ProgramError(f"{name} cannot be started: {ended.error}")
        if ended.alive:
            raise ProgramError(
                f"cannot be ended, they wait for a storage that does not answer: {', '.join(ended.alive)}"
            )
        if not in_time:
            begun = "" if ended.exit is None else f" (the program itself had ended after {ended.program_s:.1f} s)"
            raise ProgramError(f"still running after run_timeout_s={self._limit_s:g}, ended with all it started{begun}")
        if ended.stopped:
            raise ProgramError(f"{name} was ended from outside")
        if ended.signal is not None:
            raise ProgramError(f"{name} was killed by signal {ended.signal}{_last(self._output.text)}")
        if ended.exit:
            raise ProgramError(f"{name} ended with exit code {ended.exit}{_last(self._output.text)}")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def _texts(own: Node) -> Sequence[str]:
    return [*own["argv"], *map(str, own["environment"].values())]


class _Command(Benchmark):
    """What depends on the program: only what it is told of the cell can change its result."""

    def figure_of(self, node: Node) -> Figure:
        return Figure("printed", node["unit"], node["better"]) if node["metric"] else self.figure

    def acting(self, point: Mapping[str, Any]) -> Settings:
        own = {**point["benchmark"]}
        own["workdir"] = str(Path(own["workdir"] or ".").expanduser().resolve())
        used = {name for text in _texts(own) for name in _WORD.findall(text)}
        idle = set(_PLACEHOLDERS) - used - {"cache"}
        return {name: value for name, value in super().acting({**point, "benchmark": own}).items() if name not in idle}

    def claim(self, settings: Settings) -> str:
        return str(settings["cache"])

    def refusal(self, values: Mapping[str, Any]) -> tuple[str, str] | None:
        argv = values["benchmark.argv"]
        if not argv or not argv[0].strip():
            return "benchmark=command has no program", "benchmark.argv=[python,train.py,--data,'{data}']"
        if values.get("storage.kind") == "s3":
            return "benchmark=command: a program reads files, and the storage has objects", "a storage with folders"
        environment = [str(each) for name, each in values.items() if name.startswith("benchmark.environment.")]
        for word in {word for text in (*argv, *environment) for word in _WORD.findall(text)}:
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
