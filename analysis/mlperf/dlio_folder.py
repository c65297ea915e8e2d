"""Read the output folder of a run of DLIO (versions 0.5 to 3.0), which is the program that MLPerf Storage runs.

The folder has these files:

- ``N_output.json``: the seconds of each step of rank N, by epoch and block;
- ``per_epoch_stats.json`` (of rank 0) or ``N_per_epoch_stats.json``: the start and end times of blocks;
- ``summary.json``: the published results;
- Hydra's configuration or ``*_metadata.json``: the settings.

The fields are documented by the source ``dlio_benchmark/utils/statscounter.py`` of argonne-lcf/dlio_benchmark @03b5ed3
and mlcommons/DLIO_local_changes @53c2fd3.

Ranks are read one after the other, and only sums of a rank stay in memory. The needed memory is thus only a few times
the size of the largest file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta
from numpy.typing import NDArray

from analysis.errors import AnalysisError
from jobs.model import reading
from jobs.model.reading import Amount, Count, Number, Word
from jobs.system import untrusted
from jobs.system.untrusted import MOST_BYTES_OF_JSON, UntrustedError

MOST_BYTES_OF_RANK = 1 << 28
MOST_STEPS = 1 << 22  # maximum number of steps in a block
MOST_NAMES = 200_000
MOST_EPOCHS = 100_000
MOST_SECONDS = 1e9
MOST_BYTES_OF_CONFIG = 1 << 20
CONFIG_FOLDERS = (".", ".hydra", "configs", "dlio_config")
CONFIG_FILES = ("overrides.yaml", "config.yaml")  # `config.yaml` has the final values, so it is read last
OF_BLOCK = (
    "rank", "epoch", "block", "steps", "counted", "load_s", "compute_s", "proc_s", "excluded_s", "least_s", "most_s",
    "own_au", "own_samples_per_s",
)  # fmt: skip
NO_FOLDER = "name the output folder of one run of DLIO, with its N_output.json, per_epoch_stats.json and summary.json"
DAMAGED = "download the file again, or remove it from the folder, so that it counts as missing"
_NUMBER = r"(0|[1-9]\d{0,5})"
_RANK, _STAMPS = re.compile(f"{_NUMBER}_output.json"), re.compile(f"(?:{_NUMBER}_)?per_epoch_stats.json")
_METADATA, _EPOCH = re.compile(r"\w*_metadata\.json"), re.compile(_NUMBER)
_BLOCK, _SAVED = re.compile(f"block{_NUMBER}"), re.compile(f"(save_)?ckpt{_NUMBER}")
# A line of YAML or of Hydra's overrides: `  name: value`, `- ++part.name=value` or `  name:`.
_SETTING = re.compile(r"( *)(?:- )?'?\+*([\w.]+)(?:[=:] *'?([^'\s]+)'?|:)\s*")
_Kind = TypeVar("_Kind")


class Metric(TypedDict, total=False):
    """The published metrics of the training in ``summary.json``."""

    train_au_percentage: Annotated[list[Number], Meta(max_length=MOST_EPOCHS)]
    train_au_mean_percentage: Number
    train_au_meet_expectation: Word
    train_throughput_mean_samples_per_second: Number


class Summary(TypedDict, total=False):
    """The content of ``summary.json``. All keys are optional."""

    start: Word
    end: Word
    num_accelerators: Annotated[int, Meta(ge=1, le=MOST_NAMES)]
    num_hosts: Count
    num_files_train: Count
    num_samples_per_file: Count
    metric: Metric


class _Span(TypedDict, total=False):
    start: Word
    end: Word
    duration: Word | Number


class _Epoch(msgspec.Struct):
    load: dict[str, msgspec.Raw]
    proc: dict[str, msgspec.Raw]
    compute: dict[str, msgspec.Raw]
    au: dict[str, Amount | list[float]] = {}
    throughput: dict[str, Amount | list[float]] = {}


@dataclass(frozen=True)
class DlioFolder:
    """The content of the output folder of a DLIO run."""

    path: Path
    summary: Summary
    settings: Mapping[str, str]
    """The settings of the run by the last two parts of their names, for example ``reader.batch_size``."""
    blocks: pd.DataFrame
    """A frame with one row per rank, epoch and block. A block consists of the steps between two checkpoints.

    The columns are:

    - `steps`: the number of all steps;
    - `counted`: the number of steps that count for the AU (accelerator utilization);
    - `load_s`, `compute_s`, `proc_s`: sums over the counted steps, in seconds. `proc_s` is the time from the start of
      loading until the batch is processed;
    - `slowest_s`: the sum of `proc_s` of the slowest rank in each step, NaN if ranks have different numbers of steps;
    - `excluded_s`: the sum of `proc_s` over the steps that do not count;
    - `least_s`, `most_s`: the shortest and the longest compute time of all steps;
    - `own_au`, `own_samples_per_s`: the AU and the samples/s that the rank published, NaN if the rank published none;
    - `wall_s`: the time from the first to the last time stamp of the block, NaN without time stamps;
    - `own_stamps`: whether these are time stamps of the rank itself. Otherwise the time stamps of rank 0 are used;
    - `checkpoints_s`: the time that rank 0 needed for checkpoints in this epoch and in the epoch before, because other
      ranks may begin a block while rank 0 still saves a checkpoint.
    """
    epochs_s: Mapping[int, float]
    """The duration of each epoch in seconds, measured by rank 0."""


class Stamps(NamedTuple):
    """The durations, in seconds, that follow from the time stamps of one rank.

    `epochs_s` has the duration of each epoch, `blocks_s` the duration of each block (by epoch and name), and
    `checkpoints_s` the sum of the durations of all checkpoints in an epoch.
    """

    epochs_s: dict[int, float]
    blocks_s: dict[tuple[int, str], float]
    checkpoints_s: dict[int, float]


def read_folder(path: Path) -> DlioFolder:
    """Return the content of the output folder of a DLIO run.

    Raises AnalysisError if the folder is not such a folder, or if a file is damaged.
    """
    with errors_with_path(path, NO_FOLDER):
        resolved_folder = path.resolve()
        names = sorted(each.name for each in islice(resolved_folder.iterdir(), MOST_NAMES + 1))
        ranks = {int(match[1]): resolved_folder / name for name in names if (match := _RANK.fullmatch(name))}
        if len(names) > MOST_NAMES or not (ranks or "summary.json" in names):
            raise UntrustedError("this is no output folder of DLIO: it has neither N_output.json nor summary.json")
    summary = read_json(resolved_folder / "summary.json", Summary) if "summary.json" in names else Summary()
    if (metric := summary.get("metric")) and not any(name.startswith("train_") for name in metric):
        raise AnalysisError(f"{path} trained nothing: it has {', '.join(metric)}", "name a folder of a training")
    stamps = {
        int(match[1] or 0): _stamps(resolved_folder / name) for name in names if (match := _STAMPS.fullmatch(name))
    }
    settings = dict(_settings(resolved_folder, filter(_METADATA.fullmatch, names)))
    with errors_with_path(path):
        excluded = [_whole(settings.get(f"metric.exclude_{end}_steps", n)) for end, n in (("start", "1"), ("end", "0"))]
    first = stamps[min(stamps)] if stamps else Stamps({}, {}, {})
    rows: list[dict[str, Any]] = []
    slowest: dict[tuple[int, str], NDArray[np.float64]] = {}
    for rank, file in sorted(ranks.items()):
        for row, proc in _blocks(rank, file, slice(excluded[0], -excluded[1] or None)):
            place = row["epoch"], row["block"]
            wall_s = stamps.get(rank, first).blocks_s.get(place, math.nan)
            saved_s = sum(first.checkpoints_s.get(epoch, 0) for epoch in (row["epoch"], row["epoch"] - 1))
            rows.append(row | {"wall_s": wall_s, "own_stamps": rank in stamps, "checkpoints_s": saved_s})
            known = slowest.setdefault(place, proc)
            slowest[place] = np.maximum(known, proc) if known.size == proc.size else np.array([math.nan])
    frame = pd.DataFrame(rows, columns=[*OF_BLOCK, "wall_s", "own_stamps", "checkpoints_s"])
    frame = frame.astype({"wall_s": float, "own_stamps": bool})
    frame["slowest_s"] = [slowest[row["epoch"], row["block"]].sum() for row in rows]
    return DlioFolder(path, summary, settings, frame, first.epochs_s)


@contextmanager
def errors_with_path(path: Path, hint: str = DAMAGED) -> Iterator[None]:
    """Raise AnalysisError, with the path and a hint, instead of an error about the content of a file or folder."""
    try:
        yield
    except (UntrustedError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise AnalysisError(f"{path}: {error}", hint) from error
    except OSError as error:
        raise AnalysisError(f"{path}: {error.strerror}", hint) from error


def read_json(path: Path, kind: type[_Kind]) -> _Kind:
    """Return the content of a small JSON file as an object of type `kind`.

    The JSON may contain NaN, because DLIO writes NaN for the mean of an empty list.
    """
    with errors_with_path(path):
        value = untrusted.json_value(untrusted.read_bounded(path, MOST_BYTES_OF_JSON), any_number=True)
        return reading.check_value(value, kind)


def _whole(text: str) -> int:
    if not re.fullmatch(_NUMBER, text):
        raise UntrustedError(f"the configuration excludes {text[:20]!r} steps from AU, which is no number of steps")
    return int(text)


def _stamps(path: Path) -> Stamps:
    stamps = Stamps({}, {}, {})
    for number, epoch in read_json(path, dict[str, dict[str, Any]]).items():
        with errors_with_path(path):
            if not _EPOCH.fullmatch(number):
                continue
            whole = reading.check_value(epoch, _Span)
            # The recorded duration is preferred to the end stamp, because version 3 writes the end stamp again after it
            # has started the workers of the next epoch.
            if seconds := _duration(whole) or seconds_from_start_to_end(whole):
                stamps.epochs_s[int(number)] = seconds
            for name in filter(_BLOCK.fullmatch, epoch):
                if seconds := seconds_from_start_to_end(reading.check_value(epoch[name], _Span)):
                    stamps.blocks_s[int(number), name] = seconds
            saved = [
                seconds_from_start_to_end(reading.check_value(epoch[name], _Span)) or 0
                for name in filter(_SAVED.fullmatch, epoch)
            ]
            stamps.checkpoints_s[int(number)] = sum(saved)
    return stamps


def seconds_from_start_to_end(span: Mapping[str, Any]) -> float | None:
    """Return the seconds from `start` to `end`, or None if `start` or `end` is missing.

    Raises UntrustedError if a value is no time, or if `end` is not after `start`.
    """
    if not {"start", "end"} <= span.keys():
        return None
    try:
        start, end = (datetime.fromisoformat(span[name]) for name in ("start", "end"))
        seconds = (end - start).total_seconds()
    except (ValueError, TypeError) as error:
        raise UntrustedError(f"{span['start'][:40]!r} and {span['end'][:40]!r} are no two times") from error
    if seconds <= 0:
        raise UntrustedError(f"an end time, {end}, is not after its start time, {start}")
    return seconds


def _duration(span: _Span) -> float | None:
    with suppress(KeyError, ValueError):
        return seconds if 0 < (seconds := float(span["duration"])) < MOST_SECONDS else None
    return None


def _blocks(rank: int, path: Path, counted: slice) -> Iterator[tuple[dict[str, Any], NDArray[np.float64]]]:
    """Yield for each block of a rank the row of `DlioFolder.blocks`, and the `proc` time of each counted step."""
    with errors_with_path(path):
        parts = msgspec.json.decode(untrusted.read_bounded(path, MOST_BYTES_OF_RANK), type=dict[str, msgspec.Raw])
        for number in filter(_EPOCH.fullmatch, parts):
            epoch = msgspec.json.decode(parts[number], type=_Epoch)
            for name in filter(_BLOCK.fullmatch, epoch.compute):
                times = [_seconds(part.get(name, b"[]")) for part in (epoch.load, epoch.compute, epoch.proc)]
                load, compute, proc = times
                if len({each.size for each in times}) > 1:
                    sizes = f"{load.size} / {proc.size} / {compute.size}"
                    raise UntrustedError(f"epoch {number}, {name} has {sizes} values of load / proc / compute")
                if proc[counted].size:
                    sums = [each[counted].sum() for each in times]
                    own = (each.get(name) for each in (epoch.au, epoch.throughput))
                    own = (each if isinstance(each, float) else math.nan for each in own)  # version 1: an empty list
                    yield dict(zip(OF_BLOCK, (
                        rank, int(number), name, proc.size, proc[counted].size, *sums, proc.sum() - sums[-1],
                        compute.min(), compute.max(), *own,
                    ), strict=True)), proc[counted]  # fmt: skip


def _seconds(text: msgspec.Raw | bytes) -> NDArray[np.float64]:
    text = bytes(text)
    if text.count(b",") >= MOST_STEPS:
        raise UntrustedError(f"a block has more than {MOST_STEPS:,} steps")
    seconds = np.array(msgspec.json.decode(text, type=list[float]))
    if seconds.size and not (seconds.min() >= 0 and seconds.max() <= MOST_SECONDS):
        raise UntrustedError(f"the file has a step of {min(seconds, key=lambda each: (each >= 0, -each)):g} s")
    return seconds


def _settings(resolved_folder: Path, metadata: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a run as pairs of a name and a value, where a name has the last two parts.

    If a name is yielded several times, the last value counts.
    """
    for name in metadata:
        values = read_json(resolved_folder / name, dict[str, Any])
        yield "workload", f"{values.get('model')}_{values.get('accelerator')}"
        yield from _flat(values.get("parameters"))
    for path in (resolved_folder / folder / name for name in CONFIG_FILES for folder in CONFIG_FOLDERS):
        if path.exists():
            yield from settings_of(path)


def _flat(value: Any, *names: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _flat(each, *names, name)
    else:
        yield ".".join(names[-2:]), str(value)


def settings_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings in a YAML file by OmegaConf, or in a file of Hydra's overrides (``- ++train.epochs=5``).

    A setting is a pair of a name, which has the last two parts, and a value.
    """
    with errors_with_path(path):
        text = untrusted.read_bounded(path, MOST_BYTES_OF_CONFIG).decode(errors="replace")
    above: list[tuple[int, str]] = []
    for match in filter(None, map(_SETTING.fullmatch, text.splitlines())):
        above = [*(each for each in above if each[0] < len(match[1])), (len(match[1]), match[2])]
        if match[3] is not None:
            yield ".".join(".".join(name for _, name in above).split(".")[-2:]), match[3]
