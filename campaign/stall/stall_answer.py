"""What cold and warm runs of a program say, in numbers and in words."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from campaign import console
from campaign.cells.cell import Cell
from campaign.console import counted
from campaign.stall.program_grid import COLD, WARM
from jobs.judging import stopping
from jobs.judging.difference import Difference, difference, pairs
from jobs.model.record import Record
from jobs.model.results import Run

PROOFS = ("cold", "device_bytes", "reads_data", "same_data")
"""The checks that say whether a run was cold."""
_BUSY, _IDLE = 0.9, 0.5  # of the processors, or of one
_MB = 1e6


@dataclass(frozen=True)
class Side:
    """The valid measured runs of one state of the cache."""

    cache: str
    runs: int
    wall_s: tuple[float, float, float]  # median, least, most
    marked_s: tuple[float, float, float] | None  # of the timed part; None where nothing marks it
    disk_bytes: float
    cores: float  # kept busy
    others: float  # cores that other programs kept busy
    cpus: int


@dataclass(frozen=True)
class Outcome:
    """A program with its data cold and warm."""

    name: str
    cold: Side | None
    warm: Side | None
    whole: Difference | None
    marked: Difference | None  # of the part that is timed
    data_bytes: int
    first_read_bytes: float | None  # of the data, in a cold run; None where it cannot be seen
    why_not: str = ""  # why the runs of a kind do not count, of the first kind that has too few

    @property
    def deciding(self) -> Difference | None:
        """The difference that more runs are to make narrow."""
        return self.marked or self.whole

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, with the shares that follow from them."""
        found = asdict(self)
        for name in ("whole", "marked"):
            if (each := getattr(self, name)) is not None:
                found[name] |= {"seconds": each.seconds, "share": each.share, "decided": each.decided}
        return found


def outcome(name: str, cold: Record | None, warm: Record | None) -> Outcome:
    """Return what judged records of both cells say; None where there is none."""
    both = pairs(cold, warm) if cold and warm else []
    marked = [(one["marked_s"], other["marked_s"]) for one, other in both]
    runs = stopping.measured(cold, "valid") if cold else []
    seen = [each["data_in_memory_bytes"] for each in runs]
    return Outcome(
        name,
        _side(COLD, cold),
        _side(WARM, warm),
        difference([(one["wall_s"], other["wall_s"]) for one, other in both]),
        None if not marked or any(None in each for each in marked) else difference(marked),  # type: ignore[arg-type] # none is None
        max((run["data_bytes"] for run in runs), default=0),
        min(statistics.median(seen), runs[0]["data_bytes"]) if seen and None not in seen else None,  # type: ignore[type-var] # none is None
        _why_not(cold, warm),
    )


def _why_not(cold: Record | None, warm: Record | None) -> str:
    """Return why runs of the first kind whose cell is not done do not count; empty where both are done."""
    for cache, recorded in ((COLD, cold), (WARM, warm)):
        if recorded and recorded["status"] != "done" and (reason := recorded.get("reason")):
            return f"{cache}: {reason}"
    return ""


def _side(cache: str, recorded: Record | None) -> Side | None:
    runs = stopping.measured(recorded, "valid") if recorded else []
    if not runs:
        return None
    marked = [run["marked_s"] for run in runs if run["marked_s"] is not None]
    return Side(
        cache,
        len(runs),
        _spread([run["wall_s"] for run in runs]),
        _spread(marked) if len(marked) == len(runs) else None,
        statistics.median(run["device_bytes"] or 0 for run in runs),
        statistics.median(run["program"]["cpu_s"] / run["wall_s"] for run in runs),
        statistics.median(run["other_cpu"] for run in runs),
        max(run["program"]["cpus"] for run in runs),
    )


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)


def lines(found: Outcome) -> list[str]:
    """Return the table and the sentences for people."""
    sides = [each for each in (found.cold, found.warm) if each]
    head = [found.name, "runtime", "min–max", "from the disk", "processors"]  # noqa: RUF001 - as in tables
    rows = [head, *(_row(each, each.wall_s, "") for each in sides)]
    rows += [_row(each, each.marked_s, ", timed part") for each in sides if each.marked_s]
    return [*console.table(rows, right=(1, 2, 3, 4)), *sentences(found)]


def _row(side: Side, times_s: tuple[float, float, float], what: str) -> list[str]:
    name = f"{side.cache}, {counted(side.runs, 'run')}{what}"
    times = [f"{times_s[0]:.3g} s", f"{times_s[1]:.3g}–{times_s[2]:.3g}"]  # noqa: RUF001
    return [name, *times, *(["", ""] if what else [f"{side.disk_bytes / _MB:.0f} MB", _cores(side)])]


def _cores(side: Side) -> str:
    return f"{side.cores:.1f} of {side.cpus}"


