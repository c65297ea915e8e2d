"""What `dstat --output` would have written of a run: bytes read and written each second, over its time."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.readable import AbsentError, UnreadableError, content
from jobs.model.values import MOST

BYTES_PER_MB = 10**6
# A day of samples each tenth of a second has 150 MB.
MOST_BYTES = 1 << 28
# Counters of a local device (dstat's own name), of Lustre's client and of an NFS mount.
STORAGE = ("dsk/", "llite/", "nfs/")
PROCESS, EPOCH = "process", ("epoch", "epoch")
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
    began_s: float  # Unix time at which `elapsed_s` is 0

    def mb_between(self, edges_s: Sequence[float]) -> NDArray[Any]:
        """Return the MB read between each two edges of Unix time, an even rate within an interval taken for granted."""
        spans, rates = self.samples["elapsed_s"].diff().fillna(0), self.samples["read_mb_per_s"].fillna(0)
        read = (spans * rates).cumsum()
        return np.diff(np.interp(np.asarray(edges_s) - self.began_s, self.samples["elapsed_s"], read))


def read(path: Path) -> Trace:
    """Return what was read, of a file of two header rows, group and column; a blank group is the one before it.

    Raises TraceError: the file is missing, or is no such trace.
    """
    with _told_in_words():
        table, place = _table(path)
        source, rate = _first_read(table, place)
        samples = _samples(table, place, read_mb_per_s=rate / BYTES_PER_MB)
        began = table[place[EPOCH]].astype("float64") - samples["elapsed_s"] if EPOCH in place else None
        return Trace(source, samples, 0.0 if began is None else float(began.iloc[0]))


def written(path: Path, source: str, images: Sequence[str] = ()) -> pd.DataFrame:
    """Return what was written by a counter, as `Trace.samples` but `written_mb_per_s`; raises as `read` does.

    Without what was written by the counters `images`, of devices that lie on that of `source`: so much of it, and what
    comes there later than it was counted above.
    """
    with _told_in_words():
        table, place = _table(path)
        rate, *above = (table[place[each, "writ"]].astype("float64") for each in (source, *images))
        spans = table[place["elapsed", "s"]].astype("float64").diff()
        if above:
            own = ((rate - sum(above)) * spans).cumsum().clip(lower=0).cummax()
            rate = (own.ffill().fillna(0).diff() / spans).where(rate.notna())
        return _samples(table, place, written_mb_per_s=rate / BYTES_PER_MB)


@contextmanager
def _told_in_words() -> Iterator[None]:
    try:
        yield
    except AbsentError as error:
        raise TraceError(MISSING) from error
    except (UnreadableError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise TraceError(UNREADABLE) from error


def _table(path: Path) -> tuple[pd.DataFrame, dict[tuple[str, str], int]]:
    """Return the rows of a trace, and the index of each column by (group, name)."""
    text = content(path, MOST_BYTES).decode()
    groups, names = itertools.islice(csv.reader(io.StringIO(text)), 2)
    columns = list(zip(pd.Series(groups).replace("", None).ffill(), names, strict=True))
    table = pd.read_csv(io.StringIO(text), skiprows=2, header=None, names=range(len(columns)), index_col=False)
    return table, {column: number for number, column in reversed([*enumerate(columns)])}


def _samples(table: pd.DataFrame, place: Mapping[tuple[str, str], int], **rates: pd.Series[float]) -> pd.DataFrame:
    elapsed = table[place["elapsed", "s"]].astype("float64")
    if len(elapsed) < 2 or not elapsed.is_monotonic_increasing:  # noqa: PLR2004 - an interval has two ends
        raise TraceError(SHORT)
    samples = pd.DataFrame({"elapsed_s": elapsed, **rates})
    if ((samples < 0) | (samples > MOST)).any(axis=None):
        raise TraceError(UNREADABLE)
    return samples.assign(phase=table[place["phase", "phase"]])


def _first_read(table: pd.DataFrame, place: dict[tuple[str, str], int]) -> tuple[str, pd.Series[float]]:
    """Return the counter of reads that is behind the dataset (it comes first), else the process's own."""
    storage = [group for group, name in place if name == "read" and group.startswith(STORAGE)]
    first = [min(storage, key=lambda group: place[group, "read"])] if storage else []
    for source in (*first, PROCESS):
        rate = table[place[source, "read"]].astype("float64")
        if rate.notna().any():
            return source, rate
    raise TraceError(WITHOUT_READS)
