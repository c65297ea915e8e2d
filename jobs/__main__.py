"""Run one benchmark by hand, without Hydra, submitit or a campaign: one run, its figures as JSON on stdout."""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import checks, run
from jobs.benchmarks import accelerator
from jobs.checkpoints import run as checkpoint
from jobs.data import manifest
from jobs.errors import BurstBufferError, DatasetError, NoGpuError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DRAIN_TIMEOUT_S = 600.0


def main(benchmark: str, argv: Sequence[str] | None = None) -> None:
    """Parse the command line of a benchmark, run it once and print the run as JSON.

    Exit code 0 for a valid run, 1 for an invalid one, 2 for a folder that holds no images or cannot take snapshots, 3
    where the GPU that was asked for is missing.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as in a campaign
    defaults = copy.deepcopy(importlib.import_module(f"jobs.benchmarks.{benchmark}").DEFAULTS)
    parser = _parser(benchmark, defaults)
    options = parser.parse_args(argv)
    if getattr(options, "drain_to", None) and not options.save_to:
        parser.error("--drain-to needs --checkpoint: the folder that is drained")
    try:
        figures = _run(_settings(defaults, options), options.folder, _folders(options))
    except (DatasetError, NoGpuError, BurstBufferError) as error:
        print(f"error: {error.message}\n\nhint: {error.hint}", file=sys.stderr)
        sys.exit(3 if isinstance(error, NoGpuError) else 2)
    print(json.dumps(figures, indent=1))
    sys.exit(0 if figures["status"] == "valid" else 1)


def _run(settings: Mapping[str, Any], folder: Path, snapshots: Sequence[Path]) -> dict[str, Any]:
    listing = manifest.scan(folder)
    with tempfile.TemporaryDirectory(prefix="tfio-") as held:
        Path(held, manifest.MANIFEST_NAME).write_text(listing.to_json(), encoding="utf-8")
        request = {
            "settings": settings,
            "dataset": str(folder),
            "manifest": held,
            "limits": asdict(checks.Limits()),
            "trace": None,
            "checkpoint": _asked(snapshots) if snapshots else None,
        }
        return run.execute(request)


def _asked(folders: Sequence[Path]) -> dict[str, Any]:
    return {"folders": [str(folder) for folder in folders], "drain_timeout_s": _DRAIN_TIMEOUT_S, "leave": True}


def _folders(options: argparse.Namespace) -> list[Path]:
    """List the folders that snapshots go to; they stay there."""
    return [folder for folder in (getattr(options, "save_to", None), getattr(options, "drain_to", None)) if folder]


_READ_ONLY = "no decode and resize (Fig 5)%(default).0s"  # its default is that of what it takes away


def _parser(benchmark: str, defaults: Mapping[str, Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m jobs.{benchmark}",
        description="Run the benchmark once on a folder of images and print the run's figures and checks as JSON.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="images, JPEG and PNG")
    parser.add_argument("--threads", type=count, help="parallel calls of the map")
    parser.add_argument("--batch-size", type=count, help="images a batch")
    parser.add_argument("--prefetch", type=int, help="batches kept ready")
    parser.add_argument("--iterations", type=int, help="batches; without it each file once")
    parser.add_argument("--seed", type=int, help="of the order of the files")
    parser.add_argument("--cache", choices=("cold", "warm", "as_is"), help="state before the run")
    parser.add_argument("--image-size", type=int, help="pixels after the resize")
    if "preprocess" in defaults["benchmark"]:
        parser.add_argument("--read-only", dest="preprocess", action="store_false", help=_READ_ONLY)
    if "accelerator" in defaults:
        _add_training(parser)
    parser.set_defaults(**{key: value for key, value in defaults["benchmark"].items() if key != "name"}, **defaults)
    return parser


def count(text: str) -> int:
    """Read a number of which there is at least one."""
    if text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not 1 or more")


def _add_training(parser: argparse.ArgumentParser) -> None:
    names = ("auto", *accelerator.DEVICES)
    parser.add_argument("--accelerator", dest="compute_on", choices=names, default="auto", help="what computes")
    parser.add_argument("--step-s", type=float, default=1.0, help="seconds that an emulated step takes")
    parser.add_argument("--control", choices=("none", "no_io", "no_compute"), help="what is left out")
    parser.add_argument("--width", type=float, help="of the network, 1 as published")
    parser.add_argument("--prefetch-to-device", action="store_true", help="batches wait on the device")

    parser.add_argument("--checkpoint", type=Path, dest="save_to", help="folder for snapshots: each run adds its own")
    parser.add_argument("--drain-to", type=Path, help="folder on a slow storage: the other one is its burst buffer")
    parser.add_argument(
        "--every", type=count, default=checkpoint.DEFAULTS["every"], help="iterations between snapshots"
    )
    parser.add_argument("--background", action="store_true", help="train on while a copy is saved")


def _settings(defaults: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    chosen = {key: getattr(options, key) for key in defaults}
    chosen["benchmark"] = {key: getattr(options, key, value) for key, value in defaults["benchmark"].items()}
    if "accelerator" in defaults:
        chosen["accelerator"] = {"name": options.compute_on, "step_s": options.step_s}
    if folders := _folders(options):
        chosen["checkpoint"] = _checkpoint(folders, options)
    return chosen


def _checkpoint(folders: Sequence[Path], options: argparse.Namespace) -> dict[str, Any]:
    """Return the node of a target; its storages are called as the folders are."""
    sides = [{"name": folder.name, "root": str(folder.parent)} for folder in folders]
    words = {"every": options.every, "mode": "async" if options.background else "sync"}
    if len(sides) == 1:
        return {**checkpoint.DEFAULTS, **sides[0], **words}
    fast, slow = sides
    return {"name": "burst_buffer", "fast": fast, "slow": slow, **checkpoint.DEFAULTS_BUFFERED, **words}
