"""A time log as a person reads it, and its budgets as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analysis.text.plain import NONE, number, one_line, share
from analysis.timelog.budget import UNACCOUNTED, budgets
from analysis.timelog.clocks import Clock
from analysis.timelog.definitions import NS
from analysis.timelog.log import Log

MOST_ROWS = 200
TIMES = (
    "count", "sum\nper_rank", "union\nper_rank", "\nmax", "union\n_all", "union\n_epochs", "exposed", "\nmax",
)  # fmt: skip
RATES = ("p50 s", "p95 s", "p99 s", "bytes", "MB/s by\nunion_all", "MB/s by\nsum", "MB/s by\nwall")
SMALL = 1e-3


def ranks(log: Log, clocks: Mapping[str, Clock], rank: int | None) -> dict[str, Any]:
    """Return of each rank when it started after the first one, its wall time and what it went to, and its clock.

    Of `rank` alone, if it is given.
    """
    known = log.ranks
    first_ns = min(stream.start_ns for stream in log.streams if stream.rank in known)
    clock_of = {stream.rank: clocks.get(stream.clock) for stream in reversed(log.streams)}
    return {
        str(each.rank): {
            "start_s": (each.start_ns - first_ns) / NS,
            "wall_s": (each.end_ns - each.start_ns) / NS,
            "spent_s": {action: time_ns / NS for action, time_ns in each.spent_ns.items()},
            "clock": _clock(clock_of[each.rank]),
        }
        for each in budgets(log, known if rank is None else [rank])
    }


def _clock(clock: Clock | None) -> dict[str, float] | None:
    if clock is None or clock.low_ns is None or clock.high_ns is None:
        return None
    low, high, shift, apart = clock.low_ns, clock.high_ns, clock.shift_ns, clock.apart_ns
    return {"low_s": low / NS, "high_s": high / NS, "shift_s": shift / NS, "apart_s": apart / NS}


def actions(found: Mapping[str, Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield the definitions by action, phase, epoch and rank."""
    rows = [row for name, each in found.items() for row in _rows(name, each)]
    times, rates = _table("seconds of", TIMES), _table("of each event", RATES)
    for name, each in rows[:MOST_ROWS]:
        times.add_row(name, f"{each['count']:,}", *map(_number, _times(each)))
        rates.add_row(name, *map(_number, _rates(each)))
    yield times
    yield Text("")
    yield rates
    if len(rows) > MOST_ROWS:
        yield Text(f"\N{HORIZONTAL ELLIPSIS} and {len(rows) - MOST_ROWS:,} more rows: see --json")


def _table(first: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True, min_width=20)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _rows(name: str, found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield an action's figures, and those of its parts, where it has more than one."""
    yield one_line(name), found
    by = found["by"]
    for phase, part in by["phase"].items():
        if len(by["phase"]) > 1:
            yield f"  {phase}", part
        if len(part["epoch"]) > 1:
            yield from ((f"  {phase} epoch {epoch}", each) for epoch, each in part["epoch"].items())
    if len(by["phase"]) > 1 and len(by["epoch"]) > 1:
        yield from ((f"  epoch {epoch}", each) for epoch, each in by["epoch"].items())
    if len(by["rank"]) > 1:
        yield from ((f"  rank {rank}", each) for rank, each in by["rank"].items())


def _times(found: Mapping[str, Any]) -> Sequence[float | None]:
    per_rank, exposed = found["union_per_rank"], found["exposed"] or {"mean": None, "max": None}
    return [found["sum_per_rank"], *per_rank.values(), found["union_all"], found["union_epochs"], *exposed.values()]


def _rates(found: Mapping[str, Any]) -> Sequence[float | None]:
    rates = [None if rate is None else rate / 1e6 for rate in found["bytes_per_s"].values()]
    return [found["p50"], found["p95"], found["p99"], found["bytes"], *rates]


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.1e}" if 0 < value < SMALL else number(value)


def budget(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield where the wall time of the ranks went."""
    table = _table("seconds of the wall", ("mean", "share", "least", "rank", "most", "rank"))
    spent = {rank: {**each["spent_s"], "wall": each["wall_s"]} for rank, each in found.items()}
    names = dict.fromkeys(name for each in spent.values() for name in each if name not in (UNACCOUNTED, "wall"))
    walls = sum(each["wall"] for each in spent.values())
    for name in (*names, UNACCOUNTED, "wall"):
        times = {rank: each.get(name, 0.0) for rank, each in spent.items()}
        total, least, most = sum(times.values()), min(times, key=times.__getitem__), max(times, key=times.__getitem__)
        ends = _number(times[least]), least, _number(times[most]), most
        table.add_row(one_line(name), _number(total / len(spent)), share(total / walls if walls else 0.0, 1), *ends)
    yield table
    late = max(found, key=lambda rank: found[rank]["start_s"])
    if len(found) > 1:
        yield Text(f"\nrank {late} started last, {found[late]['start_s']:.3f} s after the first")
    wide = {rank: each["clock"]["high_s"] - each["clock"]["low_s"] for rank, each in found.items() if each["clock"]}
    if wide and (worst := max(wide, key=wide.__getitem__)) and wide[worst]:
        low, high = (1e3 * found[worst]["clock"][key] for key in ("low_s", "high_s"))
        yield Text(f"clocks: rank {worst}'s is known least, between {low:+.3f} and {high:+.3f} ms of the first one's")
