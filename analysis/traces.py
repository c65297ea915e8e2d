"""What `dstat --output` would have written of a run: bytes read each second from the storage, over its time."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path

BYTES_PER_MB = 10**6
# Counters of a local device (dstat's own name), of Lustre's client and of an NFS mount.
STORAGE = ("dsk/", "llite/", "nfs/")
PROCESS = "process"
MISSING = "trace missing"
SPOILT = UNREADABLE, SHORT, WITHOUT_READS = "trace unreadable", "trace too short", "trace without reads"


class TraceError(Exception):
    """A trace cannot be drawn; `str()` says why in two or three words."""


@dataclass(frozen=True)
class Trace:
    """What a run read, a row per interval: `elapsed_s` at its end, `read_mb_per_s` (missing where unread), `phase`.

    `source` is the counter, the first of the storage's that could be read, else the process's own.
    """

    source: str
    samples: pd.DataFrame


def read(path: Path) -> Trace:
    """Return the trace in a file of two header rows, group and column; a blank group is the one before it.

    Raises
    ------
    TraceError
        If the file is missing, or is no such trace.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            groups, names, *_ = [*csv.reader(line for line, _ in zip(file, range(2), strict=False))]
        columns = list(zip(pd.Series(groups).replace("", None).ffill(), names, strict=True))
        table = pd.read_csv(path, skiprows=2, header=None, names=range(len(columns)), index_col=False)
        place = {column: number for number, column in reversed([*enumerate(columns)])}
        elapsed = table[place["elapsed", "s"]].astype("float64")
        source, rate = _first_read(table, place)
        samples = {"elapsed_s": elapsed, "read_mb_per_s": rate / BYTES_PER_MB, "phase": table[place["phase", "phase"]]}
    except OSError as error:
        raise TraceError(MISSING) from error
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(UNREADABLE) from error
    if len(elapsed) < 2 or not elapsed.is_monotonic_increasing:  # noqa: PLR2004 - an interval has two ends
        raise TraceError(SHORT)
    return Trace(source, pd.DataFrame(samples))


def _first_read(table: pd.DataFrame, place: dict[tuple[str, str], int]) -> tuple[str, pd.Series[float]]:
    """Return the counter of reads that is behind the dataset (it comes first), else the process's own."""
    storage = [group for group, name in place if name == "read" and group.startswith(STORAGE)]
    first = [min(storage, key=lambda group: place[group, "read"])] if storage else []
    for source in (*first, PROCESS):
        rate = table[place[source, "read"]].astype("float64")
        if rate.notna().any():
            return source, rate
    raise TraceError(WITHOUT_READS)
