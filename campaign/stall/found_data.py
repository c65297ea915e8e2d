"""The data of a program that nobody has named: what a first run of it reads, seen by preloaded hooks."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from campaign import console
from campaign.console import counted
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from jobs.benchmarks import command
from jobs.benchmarks.user_program import Program
from jobs.data import manifest
from jobs.errors import DatasetError, ProgramError
from jobs.model.settings import Settings
from jobs.profiler import files_seen
from jobs.profiler.hook_library import ProfilerError
from jobs.system import files

_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "opt", "proc", "run", "sbin", "sys", "usr")
_VARIABLE = Path("/var/lib"), Path("/var/cache")
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth", ".sh", ".ipynb")
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # at the top of an environment of Python
_PACKAGES = ("site-packages", "dist-packages", "__pycache__")
_DATA_OF_HOME = (".cache", ".keras")  # hidden folders of a home that hold data sets; the others hold settings
_SHOWN = 8


def find(settings: Settings, limit_s: float, *, sure: bool) -> list[Path]:
    """Run the program of a cell once, say which files it read and ask whether these are its data.

    Raises CampaignError where the program fails or somebody says no, EnvironmentFaultError where nothing can be
    preloaded, UsageError where it read none and where nobody can be asked.
    """
    console.say("a first run of the program, to find its data")
    with tempfile.TemporaryDirectory(prefix="tfio-files-") as held:
        folder = Path(held).resolve()
        _run(settings, folder, limit_s)
        seen = files_seen.seen(folder)
    if not seen.processes:
        raise UsageError("the program took no hooks (is it linked statically?)", "--data DIR names what it reads")
    found = data_among(seen.read - seen.written, settings["benchmark"]["argv"])
    if not found:
        raise UsageError("the program read no files that may be data", "--data DIR names what it reads")
    for line in described(found):
        console.say(line)
    answer = sure or console.agreed("are these its data?")
    if answer is None:
        raise UsageError("nobody can be asked whether these are the data", "--yes takes them; --data DIR names others")
    if not answer:
        raise CampaignError("nothing was measured", "--data DIR names what the program reads")
    return found


def _run(settings: Settings, folder: Path, limit_s: float) -> None:
    try:
        hooks = files_seen.environment(folder)
    except ProfilerError as error:
        raise EnvironmentFaultError(error.message, "--data DIR names what the program reads") from error
    if any("{data}" in word for word in settings["benchmark"]["argv"]):
        raise UsageError("{data} in the program's words stands for --data, which is missing", "--data DIR")
    own, values = settings["benchmark"], command.values_of(settings, "")
    with closing(Program(own, values, limit_s, folder / "mark", **hooks)) as program:
        try:
            program.require_well(program.run())
        except ProgramError as error:
            raise CampaignError(f"the first run failed: {error.message}", "see what it printed, above") from error


def data_among(read: Iterable[Path], argv: Sequence[str] = ()) -> list[Path]:
    """Return the files that may be data: below no system folder and no environment of Python, and no code."""
    words = {Path(word).expanduser().resolve() for word in argv[:1]}
    resolved = {path.resolve() for path in read}
    return sorted(path for path in resolved - words if path.is_file() and not _is_of_the_machine(path))


def _is_of_the_machine(path: Path) -> bool:
    parts, home = path.parts, Path.home().resolve()
    if parts[1] in _SYSTEM or any(path.is_relative_to(each) for each in _VARIABLE):
        return True
    if any(part in _PACKAGES for part in parts) or path.suffix in _CODE or ".so." in path.name:
        return True
    below_home = path.relative_to(home).parts if path.is_relative_to(home) else ("",)
    if below_home[0].startswith(".") and below_home[0] not in _DATA_OF_HOME:
        return True
    return any((above / name).exists() for above in path.parents for name in _ENVIRONMENTS)


def described(found: Sequence[Path]) -> list[str]:
    """Return what was found: folders, files, bytes; the largest first."""
    sizes, counts = Counter[Path](), Counter[Path]()
    for path in found:
        sizes[path.parent] += path.stat().st_size
        counts[path.parent] += 1
    rows = [
        [str(folder), counted(counts[folder], "file"), f"{size / 1e6:,.1f} MB"]
        for folder, size in sizes.most_common(_SHOWN)
    ]
    more = len(sizes) - len(rows)
    total = f"in all {counted(len(found), 'file')}, {sum(sizes.values()) / 1e6:,.1f} MB"
    return [*console.table(rows, right=(1, 2)), *([f"… and {counted(more, 'folder')} more"] if more > 0 else []), total]


def listed(found: Sequence[Path], kept: Path) -> tuple[Path, Path]:
    """Write the list of files, each below the folder that holds them all; returns this folder and the list."""
    top = Path(os.path.commonpath([path.parent for path in found]))
    names = "".join(f"{path.relative_to(top)}\n" for path in found)
    files.write(kept, names)
    return top, kept


def named(paths: Sequence[Path]) -> list[Path]:
    """Return all files at and below paths that a user names. Raises UsageError where one has none."""
    return sorted({each.resolve() for path in paths for each in _below(path)})


def _below(path: Path) -> Iterator[Path]:
    try:
        top = manifest.top_of(path)
        yield from (top / entry.name for entry in manifest.scan(path, any_kind=True).files)
    except DatasetError as error:
        raise UsageError(f"--data: {error.message}", error.hint) from error
