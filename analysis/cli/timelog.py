"""Run `python -m analysis timelog`: print the durations of the actions in a run, from the time logs of the run."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.cli.command import parser_of, run_guarded
from analysis.errors import AnalysisError
from analysis.text import visible
from analysis.traces import action_times
from jobs.events.read_time_logs import read_logs
from jobs.events.run_log import ClockBounds, RunLog
from jobs.events.time_log import PHASES

EPILOG = """\
Definitions: docs/how-to/timelog.md. A row of NERSC's files that is not an event is left out with a warning.

exit codes: 0 all rows were read, 1 some row was left out, 2 wrong usage, or a file that cannot be read
"""
EXIT_SKIPPED = 1
MOST_NAMED = 10
MOVED_NS = 1_000_000


def main(words: Sequence[str]) -> int:
    """Print the durations of the actions in the given time logs; return the exit code."""
    about = (
        "List how long each action of a run took. FILE is a time log of this project, or a log of NERSC's benchmarks "
        "(a CSV file with seven or nine columns, or a workbook)."
    )
    parser = parser_of("python -m analysis timelog", about, EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="the logs of all processes of one run")
    parser.add_argument("--json", action="store_true", help="print the durations of each action as JSON")
    parser.add_argument(
        "--budget", action="store_true", help="print only how each rank (or --rank) spent its wall time"
    )
    parser.add_argument("--phase", choices=PHASES, help="use only events of this phase; not with --budget")
    parser.add_argument("--epoch", metavar="N", type=int, help="use only events of this epoch; not with --budget")
    parser.add_argument("--rank", metavar="N", type=int, help="use only events of this rank")
    parser.add_argument(
        "--compute",
        metavar="ACTION",
        help="the time of other actions is exposed only while this action does not run (default: compute)",
    )
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the events as CSV with NERSC's nine columns")
    parser.add_argument("--chrome", metavar="FILE", type=Path, help="write a trace for Perfetto and chrome://tracing")
    parser.add_argument("--unfinished", action="store_true", help="also read logs of killed or running processes")
    asked = parser.parse_args(words)
    return run_guarded(lambda: report_time_logs(asked))


def report_time_logs(asked: argparse.Namespace) -> int:
    """Read the time logs, write the requested files, and print the durations; return the exit code.

    Raises AnalysisError if a file cannot be read or written, if no event has the requested phase, epoch and rank, or if
    `--budget` is combined with an option for a part of a run.
    """
    for name in ("phase", "epoch", "compute") if asked.budget else ():
        if getattr(asked, name) is not None:
            raise AnalysisError(
                f"--budget cannot be combined with --{name}, because a budget covers the whole wall time of a rank",
                f"omit --budget or --{name}",
            )
    log, clocks = read_logs(asked.files, unfinished=asked.unfinished)
    for line in time_log_warnings(log, clocks):
        sys.stderr.write(f"{visible(line)}\n")
    kept = _kept(log, asked)
    if not asked.budget and np.unique(kept.events["epoch"]).size > action_times.MOST_EPOCHS:
        sys.stderr.write(
            f"warning: at most {action_times.MOST_EPOCHS} epochs of each action are listed; to list another epoch, use "
            "--epoch N\n"
        )
    written = list(_written(kept, asked))
    found = {} if asked.budget else action_times.Definitions(log, asked.compute).of_actions(kept.events, asked.rank)
    whole_time = asked.phase is None and asked.epoch is None
    ranks = (
        action_times.rank_metrics(log, clocks, asked.rank) if asked.budget or (whole_time and not asked.json) else {}
    )
    if asked.json:
        print(json.dumps(ranks if asked.budget else found, indent=1))
    else:
        from analysis.output import terminal  # noqa: PLC0415 - this import loads pandas and matplotlib

        terminal.print_text(*action_times.action_tables(found), "") if found else None
        terminal.print_text(*action_times.budget_table(ranks)) if ranks else None
        terminal.print_paths(written) if written else None
    return EXIT_SKIPPED if log.skipped else 0


def _kept(log: RunLog, asked: argparse.Namespace) -> RunLog:
    """Return the log with only the events of the requested phase, epoch and rank.

    Raises AnalysisError if no log of the rank was given, or if there is no such event.
    """
    if asked.rank is not None and all(asked.rank != stream.rank for stream in log.streams):
        raise AnalysisError(
            f"no FILE is a log of rank {asked.rank}", f"name the log of rank {asked.rank}, or choose another rank"
        )
    events = log.events
    phase = None if asked.phase is None else PHASES.index(asked.phase)
    for name, wanted in (("phase", phase), ("epoch", asked.epoch), ("rank", asked.rank)):
        if wanted is not None:
            events = events.selected(events[name] == wanted)
    if not (len(events) or asked.budget):
        message = "the logs have no event of the phase, epoch and rank that the options name"
        raise AnalysisError(message, "choose a phase, an epoch and a rank that the logs have")
    return replace(log, events=events)


def _written(log: RunLog, asked: argparse.Namespace) -> Iterator[Path]:
    """Write the files that `--csv` and `--chrome` request; yield the paths of the written files."""
    if not (asked.csv or asked.chrome):
        return
    from analysis.figures.kit import save  # noqa: PLC0415 - this import loads pandas and matplotlib

    if asked.csv:
        yield save.export_file(asked.csv, action_times.nersc_csv(log), asked.files)
    if asked.chrome:
        yield save.export_file(
            asked.chrome, action_times.chrome_trace(log), [*asked.files, *([asked.csv] if asked.csv else [])]
        )


def time_log_warnings(log: RunLog, clocks: Mapping[str, ClockBounds]) -> Iterator[str]:
    """Yield a warning for each skipped row, and warnings about missing ranks and inaccurate clocks."""
    yield from (f"warning: {each}; left out" for each in log.skipped[:MOST_NAMED])
    if len(log.skipped) > MOST_NAMED:
        yield f"warning: {len(log.skipped) - MOST_NAMED} more rows are left out"
    ranks, there = log.streams[0].ranks, {*log.ranks}
    if missing := [*itertools.islice((str(rank) for rank in range(ranks) if rank not in there), MOST_NAMED)]:
        names = ", ".join(missing)
        yield (
            f"warning: the logs of {ranks - len(there)} of {ranks} ranks are missing ({names}): means do not include "
            "these ranks"
        )
    for stream in log.streams:
        if stream.moved_ns and abs(stream.moved_ns) > MOVED_NS:
            yield (
                f"warning: rank {stream.rank}, process {stream.process}: the system clock moved by "
                f"{stream.moved_ns / 1e9:+.3f} s relative to the monotonic clock of the log"
            )
    if any(clock.low_ns is None for clock in clocks.values()):
        yield (
            "warning: no barrier limits how much the clocks of nodes differ: union_all is only as accurate as the "
            "system clocks"
        )
    if apart := max((clock.apart_ns for clock in clocks.values()), default=0):
        yield (
            f"warning: the clocks of nodes drifted apart by {apart / 1e6:.3f} ms during the run, or some rank did not "
            "wait at a barrier"
        )
