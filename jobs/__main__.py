"""Run one benchmark once without a campaign, and print its metrics and checks as JSON.

Exit codes: 0: the run is valid; 1: the run is invalid, or the program failed;
2: a folder cannot be used; 3: the GPU, the engine or the object store is
missing.

For example:

    python -m jobs micro FOLDER --threads 4
    python -m jobs micro FOLDER --profile calls.npz
    python -m analysis profile calls.npz
    python -m jobs baseline FOLDER --access read
    python -m jobs command FOLDER -- python train.py

To see the options of one benchmark: python -m jobs BENCHMARK --help
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jobs import run, steps
from jobs.benchmarks import accelerator, baseline, registry
from jobs.benchmarks.engines import datafile
from jobs.checkpoints.snapshots import store_of
from jobs.data import manifest
from jobs.errors import MORE_FILES, DatasetError, JobError
from jobs.events.posix_window import MODES
from jobs.judging.judge import judged_run
from jobs.model.conduct import Limits
from jobs.model.declared import DeclaredSetting, declared_defaults, declared_settings
from jobs.model.settings import BufferedCheckpoint, Checkpoint, Common, DirectCheckpoint
from jobs.parser import ProgramParser, exit_code_of
from jobs.system import files
from jobs.terminal import complain, open_streams

if TYPE_CHECKING:
    from jobs.benchmarks.benchmark import Benchmark
    from jobs.model.settings import Node, Settings
    from jobs.model.work import RunRequest, SnapshotRequest
    from jobs.store.bucket import Bucket
    from jobs.store.folder import Folder

_DRAIN_TIMEOUT_S = 600.0
_FOLDER = {
    "images": "folder with images (JPEG and PNG)",
    "files": "folder or file with your data",
    "hdf5": "folder with a data set that a campaign has generated, and with its manifest",
    "file": "folder on the storage; the file is in the sub-folder `baseline`",
    "nothing": "folder on the storage",
}


def positive_integer(text: str) -> int:
    """Return the whole number in a text; the number must be 1 or more."""
    if text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not 1 or more")


def _steps(text: str) -> str:
    steps.step_window(text)
    return text


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """A help formatter that shows the default of each option, unless the default is None or the option is a switch."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        unnamed = action.default is None or isinstance(action.default, bool)
        return action.help if unnamed else super()._get_help_string(action)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark that the command line names, and print the judged run.

    The docstring of this module lists the exit codes.
    """
    open_streams()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # the level that a campaign uses, too
    options = _parsed(argv)
    benchmark = registry.benchmarks()[options.benchmark]
    try:
        with _request(benchmark, options) as request:
            metrics = judged_run(run.execute(request), benchmark.page_cache(request["settings"]), Limits())
    except JobError as error:
        complain(error.message, error.hint)
        sys.exit(error.exit_code)
    except OSError as error:
        cure = MORE_FILES if error.errno == errno.EMFILE else "name a folder on a storage that works"
        complain(files.error_text(error), cure)
        sys.exit(2)
    print(json.dumps(metrics, indent=1))
    if metrics["reason"]:
        print(f"{metrics['status']}: {metrics['reason']}", file=sys.stderr)
    sys.exit(0 if metrics["status"] == "valid" else 1)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ProgramParser(
        prog="python -m jobs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, benchmark in registry.benchmarks().items():
        _add_options(
            names.add_parser(
                name,
                help=benchmark.about,
                description=f"Run this benchmark once, and print metrics and checks as JSON: {benchmark.about}.",
                formatter_class=_Help,
            ),
            benchmark,
        )
    words = list(sys.argv[1:] if argv is None else argv)
    before = words[: words.index("--")] if "--" in words else words
    options = parser.parse_args(before)
    if hasattr(options, "argv"):
        options.argv = words[len(before) + 1 :] or options.argv
        if not options.argv:
            parser.error("no program: python -m jobs command FOLDER -- PROGRAM ARGUMENTS")
    if getattr(options, "drain_to", None) and not options.save_to:
        parser.error("--drain-to needs --checkpoint, the folder from which snapshots are copied")
    return options


def _add_options(parser: argparse.ArgumentParser, benchmark: Benchmark) -> None:
    after = "; the program and its arguments follow after `--`" if "argv" in declared_settings(benchmark.keys) else ""
    parser.add_argument("folder", type=Path, help=_FOLDER[benchmark.data] + after)
    for name in benchmark.options:
        if not (name == "cache" and benchmark.data == "file"):
            _add_setting(parser, declared_settings(Common)[name])
    for name, declaration in declared_settings(benchmark.keys).items():
        if name != "name":
            _add_setting(parser, declaration)
    if benchmark.data == "file":
        parser.add_argument(
            "--block-bytes", type=positive_integer, default=114_688, help="size of a request of random_read, rounded up"
        )
    if benchmark.computes:
        _add_accelerator(parser, benchmark)
    if benchmark.saves:
        _add_snapshots(parser)
    if benchmark.kind in ("pipeline", "training"):
        parser.add_argument("--timelog", type=Path, help="file for the time log (python -m analysis timelog)")
    if "profile" in benchmark.settings:
        _add_profile(parser, benchmark)
    parser.set_defaults(**{name: benchmark.defaults[name] for name in benchmark.options})


def _add_profile(parser: argparse.ArgumentParser, benchmark: Benchmark) -> None:
    modes = ("counters",) if benchmark.kind == "program" else MODES
    parser.add_argument("--profile", type=Path, help="file for a profile of POSIX calls (python -m analysis profile)")
    parser.add_argument("--profile-mode", choices=modes, default=modes[0], help="record every call, or sums per file")
    if benchmark.kind != "program":
        parser.add_argument("--tensorflow", type=Path, help="file for the profile of TensorFlow's profiler")
        parser.add_argument(
            "--tensorflow-steps", type=_steps, default=steps.ALL, help="steps to profile, for example 5-15"
        )


def _add_setting(parser: argparse.ArgumentParser, declaration: DeclaredSetting) -> None:
    """Add an option for a setting; the option has the legal values that the setting has in a campaign."""
    help_text, default = declaration.setting.help, declaration.default
    text = f"{help_text} ({declaration.legal})" if declaration.bounds else help_text
    flag, text = f"--{declaration.name.replace('_', '-')}", text.replace("%", "%%")
    if declaration.scalar is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=text)
    elif declaration.words:
        parser.add_argument(flag, choices=declaration.words, default=default, help=text)
    else:
        parser.add_argument(flag, type=partial(_read, declaration), default=default, help=text)


def _read(declaration: DeclaredSetting, text: str) -> Any:
    try:
        return declaration.read(json.loads(text) if declaration.scalar is list or text == "null" else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} {'; '.join(map(str, error.args))}") from error


def _add_accelerator(parser: argparse.ArgumentParser, benchmark: Benchmark) -> None:
    names, default = ("auto", *accelerator.DEVICES), "emulated" if benchmark.emulates else "auto"
    parser.add_argument("--accelerator", dest="compute_on", choices=names, default=default, help="device that computes")
    step_s = benchmark.defaults["accelerator"]["step_s"] or 1.0
    parser.add_argument("--step-s", type=float, default=step_s, help="duration of an emulated step in seconds")


def _add_snapshots(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, dest="save_to", help="folder for snapshots, which stay there")
    about = (
        "slow storage to which the snapshots are copied (then --checkpoint is a burst buffer): a folder, or a bucket,"
        " https://HOST/BUCKET/PREFIX"
    )
    parser.add_argument("--drain-to", help=about)
    _add_setting(parser, declared_settings(Checkpoint)["every"])
    parser.add_argument("--background", action="store_true", help="continue training while a snapshot is saved")


@contextmanager
def _request(benchmark: Benchmark, options: argparse.Namespace) -> Iterator[RunRequest]:
    """Yield a request like the request of a worker; temporary files are removed at the end of the context."""
    folders = [str(target) for target in _snapshot_stores(options)]
    paths = {name: getattr(options, name, None) for name in ("profile", "tensorflow", "timelog")}
    outputs = {name: str(files.resolve_user_path(path)) if path else None for name, path in paths.items()}
    snapshots: SnapshotRequest = {"folders": folders, "drain_timeout_s": _DRAIN_TIMEOUT_S, "leave": True}
    request: RunRequest = {
        "settings": _settings(benchmark, options),
        "dataset": str(options.folder),
        "trace": None,
        "profile": outputs["profile"],
        "tensorflow": outputs["tensorflow"],
        "timelog": outputs["timelog"],
        "manifest": None,
        "checkpoint": snapshots if folders else None,
    }
    if benchmark.data == "file":
        yield _with_file(request, options)
    elif benchmark.data in ("images", "files"):
        listing = manifest.scan_folder(options.folder, any_kind=benchmark.any_kind)
        request["dataset"] = str(manifest.manifest_root(options.folder))
        with tempfile.TemporaryDirectory(prefix="tfio-") as folder:
            files.write_text(Path(folder, manifest.MANIFEST_NAME), listing.to_json())
            yield {**request, "manifest": folder}
    else:
        yield request


def _with_file(request: RunRequest, options: argparse.Namespace) -> RunRequest:
    if not options.folder.is_dir():
        raise DatasetError(f"{options.folder} is no folder", "name an existing folder on the storage")
    folder, settings = options.folder.resolve() / datafile.FOLDER, request["settings"]
    blocks = options.block_bytes if options.access == "random_read" else None
    to_read, size, block_bytes = baseline.prepare_file(settings, folder, blocks, lambda *_: None)
    file = to_read or folder / f"written-{os.getpid()}.bin"
    return {**request, "baseline": {"file": str(file), "file_bytes": size, "block_bytes": block_bytes, "raw": None}}


def _snapshot_stores(options: argparse.Namespace) -> list[Folder | Bucket]:
    """Return the folders and buckets for snapshots that the command line names."""
    names = (getattr(options, "save_to", None), getattr(options, "drain_to", None))
    return [store_of(name) for name in names if name]


def _settings(benchmark: Benchmark, options: argparse.Namespace) -> Settings:
    """Return the settings of the run from the command line, with defaults for missing settings."""
    chosen: Any = {name: getattr(options, name, default) for name, default in benchmark.defaults.items()}
    own = {name: getattr(options, name, default) for name, default in benchmark.defaults["benchmark"].items()}
    chosen["benchmark"] = own | {"name": benchmark.name}
    if benchmark.computes:
        chosen["accelerator"] = {"name": options.compute_on, "step_s": options.step_s}
    profile = {"posix": options.profile_mode} if getattr(options, "profile", None) else {}
    profile |= {"tensorflow": options.tensorflow_steps} if getattr(options, "tensorflow", None) else {}
    chosen |= {"profile": profile} if profile else {}
    if stores := _snapshot_stores(options):
        chosen["checkpoint"] = _checkpoint(stores, options)
    return cast("Settings", chosen)


def _checkpoint(stores: Sequence[Folder | Bucket], options: argparse.Namespace) -> Node:
    """Return the settings of the node `checkpoint`; the name of each storage is the name of its folder."""
    sides = [dict(zip(("root", "name"), str(each).partition("?")[0].rsplit("/", 1), strict=True)) for each in stores]
    words = {"every": options.every, "mode": "async" if options.background else "sync"}
    if len(sides) == 1:
        return {**declared_defaults(DirectCheckpoint), **sides[0], **words}
    fast, slow = sides
    return {**declared_defaults(BufferedCheckpoint), "name": "burst_buffer", "fast": fast, "slow": slow, **words}


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
