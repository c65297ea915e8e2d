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

from jobs import checks, manifest, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(benchmark: str, argv: Sequence[str] | None = None) -> None:
    """Parse the command line of a benchmark, run it once and print the run as JSON.

    Exit code 0 for a valid run, 1 for an invalid one, 2 for a folder that holds no images.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as in a campaign
    defaults = copy.deepcopy(importlib.import_module(f"jobs.{benchmark}").DEFAULTS)
    options = _parser(benchmark, defaults).parse_args(argv)
    try:
        listing = manifest.scan(options.folder)
    except manifest.DatasetError as error:
        print(f"error: {error.message}\n\nhint: {error.hint}", file=sys.stderr)
        sys.exit(2)
    with tempfile.TemporaryDirectory(prefix="tfio-") as held:
        Path(held, manifest.MANIFEST_NAME).write_text(listing.to_json(), encoding="utf-8")
        request = {
            "settings": _settings(defaults, options),
            "dataset": str(options.folder),
            "manifest": held,
            "limits": asdict(checks.Limits()),
        }
        figures = run.execute(request)
    print(json.dumps(figures, indent=1))
    sys.exit(0 if figures["status"] == "valid" else 1)


def _parser(benchmark: str, defaults: Mapping[str, Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m jobs.{benchmark}",
        description="Run the benchmark once on a folder of images and print the run's figures and checks as JSON.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="images, JPEG and PNG")
    parser.add_argument("--threads", type=int, help="parallel calls of the map")
    parser.add_argument("--batch-size", type=int, help="images a batch")
    parser.add_argument("--prefetch", type=int, help="batches kept ready")
    parser.add_argument("--iterations", type=int, help="batches; without it each file once")
    parser.add_argument("--seed", type=int, help="of the order of the files")
    parser.add_argument("--cache", choices=("cold", "warm", "as_is"), help="state before the run")
    parser.add_argument("--read-only", action="store_true", help="no decode and resize (Fig 5)")
    parser.add_argument("--image-size", type=int, help="pixels after the resize")
    parser.set_defaults(image_size=defaults["benchmark"]["image_size"], **defaults)
    return parser


def _settings(defaults: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    chosen = {key: getattr(options, key) for key in defaults}
    chosen["benchmark"] |= {"preprocess": not options.read_only, "image_size": options.image_size}
    return chosen
