"""Compare cold and warm runs of a program, count the POSIX calls of a profiled run, and put the results into words."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from campaign import console
from campaign.cells.cell import Cell
from campaign.cells.verdicts import Verdicts
from campaign.console import count_noun
from campaign.stall.measured_program import COLD, WARM
from jobs import disturbances
from jobs.judging import intervals, stopping
from jobs.judging.bound import SATURATED, UNDECIDED, Bound
from jobs.judging.intervals import MedianDifference, median_difference
from jobs.model.conduct import Limits
from jobs.model.record import Record
from jobs.model.results import Calls, Run
from jobs.model.settings import Settings

PROOFS = ("cold", "device_bytes", "reads_data", "same_data")
"""The checks that prove whether a run was cold."""
_PAST_THE_CACHE = "from_memory"  # the check that fails if a warm run reads from the device
_EQUAL = 0.1  # share by which bytes from the disk and bytes in memory may differ, for pages of other files
_MB = 1e6
_SMALL = (1, 3)  # number of Darshan's size bins up to 100 B, and up to 10 KiB (`jobs.events.posix_window.SIZES`)


@dataclass(frozen=True)
class CacheMedians:
    """The medians over the valid measured runs with one state of the page cache (cold or warm)."""

    cache: str
    runs: int
    wall_s: tuple[float, float, float]  # median, minimum, maximum
    marked_s: tuple[float, float, float] | None  # the same values of the timed part; None if no part is marked
    disk_bytes: float  # bytes read from the disk
    cores: float  # busy processors
    cpus: int  # processors that the program may use
    io_pressure: float | None  # share of the time in which a task waited for I/O; None if unknown


@dataclass(frozen=True)
class ColdWarmComparison:
    """The comparison of a program with its data cold and warm."""

    name: str
    cold: CacheMedians | None
    warm: CacheMedians | None
    whole: MedianDifference | None
    timed_part: MedianDifference | None  # difference of the timed part
    data_bytes: int
    # Bytes of the data that a cold run reads once from the disk and that stay in memory. None if unknown: the program
    # read other bytes from the disk too, or its reads left no pages in memory.
    first_read_bytes: float | None
    warm_bound: Bound | None = None  # what bounds the warm runs
    why_not: str = ""  # why the cold or the warm runs are too few valid runs; empty if both suffice
    said: tuple[str, ...] = ()  # an exit code other than 0 of all runs, and a limit on I/O that cold runs reached

    @property
    def decisive_difference(self) -> MedianDifference | None:
        """The difference of the timed part if a part is marked, else the difference of the whole runtime."""
        return self.timed_part or self.whole

    @property
    def costs(self) -> bool | None:
        """Whether the runs show that waiting for the storage costs time; None if the runs are too few to tell."""
        if self.decisive_difference is None or self.decisive_difference.interval_s is None:
            return None
        return self.decisive_difference.decided and self.decisive_difference.seconds > 0

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain values, with computed seconds, shares and decisions."""
        values = asdict(self)
        for name in ("whole", "timed_part"):
            if (change := getattr(self, name)) is not None:
                values[name] |= {"seconds": change.seconds, "share": change.share, "decided": change.decided}
        return values | {"warm_bound": self.warm_bound and self.warm_bound.as_json}


def compare_records(
    name: str, cold: Record | None, warm: Record | None, warm_bound: Bound | None = None
) -> ColdWarmComparison:
    """Compare the judged records of the cold and the warm cell, each None if there is no record.

    `warm_bound` is what bounds the warm runs.
    """
    codes = {cache: _exit_codes(recorded) for cache, recorded in ((COLD, cold), (WARM, warm)) if recorded}
    differ = len(set().union(*codes.values())) > 1
    pairs = stopping.pairs_of_turns(cold, warm) if cold and warm and not differ else []
    marked = [(cold_run["marked_s"], warm_run["marked_s"]) for cold_run, warm_run in pairs]
    runs = stopping.measured_runs(cold, "valid") if cold else []
    return ColdWarmComparison(
        name,
        _side(COLD, cold),
        _side(WARM, warm),
        median_difference([(cold_run["wall_s"], warm_run["wall_s"]) for cold_run, warm_run in pairs]),
        None if any(None in pair for pair in marked) else median_difference(marked),  # type: ignore[arg-type] # none is None
        max((run["data_bytes"] for run in runs), default=0),
        _first_read_bytes(runs),
        warm_bound,
        f"exit codes differ: {codes}" if differ else _why_not(cold, warm),
        tuple(_said(runs, codes)),
    )


