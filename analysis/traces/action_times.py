"""Compute the durations of the actions in time logs of this project and of NERSC, and export them.

The duration of an action has several definitions. The definitions differ in how overlapping events are counted:

``sum_per_rank``    the sum of the durations of all events of the action, divided by the number of ranks (as in
                    NERSC's HEPCNNB)
``union_per_rank``  the time in which a rank had at least one event of the action: mean and maximum over the ranks
``union_all``       the time in which at least one rank had an event of the action
``union_epochs``    the sum of `union_all` of each epoch; epoch -1 counts as epoch 0 (NERSC's CDB: "merged intervals")
``exposed``         `union_per_rank` without the time in which the rank also computes: the rank waited for this time
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analysis.errors import AnalysisError
from analysis.text import ACTIVE, NONE, number, one_line, percentage
from jobs.events.intervals import Spans, length_by, time_outside
from jobs.events.nersc_logs import COLUMNS
from jobs.events.perfetto import TraceProcess, chrome_json
from jobs.events.run_log import UNACCOUNTED, ClockBounds, RunLog, time_budgets
from jobs.events.table import NS, Events
from jobs.events.time_log import PHASES, UNKNOWN

COMPUTE = "compute"
PERCENTILES = (50, 95, 99)
MOST_EPOCHS = 1000
NO_SPANS = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


class Definitions:
    """The durations of all actions of a log, by the definitions at the top of this module.

    `compute` names the action in which a rank computes; other actions are not exposed during this action. A log of
    NERSC needs `compute`, otherwise `exposed` is None. Raises AnalysisError if the log has no action named `compute`.
    """

    def __init__(self, log: RunLog, compute: str | None = None) -> None:
        if compute is not None and compute not in log.actions:
            raise AnalysisError(f"the logs have no action {compute!r}", f"choose one of: {', '.join(log.actions)}")
        self._log, self.known = log, log.is_ours or compute is not None
        code = log.actions.index(compute or COMPUTE) if self.known else UNKNOWN
        self._computes = spans_of_ranks(log.events.selected(log.events["kind"] == code))
        self._wall_ns = max(each.end_ns for each in log.streams) - min(each.start_ns for each in log.streams)

    def of_actions(self, events: Events, rank: int | None = None) -> dict[str, dict[str, Any]]:
        """Return the metrics of each action over all events.

        The key ``by`` has the same metrics per phase, per epoch of a phase, per epoch and per rank. If `rank` is given,
        `events` has only events of this rank.
        """
        ranks = frozenset(self._log.ranks if rank is None else [rank])
        metrics = {}
        for code, own in events.grouped_by("kind"):
            phases = {
                PHASES[phase]: self.metrics(part, ranks) | {"epoch": self._epochs(part, ranks)}
                for phase, part in own.grouped_by("phase")
            }
            each_rank = {str(one): self.metrics(part, {one}) for one, part in own.grouped_by("rank")}
            by = {"phase": phases, "epoch": self._epochs(own, ranks), "rank": each_rank}
            metrics[self._log.actions[code]] = self.metrics(own, ranks) | {"by": by}
        return metrics

    def _epochs(self, events: Events, ranks: Collection[int]) -> dict[str, Any]:
        parts = itertools.islice(events.grouped_by("epoch"), MOST_EPOCHS)
        return {str(epoch): self.metrics(part, ranks) for epoch, part in parts}

    def metrics(self, events: Events, ranks: Collection[int]) -> dict[str, Any]:
        """Return the metrics of some events: times in seconds and rates in bytes per second.

        A metric that cannot be computed is None.
        """
        spans = {rank: each for rank, each in spans_of_ranks(events).items() if rank in ranks}
        exposed = [time_outside(each, self._computes.get(rank, NO_SPANS)) for rank, each in spans.items()]
        total_ns = float(events["taken"].sum(dtype=float))
        all_ns = events.spans.length
        epoch = np.maximum(events["epoch"], 0).astype(np.int64)
        parts = np.percentile(events["taken"], PERCENTILES, method="inverted_cdf") / NS
        size = int(events["bytes"].sum(dtype=float)) if (events["bytes"] >= 0).all() else None
        times_ns = {"union_all": all_ns, "sum": total_ns, "wall": self._wall_ns}
        return {
            "count": len(events),
            "sum_per_rank": total_ns / len(ranks) / NS,
            "union_per_rank": _over_ranks(spans.values(), len(ranks)),
            "union_all": all_ns / NS,
            "union_epochs": length_by(epoch, events["start"], events["end"]) / NS,
            "exposed": _over_ranks(exposed, len(ranks)) if self.known else None,
            **{f"p{part}": float(value) for part, value in zip(PERCENTILES, parts, strict=True)},
            "bytes": size,
            "bytes_per_s": {
                name: None if size is None or not time_ns else size * NS / time_ns for name, time_ns in times_ns.items()
            },
        }


def spans_of_ranks(events: Events) -> Mapping[int, Spans]:
    """Return for each rank the union of the time spans of the rank's events."""
    return {rank: own.spans for rank, own in events.grouped_by("rank")}


