"""Run one benchmark by hand, without Hydra, submitit or a campaign: one run, its figures as JSON on stdout."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import checks, manifest, run

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(benchmark: str, argv: Sequence[str] | None = None) -> None:
    """Parse the command line of a benchmark, run it once and print the run as JSON.

    Exit code 0 for a valid run, 1 for an invalid one, 2 for a folder that holds no images.
    """
    options = _parser(benchmark).parse_args(argv)
    try:
        listing = manifest.scan(options.folder)
    except manifest.DatasetError as error:
        print(f"error: {error.message}\n\nhint: {error.hint}", file=sys.stderr)
        sys.exit(2)
    with tempfile.TemporaryDirectory(prefix="tfio-") as held:
        Path(held, manifest.MANIFEST_NAME).write_text(listing.to_json(), encoding="utf-8")
        request = {
            "settings": _settings(benchmark, options),
            "dataset": str(options.folder),
            "manifest": held,
            "limits": asdict(checks.Limits()),
        }
        figures = run.execute(request)
    print(json.dumps(figures, indent=1))
    sys.exit(0 if figures["status"] == "valid" else 1)


def _parser(benchmark: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m jobs.{benchmark}", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="images, JPEG and PNG")
    parser.add_argument("--threads", type=int, default=4, help="parallel calls of the map")
    parser.add_argument("--batch-size", type=int, default=64, help="images a batch")
    parser.add_argument("--prefetch", type=int, default=0, help="batches kept ready")
    parser.add_argument("--iterations", type=int, help="batches; without it each file once")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the files")
    parser.add_argument("--cache", choices=("cold", "warm", "as_is"), default="cold", help="state before the run")
    parser.add_argument("--read-only", action="store_true", help="no decode and resize (Fig 5)")
    parser.add_argument("--image-size", type=int, default=224, help="pixels after the resize")
    return parser


def _settings(benchmark: str, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "benchmark": {
            "name": benchmark,
            "preprocess": not options.read_only,
            "image_size": options.image_size,
            "ignore_errors": True,
            "autotune": False,
            "map_and_batch_fusion": False,
            "deterministic": True,
            "private_threads": None,
        },
        **{key: getattr(options, key) for key in ("threads", "batch_size", "prefetch", "iterations", "seed", "cache")},
    }