def _exit_codes(recorded: Record) -> set[int]:
    """Return the exit codes of the measured runs that count."""
    return {run["program"].get("exit") or 0 for run in stopping.measured_runs(recorded, "valid")}


def _said(cold_runs: Sequence[Run], codes: Mapping[str, set[int]]) -> Iterator[str]:
    """Yield what the reader of the numbers must know about the program and the machine."""
    if (all_codes := set().union(*codes.values())) - {0} and len(all_codes) == 1:
        yield f"the program ended with exit code {all_codes.pop()} in every run"
    nearest = max(filter(None, map(disturbances.nearest_limit, cold_runs)), default=(0.0, ""))
    if nearest[0] > Limits().io_limit_max:
        yield f"a limit on I/O is part of this machine: {nearest[1]}"


def _first_read_bytes(runs: Sequence[Run]) -> float | None:
    """Return the bytes of the data that cold runs left in memory, if the runs read about as many from the disk."""
    pairs = [(run["data_in_memory_bytes"], run["device_bytes"]) for run in runs]
    if not pairs or any(None in pair for pair in pairs):
        return None
    loaded_bytes, disk_bytes = (float(statistics.median(side)) for side in zip(*pairs, strict=True))
    if abs(disk_bytes - loaded_bytes) > _EQUAL * loaded_bytes:
        return None
    return min(loaded_bytes, runs[0]["data_bytes"])


def _why_not(cold: Record | None, warm: Record | None) -> str:
    """Return why the cold and the warm cell are not done; an empty string if both cells are done."""
    reasons = [
        f"{cache}: {reason}"
        for cache, recorded in ((COLD, cold), (WARM, warm))
        if recorded and recorded["status"] != "done" and (reason := recorded.get("reason"))
    ]
    if warm and warm.get("cause") == _PAST_THE_CACHE:
        reasons.append("a program that reads past the page cache (O_DIRECT) has no warm runs: measure it with --cold")
    return "; ".join(reasons)


def _side(cache: str, recorded: Record | None) -> CacheMedians | None:
    runs = stopping.measured_runs(recorded, "valid") if recorded else []
    if not runs:
        return None
    marked = [run["marked_s"] for run in runs if run["marked_s"] is not None]
    pressures = [waited_s / run["elapsed_s"] for run in runs if (waited_s := run.get("io_pressure_s")) is not None]
    return CacheMedians(
        cache,
        len(runs),
        _spread([run["wall_s"] for run in runs]),
        _spread(marked) if len(marked) == len(runs) else None,
        statistics.median(run["device_bytes"] or 0 for run in runs),
        statistics.median(run["program"]["cpu_s"] / run["wall_s"] for run in runs),
        max(run["program"]["cpus"] for run in runs),
        min(1.0, statistics.median(pressures)) if pressures else None,
    )


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)


def lines_of_outcome(outcome: ColdWarmComparison, within: float | None = None) -> list[str]:
    """Return the lines that `stall` prints for a comparison: a table and sentences.

    `within` is the half width of the interval of the share that the user asked for (``--within``).
    """
    sides = [side for side in (outcome.cold, outcome.warm) if side]
    head = [outcome.name, "runtime", "min–max", "from the disk", "processors"]  # noqa: RUF001 - as in tables
    rows = [head, *(_row(side, side.wall_s, "") for side in sides)]
    rows += [_row(side, side.marked_s, ", timed part") for side in sides if side.marked_s]
    sentences = sentences_on_outcome(outcome)
    difference = outcome.decisive_difference
    if within is not None and difference and difference.share_interval and not difference.is_within(within):
        half = (difference.share_interval[1] - difference.share_interval[0]) / 2
        sentences.append(f"the share is known to ±{half:.1%}, not to ±{within:.1%}: --most N allows more runs")
    return [*console.format_table(rows, right=(1, 2, 3, 4)), *sentences]


def _row(side: CacheMedians, times_s: tuple[float, float, float], part: str) -> list[str]:
    name = f"{side.cache}, {count_noun(side.runs, 'run')}{part}"
    times = [f"{times_s[0]:.3g} s", f"{times_s[1]:.3g}–{times_s[2]:.3g}"]  # noqa: RUF001
    usage = [f"{side.disk_bytes / _MB:.0f} MB", f"{side.cores:.1f} of {side.cpus}"]
    return [name, *times, *(["", ""] if part else usage)]


