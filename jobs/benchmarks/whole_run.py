"""The figures of a whole run of those of its ranks: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from jobs.benchmarks.benchmark import Benchmark
from jobs.model.results import Run
from jobs.ranks.hub import Seen

_SUMMED = (
    "images", "images_asked", "image_errors", "bytes_read", "bytes_written", "bytes_asked", "requests",
    "device_bytes", "written_bytes", "to_fetch_bytes", "listed_bytes", "changed_files", "linked_files", "cpu_s",
)  # fmt: skip
_PLACE = ("host", "node", "job", "cpus")  # of a rank alone
_JOINED = ("unreadable", "changed")
_RATES = {
    "images_per_s": ("images", 1.0),
    "read_mb_per_s": ("bytes_read", 1e6),
    "write_mb_per_s": ("bytes_written", 1e6),
}


def whole(benchmark: Benchmark, ranks: Sequence[Run], seen: Sequence[Seen]) -> Run:
    """Return what ranks did together: from when all were let begin until the last of them had ended.

    Counts are sums, rates are those over the whole time, and all else is of the rank that ended last. ``ranks`` holds
    each rank's own figures and what the hub saw of it; ``start_skew_s`` bounds how much later than the first one any of
    them began.
    """
    runs: Sequence[Mapping[str, Any]] = ranks
    last = max(range(len(runs)), key=lambda rank: runs[rank]["wall_s"])
    figures: dict[str, Any] = {key: value for key, value in runs[last].items() if key not in _PLACE}
    figures |= {key: _of_all(sum, [run.get(key) for run in runs]) for key in _SUMMED if key in figures}
    figures |= {key: [each for run in runs for each in run.get(key, ())] for key in _JOINED if key in figures}
    figures |= {key: _merged([run[key] for run in runs]) for key in ("conditions",) if key in figures}
    wall_s = figures["wall_s"]
    figures |= {key: figures[moved] / unit / wall_s for key, (moved, unit) in _RATES.items() if key in figures}
    figures |= benchmark.combined(ranks)
    return cast(
        "Run",
        {
            **figures,
            "straggler": last,
            "start_skew_s": _of_all(max, [each.left_s for each in seen]),
            "ranks": [_rank(rank, run, each) for rank, (run, each) in enumerate(zip(runs, seen, strict=True))],
        },
    )


def _rank(rank: int, run: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    own = {"rank": rank, "host": run.get("host"), "node": run.get("node")}
    return {**own, "left_s": seen.left_s, "clock_s": seen.clock_s, "ended_s": seen.ended_s, "figures": {**run}}


def _merged(values: Sequence[Any]) -> Any:
    """Return the conditions of all ranks as one: where they are not the same, each that one of them has."""
    if groups := [each for each in values if isinstance(each, dict)]:
        names = dict.fromkeys(name for group in groups for name in group)
        return {name: _merged([group.get(name, "unset") for group in groups]) for name in names}
    return values[0] if len({*values}) == 1 else " | ".join(sorted({*map(str, values)}))


def _of_all(make: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """Return what is made of all values; None where one of them is not known."""
    known = [value for value in values if value is not None]
    return make(known) if len(known) == len(values) else None
