"""`python -m analysis timelog FILE…`: the durations of actions in a run, by several named definitions."""

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
Definitions: docs/how-to/timelog.md. Rows of NERSC's files that are no events are named and left out.

exit codes: 0 all was read, 1 some row was left out, 2 wrong usage, or a file that cannot be read
"""
EXIT_SKIPPED = 1
MOST_NAMED = 10
MOVED_NS = 1_000_000


def main(words: Sequence[str]) -> int:
    """Print the durations for the given command line; return the exit code."""
    about = "Say what took how long in a run: its time logs, or NERSC's (CSV of seven or nine columns, workbook)."
    parser = parser_of("python -m analysis timelog", about, EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="the logs of one run, of all its processes")
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout: the definitions by action")
    parser.add_argument(
        "--budget", action="store_true", help="print only how each rank (or --rank) spent its wall time"
    )
    parser.add_argument("--phase", choices=PHASES, help="only this phase; not with --budget")
    parser.add_argument("--epoch", metavar="N", type=int, help="only this epoch; not with --budget")
    parser.add_argument("--rank", metavar="N", type=int, help="only this rank")
    parser.add_argument("--compute", metavar="ACTION", help="the action by which others are exposed (compute)")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write NERSC's nine columns")
    parser.add_argument("--chrome", metavar="FILE", type=Path, help="write a trace for Perfetto and chrome://tracing")
    parser.add_argument("--unfinished", action="store_true", help="also read logs of killed or running processes")
    asked = parser.parse_args(words)
    return run_guarded(lambda: report_time_logs(asked))


def report_time_logs(asked: argparse.Namespace) -> int:
    """Read the logs, write the requested files, and print; return the exit code.

    Raises AnalysisError if a file cannot be read or written, no event is left, or --budget is used for a part of a run.
    """
    for name in ("phase", "epoch", "compute") if asked.budget else ():
        if getattr(asked, name) is not None:
            raise AnalysisError(
                f"--budget does not take --{name}: it is of a rank's whole time", "leave one of the two out"
            )
    log, clocks = read_logs(asked.files, unfinished=asked.unfinished)
    for line in time_log_warnings(log, clocks):
        sys.stderr.write(f"{visible(line)}\n")
    kept = _kept(log, asked)
    if not asked.budget and np.unique(kept.events["epoch"]).size > action_times.MOST_EPOCHS:
        sys.stderr.write(
            f"warning: of each action at most {action_times.MOST_EPOCHS} epochs are shown; --epoch N gives any other\n"
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
        from analysis.output import terminal  # noqa: PLC0415 - brings pandas and matplotlib with it

        terminal.print_text(*action_times.action_tables(found), "") if found else None
        terminal.print_text(*action_times.budget_table(ranks)) if ranks else None
        terminal.print_paths(written) if written else None
    return EXIT_SKIPPED if log.skipped else 0


def _kept(log: RunLog, asked: argparse.Namespace) -> RunLog:
    """Return the log with the requested events only; raise AnalysisError if the rank is missing or no event is left."""
    if asked.rank is not None and all(asked.rank != stream.rank for stream in log.streams):
        raise AnalysisError(f"rank {asked.rank} has no log here", "give its file, or ask for another rank")
    events = log.events
    phase = None if asked.phase is None else PHASES.index(asked.phase)
    for name, wanted in (("phase", phase), ("epoch", asked.epoch), ("rank", asked.rank)):
        if wanted is not None:
            events = events.at(events[name] == wanted)
    if not (len(events) or asked.budget):
        raise AnalysisError("no event is left", "ask for a phase, an epoch and a rank that are in the files")
    return replace(log, events=events)


def _written(log: RunLog, asked: argparse.Namespace) -> Iterator[Path]:
    """Write the requested files; yield their paths."""
    if not (asked.csv or asked.chrome):
        return
    from analysis.figures.kit import save  # noqa: PLC0415 - brings pandas and matplotlib with it

    if asked.csv:
        yield save.export_file(asked.csv, action_times.nersc_csv(log), asked.files)
    if asked.chrome:
        yield save.export_file(
            asked.chrome, action_times.chrome_trace(log), [*asked.files, *([asked.csv] if asked.csv else [])]
        )


def time_log_warnings(log: RunLog, clocks: Mapping[str, ClockBounds]) -> Iterator[str]:
    """Yield warnings about missing ranks, skipped rows and uncertain clocks."""
    yield from (f"warning: {each}; left out" for each in log.skipped[:MOST_NAMED])
    if len(log.skipped) > MOST_NAMED:
        yield f"warning: {len(log.skipped) - MOST_NAMED} more rows are left out"
    ranks, there = log.streams[0].ranks, {*log.ranks}
    if missing := [*itertools.islice((str(rank) for rank in range(ranks) if rank not in there), MOST_NAMED)]:
        names = ", ".join(missing)
        yield f"warning: {ranks - len(there)} of {ranks} ranks have no log here ({names}): means are without them"
    for stream in log.streams:
        if stream.moved_ns and abs(stream.moved_ns) > MOVED_NS:
            moved = (
                f"rank {stream.rank}, process {stream.process}: the time of day moved by {stream.moved_ns / 1e9:+.3f} s"
            )
            yield f"warning: {moved} against the clock of the log"
    if any(clock.low_ns is None for clock in clocks.values()):
        yield "warning: no barrier bounds how far clocks of nodes are apart: union_all is as good as their time of day"
    if apart := max((clock.apart_ns for clock in clocks.values()), default=0):
        yield f"warning: clocks went apart by {apart / 1e6:.3f} ms meanwhile, or some barrier is not one of all ranks"
