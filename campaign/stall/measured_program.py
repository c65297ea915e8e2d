"""Describe the program that `stall` measures: the settings of its campaign, its data, and whether the data changed.

If the user does not name the data, a first run with preloaded hooks shows which files the program reads.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from campaign import console
from campaign.config.command_line import quote_literally
from campaign.console import count_noun
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from campaign.storage.unchanged import require_unchanged
from jobs.benchmarks import command, user_program
from jobs.data import manifest
from jobs.errors import DatasetError, ProgramError
from jobs.model.record import Record
from jobs.model.settings import Settings
from jobs.profiler import files_seen
from jobs.profiler.hook_library import ProfilerError
from jobs.system import files

COLD, WARM = "cold", "warm"
_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "opt", "proc", "run", "sbin", "sys", "usr")
_VARIABLE = Path("/var/lib"), Path("/var/cache")
CODE = (".py", ".pyc", ".pyi", ".so", ".pth", ".sh", ".ipynb")
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # names in the top folder of a Python environment
_PACKAGES = ("site-packages", "dist-packages", "__pycache__")
_DATA_OF_HOME = (".cache", ".keras")  # hidden folders of a home that contain data sets; other hidden folders do not
_FOLDERS_SHOWN = 8


@dataclass(frozen=True)
class MeasuredProgram:
    """The program to measure, and its data."""

    argv: Sequence[str]
    data: Path  # a folder or a file
    list_file: Path | None  # file with a list of the data files in `data`; None if all files in `data` are data
    start_pattern: str | None  # regular expression of the output line at which the timed part begins
    cold: bool  # whether there are only cold runs

    def campaign_arguments(self, runs: int, overrides: Sequence[str]) -> list[str]:
        """Return the arguments of the campaign, with `runs` measured runs for each state of the page cache.

        `overrides` are the user's own arguments, which take precedence.
        """
        words = {
            "benchmark": "command",
            "benchmark.argv": f"[{','.join(map(quote_literally, self.argv))}]",
            **({"benchmark.begins": quote_literally(self.start_pattern)} if self.start_pattern else {}),
            "dataset": "folder",
            "dataset.path": quote_literally(str(self.data)),
            **({"dataset.list": quote_literally(str(self.list_file))} if self.list_file else {}),
            "cache": COLD if self.cold else f"{COLD},{WARM}",
            "in_turn": "true",
            "warmup_runs": "1",
            "runs": str(runs + 1),
            "campaign_dir": "stall",
        }
        keys = {word.partition("=")[0] for word in overrides}
        return [*(f"{key}={value}" for key, value in words.items() if key not in keys), *overrides]

    def profiling_arguments(self, overrides: Sequence[str]) -> list[str]:
        """Return the arguments for one cold run that counts POSIX calls.

        This run is a separate cell, because the hooks that count calls cost time.
        """
        fixed = ("cache=cold", "runs=1", "warmup_runs=0", "profile.posix=counters")
        keys = {word.partition("=")[0] for word in fixed}
        return self.campaign_arguments(1, [*(word for word in overrides if word.partition("=")[0] not in keys), *fixed])


def find_data(settings: Settings, limit_s: float, *, sure: bool) -> list[Path]:
    """Run the program of a cell once to find its data files, ask the user whether the files are right, and return them.

    Raises CampaignError if the program fails or the user says no. Raises EnvironmentFaultError if the hooks cannot be
    preloaded. Raises UsageError if the program read no data, or if there is no terminal to ask on.
    """
    console.say("running the program once to find its data")
    with tempfile.TemporaryDirectory(prefix="tfio-files-") as path:
        folder = files.resolve_links(path)
        _run_with_hooks(settings, folder, limit_s)
        accessed = files_seen.read_files_seen(folder)
    if not accessed.processes:
        why = "the program took no hooks, so its files cannot be seen (is it linked statically, or is $TMPDIR full?)"
        raise UsageError(why, "name the data of the program: --data DIR")
    data_files = select_data_files(accessed.read - accessed.written, settings["benchmark"]["argv"])
    if not data_files:
        raise UsageError("the program read no files that may be data", "name the data of the program: --data DIR")
    for line in folder_table(data_files):
        console.say(line)
    answer = sure or console.ask_for_yes("are these the data of the program?")
    if answer is None:
        raise UsageError(
            "there is no terminal to ask whether these files are the data of the program",
            "accept them with --yes, or name the data with --data DIR",
        )
    if not answer:
        raise CampaignError("nothing was measured", "name the data of the program: --data DIR")
    return data_files


def _run_with_hooks(settings: Settings, folder: Path, limit_s: float) -> None:
    """Run the program of a cell once with the hooks that write the names of its files into `folder`."""
    try:
        hooks = files_seen.recording_environment(folder)
    except ProfilerError as error:
        raise EnvironmentFaultError(error.message, "name the data of the program: --data DIR") from error
    if any("{data}" in word for word in settings["benchmark"]["argv"]):
        why = "{data} in the program's arguments is replaced by the path of --data, which is missing"
        raise UsageError(why, "name the data of the program: --data DIR")
    benchmark, values = settings["benchmark"], command.placeholder_values(settings, "")
    with closing(user_program.ProgramRun(benchmark, values, limit_s, folder / "mark", **hooks)) as program:
        try:
            program.run()
            program.raise_failure()
        except ProgramError as error:
            raise CampaignError(
                f"the first run of the program failed: {error.message}", "see the output of the program above"
            ) from error


def select_data_files(read: Iterable[Path], argv: Sequence[str] = ()) -> list[Path]:
    """Return the files that may be data: files that are no code and lie outside system folders and environments."""
    programs = {files.resolve_links(word) for word in argv[:1]}
    resolved = {path.resolve() for path in read}
    return sorted(path for path in resolved - programs if path.is_file() and not _is_code_or_system_file(path))


def _is_code_or_system_file(path: Path) -> bool:
    parts, home = path.parts, Path.home().resolve()
    if parts[1] in _SYSTEM or any(path.is_relative_to(folder) for folder in _VARIABLE):
        return True
    if any(part in _PACKAGES for part in parts) or path.suffix in CODE or ".so." in path.name:
        return True
    below_home = path.relative_to(home).parts if path.is_relative_to(home) else ("",)
    if below_home[0].startswith(".") and below_home[0] not in _DATA_OF_HOME:
        return True
    return any((parent / name).exists() for parent in path.parents for name in _ENVIRONMENTS)


def folder_table(data_files: Sequence[Path]) -> list[str]:
    """Return a table of the folders of the data files, with number of files and MB, the largest folder first."""
    sizes, counts = Counter[Path](), Counter[Path]()
    for path in data_files:
        sizes[path.parent] += path.stat().st_size
        counts[path.parent] += 1
    rows = [
        [str(folder), count_noun(counts[folder], "file"), f"{size / 1e6:,.1f} MB"]
        for folder, size in sizes.most_common(_FOLDERS_SHOWN)
    ]
    more = len(sizes) - len(rows)
    total = f"in all {count_noun(len(data_files), 'file')}, {sum(sizes.values()) / 1e6:,.1f} MB"
    return [
        *console.format_table(rows, right=(1, 2)),
        *([f"… and {count_noun(more, 'folder')} more"] if more > 0 else []),
        total,
    ]


def write_list(data_files: Sequence[Path], list_file: Path) -> tuple[Path, Path]:
    """Write the names of files, relative to their common folder, to `list_file`; return that folder and `list_file`."""
    top = Path(os.path.commonpath([path.parent for path in data_files]))
    with files.write_whole(list_file, mode=0o600) as file:  # names of files may be confidential
        file.write(b"".join(os.fsencode(f"{path.relative_to(top)}\n") for path in data_files))
    return top, list_file


def files_below(paths: Sequence[Path]) -> list[Path]:
    """Return all files at and below the paths that a user names; raises UsageError if a path has no files."""
    return sorted({file.resolve() for path in paths for file in _files_at(path)})


def _files_at(path: Path) -> Iterator[Path]:
    try:
        top = manifest.manifest_root(path)
        yield from (top / entry.name for entry in manifest.scan_folder(path, any_kind=True).files)
    except DatasetError as error:
        raise UsageError(f"--data: {error.message}", error.hint) from error


def require_unchanged_program(recorded: Record) -> None:
    """Raise UsageError if the data, the storage or the program of a judged record changed after its runs began."""
    start_times = [run["started_utc"] for run in recorded["runs"] if run["status"] in ("valid", "invalid")]
    require_unchanged(recorded, _changed_program(recorded, min(start_times)) if start_times else ())


def _changed_program(recorded: Record, begun_utc: str) -> Iterator[str]:
    """Yield the program, and the scripts among its arguments, if their files changed after `begun_utc`."""
    benchmark = recorded["cell"]["settings"]["benchmark"]
    program, *arguments = benchmark["argv"]
    begun_s = dt.datetime.fromisoformat(begun_utc).timestamp()
    for word in (shutil.which(program) or program, *(word for word in arguments if word.endswith(CODE))):
        path = Path(benchmark["workdir"], word)
        if path.is_file() and path.stat().st_mtime > begun_s:
            yield word