def sentences_on_outcome(outcome: ColdWarmComparison) -> list[str]:
    """Return the sentences that say what the numbers of a comparison mean."""
    if not outcome.whole or not outcome.cold or not outcome.warm:
        return ["too few valid pairs of a cold and a warm run for an answer", *filter(None, [outcome.why_not])]
    rest = _rest(outcome.warm_bound, outcome.warm)
    sentences = [_cost(outcome.whole, "the runtime") + (f"; {rest}" if rest else "")]
    if outcome.timed_part:
        sentences.append(f"in the timed part: {_cost(outcome.timed_part, 'this part')}")
    if outcome.first_read_bytes is not None and outcome.data_bytes:
        read_mb, data_mb = outcome.first_read_bytes / _MB, outcome.data_bytes / _MB
        first_read = f"{read_mb:.0f} of {data_mb:.0f} MB of the data were read from the disk once"
        sentences.append(f"{first_read}; later reads come from memory, so with more epochs the share is smaller")
    pressures = [outcome.cold.io_pressure, outcome.warm.io_pressure]
    if None not in pressures:
        cold, warm = (f"{share:.0%}" for share in pressures)
        sentences.append(
            f"by the kernel's I/O pressure, a process waited for I/O in {cold} of the time of cold runs, and in {warm}"
            " of warm runs"
        )
    return [*sentences, *outcome.said, *filter(None, [outcome.why_not])]


def _cost(cost: MedianDifference, whole: str) -> str:
    if cost.share_interval is None or cost.interval_s is None:
        needed = f"valid pairs: {cost.pairs}; an interval needs {intervals.FEWEST_RUNS}"
        if cost.seconds < 0:
            return f"no waiting for storage was seen: the cold runs were {-cost.seconds:.2g} s faster ({needed})"
        return f"waiting for storage costs {cost.seconds:.2g} s, {cost.share:.0%} of {whole} ({needed})"
    low, high = cost.share_interval
    if not cost.decided:
        return (
            f"no difference that {cost.pairs} runs can show: {cost.seconds:+.2g} s, {cost.share:.0%} of {whole}"
            f" ({low:.0%} to {high:.0%})"
        )
    if cost.seconds < 0:
        return (
            f"the cold runs were {-cost.seconds:.3g} s faster ({low:.0%} to {high:.0%} of {whole}): something else"
            " differs"
        )
    return (
        f"waiting for storage costs {cost.seconds:.3g} s, {cost.share:.0%} of {whole}"
        f" ({max(0.0, low):.0%} to {min(1.0, high):.0%})"
    )


def _rest(bound: Bound | None, warm: CacheMedians) -> str:
    """Return in words what limits the warm runs, and so the part of the runtime that does not wait for storage.

    The text is empty if nothing is known. Numbers of the device are left out, because the runtime of cold runs stands
    beside them.
    """
    if SATURATED <= warm.cores <= 2 - SATURATED and warm.cpus > 1:
        return f"the rest is bound by one thread ({warm.cores:.1f} of {warm.cpus} processors)"
    if bound is None or bound.word == UNDECIDED:
        return ""
    busy = f" ({warm.cores:.1f} of {warm.cpus} processors busy)" if bound.word == "processors" else ""
    return f"the rest is bound by {bound.word}{busy}"


def compare_cells(cells: Sequence[Cell], verdicts: Verdicts, name: str) -> list[ColdWarmComparison]:
    """Return one comparison for each pair of cells that differ only in the state of the page cache."""
    by_settings: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        others = {key: value for key, value in cell.settings.items() if key != "cache"}
        by_settings.setdefault(repr(others), {})[str(cell.settings["cache"])] = cell
    outcomes = []
    for cell_of_cache in by_settings.values():
        records = {cache: verdicts.read(verdicts.folder.record(cell.id))[0] for cache, cell in cell_of_cache.items()}
        swept = name_of_swept(next(iter(cell_of_cache.values())).settings) if len(by_settings) > 1 else ""
        warm = records.get(WARM)
        outcomes.append(compare_records(name + swept, records.get(COLD), warm, verdicts.bound(warm) if warm else None))
    return outcomes


