"""The engine IOR, one process of it: its command line, and its figures.

IOR prints its JSON piece by piece, and versions of it have left out brackets, put other lines in between, and printed
pieces after the end (hpc/ior issues 102, 233, 503). The objects that hold its results are small and whole in all of
them; so these are read, and not the document around them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jobs.benchmarks.engines import engine, external
from jobs.benchmarks.engines.engine import Order, Outcome
from jobs.errors import EngineError

_MIB = 1 << 20
_INNERMOST = re.compile(r"\{[^{}]*\}")
_VERSION = re.compile(r'(?:"Version": "|\bIOR-)(?P<version>\d[^\s:"]*)')
_PARTS = {"openTime": "open_s", "wrRdTime": "transfer_s", "closeTime": "close_s"}


def command(order: Order) -> list[str]:
    """Return IOR's command line (IOR 3.3 and later): one task, one block, the file kept."""
    sizes = ["-b", str(order.file_bytes), "-t", str(order.block_bytes)]
    direct = ["--posix.odirect"] if order.direct else []
    # -e: the flush is part of the time. -E: the file is there, and is not to be made.
    access = ["-w", "-e"] if order.access == "write" else ["-r", "-E"]
    return [
        "ior", "-a", "POSIX", *access, "-k", "-i", "1", *sizes, *direct,
        "-o", order.file.name, "-O", "summaryFormat=JSON",
    ]  # fmt: skip


def outcome(answer: str, order: Order) -> Outcome:
    """Read IOR's answer; raises EngineError where it has not one whole result of the access."""
    texts = _INNERMOST.findall(answer)
    results = [each for text in texts for each in external.documents(text)]
    found = [each for each in results if each.get("access") == order.access and "bwMiB" in each]
    if len(found) != 1:
        raise EngineError(f"it gave {len(found)} results" if found else "it gave no whole result")
    version = _VERSION.search(answer)
    return _outcome(found[0], order, f"IOR-{version['version']}" if version else engine.UNKNOWN)


def _outcome(result: Mapping[str, Any], order: Order, version: str) -> Outcome:
    """Take one result apart; it names no bytes, so its rate over its time must be those that were asked for."""
    wall_s, rate = external.number(result, "totalTime"), external.number(result, "bwMiB") * _MIB
    parts = {ours: external.number(result, theirs) for theirs, ours in _PARTS.items()}
    requests = order.file_bytes // order.block_bytes
    return Outcome(order.file_bytes, requests, wall_s, version, parts, rate)