def _over_ranks(spans: Iterable[Spans], ranks: int) -> dict[str, float]:
    """Return the mean and the maximum length of time spans over `ranks` ranks. A rank without a span counts as 0."""
    lengths = [each.length for each in spans]
    return {"mean": sum(lengths) / ranks / NS, "max": max(lengths, default=0) / NS}


# The names of actions that NERSC's scripts for HEPCNNB search for. Other actions have the same name in the CSV.
NERSC_NAMES = {
    "read": "HDF5 File Read", "load": "Load File", "next": "Call to Next Batch", "step": "Training Iteration",
    "shuffle": "Global Shuffle", "checkpoint": "Checkpoint Listener",
}  # fmt: skip


def nersc_csv(log: RunLog) -> Iterator[bytes]:
    """Yield a log in NERSC's CSV format, with Unix times in seconds.

    This format has no quotes, so commas in texts are replaced.
    """
    yield (", ".join(COLUMNS) + "\n").encode()
    actions = [_plain(NERSC_NAMES.get(each, each) if log.is_ours else each) for each in log.actions]
    callers = [_plain(each) for each in log.events.words["caller"]]
    rows = log.events.rows("epoch", "rank", "caller", "kind", "start", "end", "taken", "stream", "thread")
    for epoch, rank, caller, action, *times_ns, stream, thread in rows:
        when = ", ".join(f"{time_ns // 10**9}.{time_ns % 10**9:09}" for time_ns in times_ns)
        process = log.streams[stream].process
        yield f"{epoch}, {rank}, {callers[caller]}, {actions[action]}, {when}, {process}, thread {thread}\n".encode()


def chrome_trace(log: RunLog) -> Iterator[bytes]:
    """Yield a log as a trace for chrome://tracing and Perfetto.

    The trace has one process per process log. Times are in microseconds since the start of the first process.
    """
    names = [f"rank {stream.rank} {stream.host} {stream.process}" for stream in log.streams]
    processes = [TraceProcess(stream, names[stream], [own]) for stream, own in log.events.grouped_by("stream")]
    first_ns = min(stream.start_ns for stream in log.streams)
    return chrome_json(processes, first_ns, ("phase", "epoch", "step", "bytes", "file"))


def _plain(text: str) -> str:
    """Return a text without commas and double quotes, which a spreadsheet program does not read as a formula."""
    line = one_line(text).replace(",", ";").replace('"', "'")
    return f"'{line}" if line.startswith(ACTIVE) else line


MOST_ROWS = 200
TIMES = (
    "count", "sum\nper_rank", "union\nper_rank", "\nmax", "union\n_all", "union\n_epochs", "exposed", "\nmax",
)  # fmt: skip
RATES = ("p50 s", "p95 s", "p99 s", "bytes", "MB/s by\nunion_all", "MB/s by\nsum", "MB/s by\nwall")
SMALL = 1e-3


def rank_metrics(log: RunLog, clocks: Mapping[str, ClockBounds], rank: int | None) -> dict[str, Any]:
    """Return for each rank the start relative to the first rank, the wall time, the time per action, and the clock.

    `clock` has the bounds by which the clock of the rank is ahead of the first rank's clock, or None if the bounds are
    unknown. If `rank` is given, return only this rank.
    """
    ranks = log.ranks
    first_ns = min(stream.start_ns for stream in log.streams if stream.rank in ranks)
    clock_of = {stream.rank: clocks.get(stream.clock) for stream in reversed(log.streams)}
    return {
        str(each.rank): {
            "start_s": (each.start_ns - first_ns) / NS,
            "wall_s": (each.end_ns - each.start_ns) / NS,
            "spent_s": {action: time_ns / NS for action, time_ns in each.spent_ns.items()},
            "clock": _clock(clock_of[each.rank]),
        }
        for each in time_budgets(log, ranks if rank is None else [rank])
    }