def name_of_swept(settings: Settings) -> str:
    """Return a name that distinguishes a cell in a sweep: all settings whose values are numbers or texts."""
    values = {key: value for key, value in settings.items() if isinstance(value, int | str) and key != "cache"}
    return "".join(f" {key}={value}" for key, value in values.items())


def cold_runs(recorded: Record) -> list[dict[str, Any]]:
    """Return for each measured run of a judged record whether the run was cold, or why not, its runtime and bytes."""
    return [
        {**_proof(run), "run": run["run"], "wall_s": run.get("wall_s"), "disk_bytes": run.get("device_bytes")}
        for run in stopping.measured_runs(recorded)
    ]


def cold_lines(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table of `cold_runs`."""
    rows = [[name, "runtime", "from the disk", "cold", ""]]
    for run in runs:
        runtime = "" if run["wall_s"] is None else f"{run['wall_s']:.3g} s"
        disk = "" if run["disk_bytes"] is None else f"{run['disk_bytes'] / _MB:.1f} MB"
        rows.append([f"run {run['run']}", runtime, disk, "yes" if run["cold"] else "NO", run["why"]])
    return console.format_table(rows, right=(1, 2))


def _proof(run: Run) -> dict[str, Any]:
    """Return whether a run is proved to be cold, and which checks failed or could not be decided."""
    if run["status"] == "failed":
        return {"cold": False, "why": str(run["reason"])}
    checks = [check for check in run["checks"] if check["rule"] in PROOFS]
    failed = [f"{check['rule']}: {check['message']}" for check in checks if check["passed"] is False]
    unknown = [f"{check['rule']} is unverifiable" for check in checks if check["passed"] is None]
    is_proved = any(check["passed"] for check in checks if check["rule"] in PROOFS[:2])
    return {"cold": is_proved and not failed, "why": "; ".join(failed or unknown)}


def totals_of_calls(recorded: Record) -> list[Calls]:
    """Return the number of POSIX calls of each valid profiled run of a judged record."""
    return [run["profile"] for run in stopping.measured_runs(recorded, "valid") if "profile" in run]


def lines_on_calls(recorded: Record, campaign: Path, *, name: str = "", waits: bool | None = True) -> Iterator[str]:
    """Yield lines on the POSIX calls of a judged record's profiled run, and the command that plans staged copies.

    `waits` says whether the program waits for its storage, and None means that this is not known. The command is left
    out if the program does not wait. `name` distinguishes the cells of a sweep.
    """
    if not (totals := totals_of_calls(recorded)):
        yield f"the calls are not known: {recorded.get('reason') or 'the profiled run failed'}"
        return
    calls, reads = totals[0], totals[0]["reads"]
    loaded_bytes = stopping.measured_runs(recorded, "valid")[0]["data_in_memory_bytes"]
    loaded = "" if loaded_bytes is None else f" for {loaded_bytes / 1e6:.0f} MB that came into memory"
    opens = f"{count_noun(calls['opens'], 'open')} of {count_noun(calls['files'], 'file')} of the data"
    yield (
        f"calls in one more cold run{name}: {opens}, "
        f"{count_noun(reads, 'read')} of {calls['bytes_read'] / 1e6:.0f} MB{loaded}"
    )
    if not reads:
        yield "no read was seen: the program may map its files into memory, or may be linked statically"
        return
    tiny, small = (sum(calls["read_sizes"][:bins]) / reads for bins in _SMALL)
    yield f"small reads: {small:.0%} gave at most 10 KiB, {tiny:.0%} at most 100 B (such as the last read of a file)"
    if calls["sequential"] is not None and calls["consecutive"] is not None:
        ahead, consecutive = calls["sequential"] - calls["consecutive"], calls["consecutive"]
        yield (
            f"order of reads: {consecutive:.0%} continue where the last read ended, {ahead:.0%} skip ahead, all others"
            " start again or go back"
        )
    yield f"time of all threads in reads: {calls['read_s']:.2f} s, in opening and closing: {calls['meta_s']:.2f} s"
    if waits is None:
        yield "whether the program waits for storage is not known: too few runs count"
    if waits is False:
        yield "the runs do not show that the program waits for storage, so a faster storage would not help"
        return
    words = ["python", "-m", "campaign", "stage", "plan", str(campaign), "--only", recorded["cell"]["id"]]
    yield f"to see what a faster storage for some files would gain: {shlex.join(words)} --fast FOLDER_ON_IT"
