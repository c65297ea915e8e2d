"""`python -m analysis timelog FILE…`: what took how long in a run, by definitions that each have a name."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.cli.command import guarded, parser_of
from analysis.errors import AnalysisError
from analysis.text.plain import visible
from analysis.timelog import definitions, show
from analysis.timelog.clocks import Clock
from analysis.timelog.log import PHASES, Log
from analysis.timelog.read_time_logs import read

EPILOG = """\
Definitions: docs/timelog.md. Rows of NERSC's files that are no events are named and left out.

exit codes: 0 all was read, 1 some row was left out, 2 wrong usage, or a file that cannot be read
"""
EXIT_SKIPPED = 1
MOST_NAMED = 10
MOVED_NS = 1_000_000


def main(words: Sequence[str]) -> int:
    """Print what the command line asks for; return the exit code."""
    about = "Say what took how long in a run: its time logs, or NERSC's (CSV of seven or nine columns, workbook)."
    made = parser_of("python -m analysis timelog", about, EPILOG)
    made.add_argument("files", metavar="FILE", nargs="+", type=Path, help="the logs of one run, of all its processes")
    made.add_argument("--json", action="store_true", help="machine-readable, on stdout: the definitions by action")
    made.add_argument("--budget", action="store_true", help="where the wall time of each rank, or --rank, went, alone")
    made.add_argument("--phase", choices=PHASES, help="this phase alone, without a budget")
    made.add_argument("--epoch", metavar="N", type=int, help="this epoch alone, without a budget")
    made.add_argument("--rank", metavar="N", type=int, help="this rank alone")
    made.add_argument("--compute", metavar="ACTION", help="the action by which others are exposed (compute)")
    made.add_argument("--csv", metavar="FILE", type=Path, help="write NERSC's nine columns")
    made.add_argument("--chrome", metavar="FILE", type=Path, help="write a trace for Perfetto and chrome://tracing")
    made.add_argument("--unfinished", action="store_true", help="take logs whose process was killed, or goes on")
    asked = made.parse_args(words)
    return guarded(lambda: report(asked))


def report(asked: argparse.Namespace) -> int:
    """Read, write what is asked for, and print; return the exit code.

    Raises AnalysisError: a file cannot be read or written, no event is left, or a budget is to be of part of the time.
    """
    for name in ("phase", "epoch", "compute") if asked.budget else ():
        if getattr(asked, name) is not None:
            raise AnalysisError(
                f"--budget does not take --{name}: it is of a rank's whole time", "leave one of the two out"
            )
    log, clocks = read(asked.files, unfinished=asked.unfinished)
    for line in remarks(log, clocks):
        sys.stderr.write(f"{visible(line)}\n")
    kept = _kept(log, asked)
    if not asked.budget and np.unique(kept.events.epoch).size > definitions.MOST_EPOCHS:
        sys.stderr.write(
            f"warning: of each action at most {definitions.MOST_EPOCHS} epochs are shown; --epoch N gives any other\n"
        )
    written = list(_written(kept, asked))
    found = {} if asked.budget else definitions.Definitions(log, asked.compute).of_actions(kept.events, asked.rank)
    whole_time = asked.phase is None and asked.epoch is None
    ranks = show.ranks(log, clocks, asked.rank) if asked.budget or (whole_time and not asked.json) else {}
    if asked.json:
        print(json.dumps(ranks if asked.budget else found, indent=1))
    else:
        from analysis.output import terminal  # noqa: PLC0415 - brings pandas and matplotlib with it

        terminal.put(*show.actions(found), "") if found else None
        terminal.put(*show.budget(ranks)) if ranks else None
        terminal.put_paths(written) if written else None
    return EXIT_SKIPPED if log.skipped else 0


def _kept(log: Log, asked: argparse.Namespace) -> Log:
    """Return the log with those events that are asked for. Raises AnalysisError: there is no such rank, or none."""
    if asked.rank is not None and all(asked.rank != stream.rank for stream in log.streams):
        raise AnalysisError(f"rank {asked.rank} has no log here", "give its file, or ask for another rank")
    events = log.events
    phase = None if asked.phase is None else PHASES.index(asked.phase)
    for name, wanted in (("phase", phase), ("epoch", asked.epoch), ("rank", asked.rank)):
        if wanted is not None:
            events = events.at(getattr(events, name) == wanted)
    if not (events.number or asked.budget):
        raise AnalysisError("no event is left", "ask for a phase, an epoch and a rank that are in the files")
    return replace(log, events=events)


def _written(log: Log, asked: argparse.Namespace) -> Iterator[Path]:
    """Write the files that are asked for; yield their paths."""
    if not (asked.csv or asked.chrome):
        return
    from analysis.figures.kit import save  # noqa: PLC0415 - brings pandas and matplotlib with it
    from analysis.timelog import export  # noqa: PLC0415

    if asked.csv:
        yield save.export(asked.csv, export.csv(log), asked.files)
    if asked.chrome:
        yield save.export(asked.chrome, export.chrome(log), [*asked.files, *([asked.csv] if asked.csv else [])])


def remarks(log: Log, clocks: Mapping[str, Clock]) -> Iterator[str]:
    """Yield what is missing or uncertain."""
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