def _clock(clock: ClockBounds | None) -> dict[str, float] | None:
    if clock is None or clock.low_ns is None or clock.high_ns is None:
        return None
    low, high, shift, apart = clock.low_ns, clock.high_ns, clock.shift_ns, clock.apart_ns
    return {"low_s": low / NS, "high_s": high / NS, "shift_s": shift / NS, "apart_s": apart / NS}


def action_tables(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield the tables of durations by action, phase, epoch and rank."""
    rows = [row for name, each in metrics.items() for row in _rows(name, each)]
    times, rates = time_table("seconds of", TIMES), time_table("of each event", RATES)
    for name, each in rows[:MOST_ROWS]:
        times.add_row(name, f"{each['count']:,}", *map(_number, _times(each)))
        rates.add_row(name, *map(_number, _rates(each)))
    yield times
    yield Text("")
    yield rates
    if len(rows) > MOST_ROWS:
        yield Text(f"\N{HORIZONTAL ELLIPSIS} and {len(rows) - MOST_ROWS:,} more rows: see --json")


def time_table(first: str, columns: Sequence[str]) -> Table:
    """Return an empty table with a column `first` for names, and with `columns` for numbers.

    A heading in `columns` may contain a line break.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True, min_width=20)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _rows(name: str, metrics: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield pairs of a row name and metrics: the action, then its phases, epochs and ranks.

    If an action has only one phase, epoch or rank, there is no separate row for this phase, epoch or rank.
    """
    yield one_line(name), metrics
    by = metrics["by"]
    for phase, part in by["phase"].items():
        if len(by["phase"]) > 1:
            yield f"  {phase}", part
        if len(part["epoch"]) > 1:
            yield from ((f"  {phase} epoch {epoch}", each) for epoch, each in part["epoch"].items())
    if len(by["phase"]) > 1 and len(by["epoch"]) > 1:
        yield from ((f"  epoch {epoch}", each) for epoch, each in by["epoch"].items())
    if len(by["rank"]) > 1:
        yield from ((f"  rank {rank}", each) for rank, each in by["rank"].items())


def _times(metrics: Mapping[str, Any]) -> Sequence[float | None]:
    exposed = metrics["exposed"] or {"mean": None, "max": None}
    unions = *metrics["union_per_rank"].values(), metrics["union_all"], metrics["union_epochs"]
    return [metrics["sum_per_rank"], *unions, *exposed.values()]


def _rates(metrics: Mapping[str, Any]) -> Sequence[float | None]:
    rates = [None if rate is None else rate / 1e6 for rate in metrics["bytes_per_s"].values()]
    return [metrics["p50"], metrics["p95"], metrics["p99"], metrics["bytes"], *rates]


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.1e}" if 0 < value < SMALL else number(value)


def budget_table(ranks: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield a table that shows how the ranks spent their wall time, and remarks on the starts and clocks of ranks."""
    table = time_table("seconds of the wall", ("mean", "share", "least", "rank", "most", "rank"))
    spent = {rank: {**each["spent_s"], "wall": each["wall_s"]} for rank, each in ranks.items()}
    names = dict.fromkeys(name for each in spent.values() for name in each if name not in (UNACCOUNTED, "wall"))
    walls = sum(each["wall"] for each in spent.values())
    for name in (*names, UNACCOUNTED, "wall"):
        times = {rank: each.get(name, 0.0) for rank, each in spent.items()}
        total, least, most = sum(times.values()), min(times, key=times.__getitem__), max(times, key=times.__getitem__)
        ends = _number(times[least]), least, _number(times[most]), most
        table.add_row(
            one_line(name), _number(total / len(spent)), percentage(total / walls if walls else 0.0, 1), *ends
        )
    yield table
    late = max(ranks, key=lambda rank: ranks[rank]["start_s"])
    if len(ranks) > 1:
        yield Text(f"\nrank {late} started last, {ranks[late]['start_s']:.3f} s after the first")
    wide = {rank: each["clock"]["high_s"] - each["clock"]["low_s"] for rank, each in ranks.items() if each["clock"]}
    if wide and (worst := max(wide, key=wide.__getitem__)) and wide[worst]:
        low, high = (1e3 * ranks[worst]["clock"][key] for key in ("low_s", "high_s"))
        ahead = f"{low:+.3f} to {high:+.3f} ms ahead of the first rank's clock"
        yield Text(f"the clock of rank {worst} is least certain: {ahead}")
