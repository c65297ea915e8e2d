"""`python -m analysis trace FILE…`: how the time of training steps was spent, by TensorFlow's own traces."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cli.command import parser_of, run_guarded
from analysis.errors import AnalysisError
from analysis.text import visible

if TYPE_CHECKING:
    from jobs.events.tensorflow_trace import Runtime

EPILOG = """\
FILE is a *.xplane.pb of TensorFlow's profiler, or the tensorflow-<n>.npz beside a record; several are ranks of a run.
Definitions: docs/how-to/traces.md.

exit codes: 0 all was read, 1 events were left out for want of room, 2 wrong usage, or a file that cannot be read
"""
EXIT_DROPPED = 1


def main(words: Sequence[str]) -> int:
    """Print the times of steps for the given command line; return the exit code."""
    about = "Say where the time of a training's steps went, by TensorFlow's own traces; needs no TensorFlow."
    parser = parser_of("python -m analysis trace", about, EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="traces, one a process")
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")
    parser.add_argument("--chrome", metavar="FILE", type=Path, help="write a trace for Perfetto and chrome://tracing")
    parser.add_argument(
        "--posix", metavar="FILE", type=Path, help="what read operations spent in the calls of a profile"
    )
    parser.add_argument("--timelog", metavar="FILE", type=Path, help="what went on during each action of a time log")
    parser.add_argument(
        "--system", metavar="FILE", type=Path, help="what a system trace (trace-<n>.csv) moved in steps"
    )
    asked = parser.parse_args(words)
    return run_guarded(lambda: report_traces(asked))


def report_traces(asked: argparse.Namespace) -> int:
    """Read the traces, write and print the results; return the exit code. Raises AnalysisError on unreadable files."""
    from analysis.traces import step_report  # noqa: PLC0415 - keeps numpy out of other commands' --help
    from jobs.events import tensorflow_trace  # noqa: PLC0415

    read = [tensorflow_trace.read_trace(path) for path in asked.files]
    for line in _remarks(read):
        sys.stderr.write(f"{visible(line)}\n")
    found = [step_report.step_metrics(each) for each in read]
    found[0] |= _joined(read, asked)
    written = []
    if asked.chrome:
        from analysis.figures.kit import save  # noqa: PLC0415 - brings matplotlib with it
        from jobs.events.perfetto import chrome_json  # noqa: PLC0415

        beside = [path for path in (asked.posix, asked.timelog, asked.system) if path]
        first_ns = min(int(moments.min()) for each in read for moments in (each.events["start"], each.steps.start))
        drawn = chrome_json([each.process(place) for place, each in enumerate(read)], first_ns, name="name")
        written.append(save.export_file(asked.chrome, drawn, [*asked.files, *beside]))
    if asked.json:
        print(json.dumps(found, indent=1))
    else:
        from analysis.output import terminal  # noqa: PLC0415

        for place, each in enumerate(found):
            terminal.print_text(*([""] if place else []), *step_report.step_tables(each))
        terminal.print_paths(written) if written else None
    return EXIT_DROPPED if any(each.dropped for each in read) else 0


def _joined(read: Sequence[Runtime], asked: argparse.Namespace) -> dict[str, Any]:
    """Return the results that join a trace with other recordings. Raises AnalysisError if there are several traces."""
    from analysis.traces import posix, step_report, system  # noqa: PLC0415 - as above
    from jobs.events.read_time_logs import read_logs  # noqa: PLC0415

    beside = {name: path for name in ("posix", "timelog", "system") if (path := getattr(asked, name))}
    if beside and (len(read) > 1 or not read[0].dated):
        raise AnalysisError("these are joined with one trace that says when it began", "name a single FILE")
    found: dict[str, Any] = {}
    try:
        if "posix" in beside:
            found["posix"] = step_report.join_calls(read[0], posix.read_profile(beside["posix"]))
        if "system" in beside:
            found["system"] = step_report.join_system(read[0], system.read_trace(beside["system"]))
        if "timelog" in beside:
            found["timelog"] = step_report.join_time_log(read[0], read_logs([beside["timelog"]])[0])
    except system.TraceError as error:
        raise AnalysisError(f"what was seen beside it: {error}", "name files of the same run") from error
    return found


def _remarks(read: Sequence[Runtime]) -> Iterator[str]:
    for each in read:
        if each.dropped:
            yield f"warning: {each.name}: {each.dropped:,} events are left out for want of room"
        if not each.has_marks:
            yield f"warning: {each.name}: no step is marked (tf.profiler.experimental.Trace); all of it counts as one"
        if not each.dated:
            yield f"warning: {each.name}: it does not say when it began; times are from its start"
