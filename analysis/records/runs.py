"""Store the runs of a cell in little memory: all metrics in one array, and the facts that runs share in one object.

Equal parts of records (`shared_tuple`, `shared_mapping`) are one shared object in each process.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from jobs.events.tensorflow_trace import REMEDIES, SPENT
from jobs.model.results import Snapshot

STORAGE, TRAINING = "storage", "training"
HIGHER = "higher"
BETWEEN = " "
"""The separator between the names of several devices that hold the files of one storage."""
BYTES_READ, BYTES_WRITTEN = "read_mb_per_s", "write_mb_per_s"


class MainMetric(NamedTuple):
    """The kind and the main metric of a benchmark.

    `figure` is the name of the main metric in a run. `better` tells whether a higher or a lower value is better.
    """

    kind: str
    figure: str
    unit: str
    better: str


Part = TypeVar("Part")


class SharedTuple(tuple[Part, ...]):
    """A tuple of which a process has one object per content, so that the tuple can be hashed by identity."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a pickled form that another process unpickles as the shared tuple of that process."""
        return shared_tuple, (tuple(self),)


class SharedMapping(dict[str, Any]):
    """A constant mapping of which a process has one object per content, so that it can be hashed by identity."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a pickled form that another process unpickles as the shared mapping of that process."""
        return shared_mapping, (dict(self),)


def shared_tuple(values: Iterable[Part]) -> SharedTuple[Part]:
    """Return the shared tuple that has these values."""
    key = tuple(values)
    return _PARTS.get(key) or _PARTS.setdefault(key, SharedTuple(key))


def shared_mapping(facts: Mapping[str, Any]) -> SharedMapping:
    """Return the shared mapping that has these keys and values."""
    text = repr(facts)
    return _WORDS.get(text) or _WORDS.setdefault(text, SharedMapping(facts))


_PARTS: dict[tuple[Any, ...], SharedTuple[Any]] = {}
_WORDS: dict[str, SharedMapping] = {}


# Names of the raw metrics of a run, in the order of the record. One MB is 10^6 bytes, and times are in seconds.
COUNTS = ("images", "images_asked", "image_errors", "bytes_read", "device_bytes")
METRIC_NAMES = (
    "wall_s", "startup_s", "load_s", "compute_s", "checkpoint_s", "other_s", *COUNTS, "resident_fraction",
    "images_per_s", BYTES_READ, BYTES_WRITTEN,
)  # fmt: skip
FIGURES_TOGETHER = frozenset(METRIC_NAMES)
# Names of optional fields of a run whose values are texts.
WORDS = ("accelerator", "engine", "engine_version")
# Names of the times of a snapshot, in seconds. A run has the median of each time, for example `snapshot_blocked_s`.
OF_SNAPSHOT = tuple(name for name in Snapshot.__annotations__ if name.endswith("_s"))
# Names of the metrics of a POSIX profile. A run has these metrics with the prefix `posix_`, for example `posix_reads`.
# A run also has the number of reads in each size bin, for example `posix_read_size_0`.
OF_PROFILE = (
    "files", "opens", "reads", "writes", "stream_writes", "bytes_read", "bytes_written", "read_mb_per_s", "read_s",
    "write_s", "meta_s", "sequential", "consecutive",
)  # fmt: skip
PROFILE_SIZES = 10  # the number of size bins for reads
NUMBERS = frozenset({int, float})
TEXTS = (
    *WORDS[:1], "emulated", *WORDS[1:], "trace_file", "profile_file", "tensorflow_file", "source_only",
    "source_fast", "source_slow", "below_only", "below_fast", "below_slow",
)  # fmt: skip


class Check(NamedTuple):
    """The result of one check: the rule, whether the check passed, and the thresholds.

    `passed` is None if the check is unverifiable. `limits` has pairs of a threshold's name and value. If a rule has
    only one threshold, the name is `""`.
    """

    rule: str
    passed: bool | None
    limits: tuple[tuple[str, float], ...]


class Kind(NamedTuple):
    """The facts that most runs share, which are all facts except the run's number, metrics and start time.

    `cause` is a code for `reason`: the rule that the run broke, or the code with which the run ended. `names` has the
    names of the run's metrics.
    """

    role: str
    status: str
    reason: str
    cause: str
    checks: SharedTuple[Check]
    texts: SharedMapping
    names: SharedTuple[str]


