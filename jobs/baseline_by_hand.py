"""Run a baseline by hand, without Hydra, submitit or a campaign: one run, its figures as JSON on stdout."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import checks, run
from jobs.__main__ import count
from jobs.benchmarks import baseline
from jobs.benchmarks.engines import datafile, engine
from jobs.errors import DatasetError, EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, run once and print the run as JSON.

    Exit code 0 for a valid run, 1 for an invalid one, 2 for a folder that cannot be used, 3 for an engine that is
    missing or failed.
    """
    options = _parser().parse_args(argv)
    try:
        figures = run.execute(_request(options))
    except DatasetError as error:
        print(f"error: {error.message}\n\nhint: {error.hint}", file=sys.stderr)
        sys.exit(2)
    except EngineError as error:
        hint = "" if options.engine == engine.BUILTIN else "\n\nhint: --engine builtin needs no other program"
        print(f"error: {error}{hint}", file=sys.stderr)
        sys.exit(3)
    except OSError as error:
        print(f"error: {error}\n\nhint: name a folder on a storage that works", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(figures, indent=1))
    sys.exit(0 if figures["status"] == "valid" else 1)


def _request(options: argparse.Namespace) -> dict[str, Any]:
    """Return what a worker asks of a run; what is written goes with it."""
    settings = {**baseline.DEFAULTS, "threads": options.threads, "seed": options.seed}
    settings["benchmark"] = {key: getattr(options, key, value) for key, value in baseline.DEFAULTS["benchmark"].items()}
    size = datafile.whole_bytes(options.file_mb, options.transfer_mib)
    if not options.folder.is_dir():
        raise DatasetError(f"{options.folder} is no folder", "name one that is there, on the storage")
    folder = datafile.claimed(options.folder / datafile.FOLDER)
    file = folder / f"written-{os.getpid()}.bin"
    if options.access == "write":
        datafile.require_room(folder, size)
    else:
        file = datafile.made(folder, size, lambda *_: None)
    random = options.access == "random_read"
    block = datafile.whole_blocks(options.block_bytes, folder) if random else options.transfer_mib << 20
    return {
        "settings": settings,
        "limits": asdict(checks.Limits()),
        "trace": None,
        "baseline": {"file": str(file), "file_bytes": size, "block_bytes": block, "raw": None},
    }


def _parser() -> argparse.ArgumentParser:
    defaults = {**baseline.DEFAULTS, **baseline.DEFAULTS["benchmark"]}
    parser = argparse.ArgumentParser(
        prog="python -m jobs.benchmarks.baseline",
        description="Write or read one file once, past the page cache, and print the run's figures and checks as JSON.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="on the storage; the file lies in its folder `baseline`")
    parser.add_argument("--access", choices=engine.ACCESSES, help="what is done to the file")
    parser.add_argument("--engine", choices=engine.ENGINES, help="auto: IOR, else fio, else the built-in one")
    parser.add_argument("--file-mb", type=count, help="size of the file, rounded up to whole transfers")
    parser.add_argument("--transfer-mib", type=count, help="one request of read and write")
    parser.add_argument("--block-bytes", type=count, default=114_688, help="one request of random_read, rounded up")
    parser.add_argument("--threads", type=count, help="readers at once of random_read")
    parser.add_argument("--seconds-max", type=float, help="how long random_read reads at most")
    parser.add_argument("--seed", type=int, help="of the places of random_read")
    parser.set_defaults(**{key: defaults[key] for key in defaults if key not in ("benchmark", "name", "cache")})
    return parser