def sentences(found: Outcome) -> list[str]:
    """Return what the numbers say."""
    if not found.whole or not found.warm:
        return ["too few valid pairs of a cold and a warm run: nothing is said", *filter(None, [found.why_not])]
    told = [f"{_cost(found.whole, 'the runtime')}; {_rest(found.warm)}"]
    if found.marked:
        told.append(f"in the timed part: {_cost(found.marked, 'it')}")
    if found.first_read_bytes is not None and found.data_bytes:
        read, whole = found.first_read_bytes, found.data_bytes
        part = f"{read / _MB:.0f} of {whole / _MB:.0f} MB of the data were read from the disk once"
        told.append(f"{part}; what is read again comes from memory, so with more epochs the share is smaller")
    return told


def _cost(of: Difference, what: str) -> str:
    if of.share_interval is None or of.interval_s is None:
        return (
            f"waiting for storage costs {of.seconds:.2g} s, {of.share:.0%} of {what}; {counted(of.pairs, 'pair')} are"
            f" too few for an interval ({stopping.FEWEST_RUNS} are needed)"
        )
    low, high = of.share_interval
    if not of.decided:
        return (
            f"no difference that {of.pairs} runs can show: {of.seconds:+.2g} s, {of.share:.0%} of {what}"
            f" ({low:.0%} to {high:.0%})"
        )
    if of.seconds < 0:
        return (
            f"the cold runs were {-of.seconds:.3g} s faster ({low:.0%} to {high:.0%} of {what}): something else differs"
        )
    return (
        f"waiting for storage costs {of.seconds:.3g} s, {of.share:.0%} of {what}"
        f" ({max(0.0, low):.0%} to {min(1.0, high):.0%})"
    )


def _rest(warm: Side) -> str:
    """Return what bounds the warm runs, by the processors that they keep busy."""
    busy = f"{_cores(warm)} busy"
    if warm.cores >= _BUSY * warm.cpus:
        return f"the rest is bound by processors ({busy})"
    if warm.cores + warm.others >= _BUSY * warm.cpus:
        return (
            f"what bounds the rest is undecided: other programs kept {warm.others:.1f} of {warm.cpus} processors busy"
        )
    if warm.cores >= _BUSY:
        return f"the rest keeps {_cores(warm)} processors busy: perhaps one thread bounds it"
    if warm.cores < _IDLE:
        return f"the rest waits for something else than processors and these data ({busy})"
    return f"the rest is undecided ({busy})"


def couples(cells: Sequence[Cell], read: Callable[[str], Record | None], name: str) -> list[Outcome]:
    """Return the outcome of each cold cell with the warm one that differs from it in nothing else."""
    by_settings: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        others = {key: value for key, value in cell.settings.items() if key != "cache"}
        by_settings.setdefault(repr(others), {})[str(cell.settings["cache"])] = cell
    found = []
    for both in by_settings.values():
        records = {cache: read(cell.id) for cache, cell in both.items()}
        told = _swept(next(iter(both.values())).settings) if len(by_settings) > 1 else ""
        found.append(outcome(name + told, records.get(COLD), records.get(WARM)))
    return found


def _swept(settings: Mapping[str, Any]) -> str:
    values = {key: value for key, value in settings.items() if isinstance(value, int | str) and key != "cache"}
    return "".join(f" {key}={value}" for key, value in values.items())


@dataclass(frozen=True)
class ColdRun:
    """A measured run, and whether it was cold."""

    run: int
    cold: bool
    why: str  # why not, or what could not be seen
    wall_s: float | None  # None: it failed
    disk_bytes: int | None


def cold_runs(recorded: Record) -> list[ColdRun]:
    """Return for each measured run of a judged record whether it was cold."""
    return [
        ColdRun(run["run"], *_proof(run), run.get("wall_s"), run.get("device_bytes"))
        for run in stopping.measured(recorded)
    ]


def cold_lines(name: str, runs: Sequence[ColdRun]) -> list[str]:
    """Return the same for people."""
    rows = [[name, "runtime", "from the disk", "cold", ""]]
    for each in runs:
        took = "" if each.wall_s is None else f"{each.wall_s:.3g} s"
        disk = "" if each.disk_bytes is None else f"{each.disk_bytes / _MB:.1f} MB"
        rows.append([f"run {each.run}", took, disk, "yes" if each.cold else "NO", each.why])
    return console.table(rows, right=(1, 2))


def _proof(run: Run) -> tuple[bool, str]:
    """Return whether a run was cold, and why not, or what could not be seen."""
    if run["status"] == "failed":
        return False, str(run["reason"])
    checks = [check for check in run["checks"] if check["rule"] in PROOFS]
    failed = [f"{check['rule']}: {check['message']}" for check in checks if check["passed"] is False]
    unknown = [f"{check['rule']} cannot be told" for check in checks if check["passed"] is None]
    sure = any(check["passed"] for check in checks if check["rule"] in PROOFS[:2])
    return sure and not failed, "; ".join(failed or unknown)