class Run(NamedTuple):
    """One run of a cell, with the fields of `Kind` but without the arrays and long texts of the JSON record.

    `figures` has all metrics of the run by name. A metric that is null in the record is NaN here.
    """

    run: int
    role: str
    status: str
    reason: str
    cause: str
    checks: SharedTuple[Check]
    texts: Mapping[str, str]
    started_utc: str
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Runs(Sequence[Run]):
    """The runs of one cell, as a sequence of `Run`.

    `run`, `kinds` and `started_utc` have one item per run. `figures` has the metrics of all runs, run after run.
    """

    run: SharedTuple[int]
    kinds: SharedTuple[Kind]
    started_utc: tuple[str, ...]
    figures: array[float]

    def __len__(self) -> int:
        return len(self.kinds)

    def delete_metrics(self) -> None:
        """Delete the metrics, which use most of the memory of a record, after they were copied to the frame of runs."""
        del self.figures[:]

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a pickled form that is fast to write and read."""
        return Runs, (self.run, self.kinds, self.started_utc, self.figures)

    def __getitem__(self, place: Any) -> Any:
        """Return the run at the index `place`, which starts at 0."""
        kind = self.kinds[place]
        first = sum(len(each.names) for each in self.kinds[:place])
        figures = dict(zip(kind.names, self.figures[first : first + len(kind.names)], strict=True))
        facts = kind.role, kind.status, kind.reason, kind.cause, kind.checks, kind.texts
        return Run(self.run[place], *facts, self.started_utc[place], figures)


def shorten_runs(stored: Sequence[Mapping[str, Any]]) -> Runs:
    """Return judged runs of a JSON record as `Runs`, without arrays and long texts.

    A field that this program does not know is copied only if it is a number.
    """
    kinds, numbers = [], array("d")
    for run in stored:
        figures = _figures(run)
        numbers.extend(figures.values())
        facts = run["role"], run["status"], run.get("reason") or "", run.get("cause") or ""
        kinds.append(Kind(*facts, shorten_checks(run), _texts(run), shared_tuple(figures)))
    starts = tuple([run.get("started_utc") or "" for run in stored])
    return Runs(shared_tuple([run["run"] for run in stored]), shared_tuple(kinds), starts, numbers)


def _figures(run: Mapping[str, Any]) -> dict[str, float]:
    figures = {name: it for name, it in run.items() if type(it) in NUMBERS}
    figures |= dict.fromkeys(FIGURES_TOGETHER.difference(figures).intersection(run), math.nan)
    if run.get("checkpoints"):
        figures |= _snapshots(run["checkpoints"])
    if run.get("profile"):
        figures |= _posix(run["profile"])
    if tensorflow := run.get("tensorflow"):
        times = {name: tensorflow[name] for name in ("steps_s", "waited_s") if name in tensorflow}
        times |= {f"spent_{name}": it for name, it in tensorflow.get("spent_s", {}).items() if name in SPENT}
        times |= {f"saves_{name}": it for name, it in tensorflow.get("remedies_s", {}).items() if name in REMEDIES}
        figures |= {f"tensorflow_{name}": value for name, value in times.items()}
    del figures["run"]
    return figures


def _texts(run: Mapping[str, Any]) -> SharedMapping:
    texts = {name: run[name] for name in WORDS if run.get(name)}
    if file := (run.get("trace") or {}).get("file"):
        texts["trace_file"] = file
    if file := (run.get("profile") or {}).get("file"):
        texts["profile_file"] = file
    if file := (run.get("tensorflow") or {}).get("file"):
        texts["tensorflow_file"] = file
    for target in run.get("targets") or ():
        sources = {"source": target["source"], "below": BETWEEN.join(target.get("below") or ())}
        texts |= {f"{name}_{target['role']}": it for name, it in sources.items() if it}
    return shared_mapping(texts)


def _snapshots(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median of each time over the snapshots of a run. A snapshot without this time does not count.

    `drain_exposed_s` is the time for which the drain still copied snapshots, one by one, after the end of training.
    """
    values_of_name = {
        name: [it for line in lines if (it := line.get(name)) is not None] for name in (*OF_SNAPSHOT, "bytes")
    }
    medians = {f"snapshot_{name}": statistics.median(values) for name, values in values_of_name.items() if values}
    return medians | ({"drain_exposed_s": sum(values_of_name["exposed_s"])} if values_of_name["exposed_s"] else {})


def _posix(profile: Mapping[str, Any]) -> dict[str, float]:
    figures = {name: profile[name] for name in OF_PROFILE if profile.get(name) is not None}
    sizes = zip(range(PROFILE_SIZES), profile.get("read_sizes") or (), strict=False)
    figures |= {f"read_size_{place}": count for place, count in sizes}
    return {f"posix_{name}": value for name, value in figures.items()}


def shorten_checks(judged: Mapping[str, Any]) -> SharedTuple[Check]:
    """Return the checks of a judged run or cell as a shared tuple of `Check`."""
    checks = judged.get("checks") or ()
    limits = [limit if type(limit := check["limit"]) is not dict else tuple(limit.items()) for check in checks]
    key = tuple([(check["rule"], check["passed"], limit) for check, limit in zip(checks, limits, strict=True)])
    shared = _CHECKS.get(key)
    return shared or _CHECKS.setdefault(
        key, shared_tuple([Check(rule, passed, _limits(limit)) for rule, passed, limit in key])
    )


def _limits(limit: Any) -> tuple[tuple[str, float], ...]:
    named = limit if type(limit) is tuple else (("", limit),)
    return tuple([each for each in named if type(each[1]) in NUMBERS])


_CHECKS: dict[tuple[Any, ...], SharedTuple[Check]] = {}
