"""Run `python -m analysis trace`: show how training steps spent their time, from traces of TensorFlow's profiler."""

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
FILE is a file *.xplane.pb of TensorFlow's profiler, or the file tensorflow-<n>.npz in the folder of a record. If a run
has several ranks, name one FILE per rank. Definitions: docs/how-to/traces.md.

exit codes: 0 all events were read, 1 a trace has more events than the limit and events were left out, 2 wrong usage, or
a file that cannot be read
"""
EXIT_DROPPED = 1


def main(words: Sequence[str]) -> int:
    """Print how the steps in the given traces spent their time; return the exit code."""
    about = "Show how training steps spent their time, from traces of TensorFlow's profiler. TensorFlow is not needed."
    parser = parser_of("python -m analysis trace", about, EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="traces, one per process")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--chrome", metavar="FILE", type=Path, help="write a trace for Perfetto and chrome://tracing")
    parser.add_argument(
        "--posix", metavar="FILE", type=Path, help="add how long read operations spent in the POSIX calls of a profile"
    )
    parser.add_argument(
        "--timelog", metavar="FILE", type=Path, help="add how the actions of a time log overlap with the steps"
    )
    parser.add_argument(
        "--system", metavar="FILE", type=Path, help="add the MB read in each step, from a system trace (trace-<n>.csv)"
    )
    asked = parser.parse_args(words)
    return run_guarded(lambda: report_traces(asked))


def report_traces(asked: argparse.Namespace) -> int:
    """Read the traces, print the results and write the requested files; return the exit code.

    Raises AnalysisError if a file cannot be read.
    """
    from analysis.traces import step_report  # noqa: PLC0415 - keeps numpy out of other commands' --help
    from jobs.events import tensorflow_trace  # noqa: PLC0415

    read = [tensorflow_trace.read_trace(path) for path in asked.files]
    for line in _remarks(read):
        sys.stderr.write(f"{visible(line)}\n")
    found = [step_report.step_metrics(each) for each in read]
    found[0] |= _joined(read, asked)
    written = []
    if asked.chrome:
        from analysis.figures.kit import save  # noqa: PLC0415 - this import loads matplotlib
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
    """Return the results that combine a trace with a profile, a system trace and a time log of the same run.

    Raises AnalysisError if there are several traces, or if the trace does not record when the profiler started.
    """
    from analysis.traces import posix, step_report, system  # noqa: PLC0415 - keeps numpy out of other commands' --help
    from jobs.events.read_time_logs import read_logs  # noqa: PLC0415

    beside = {name: path for name in ("posix", "timelog", "system") if (path := getattr(asked, name))}
    if beside and (len(read) > 1 or not read[0].dated):
        message = "--posix, --timelog and --system need exactly one trace, which has the start time of the profiler"
        raise AnalysisError(message, "name a single FILE")
    found: dict[str, Any] = {}
    try:
        if "posix" in beside:
            found["posix"] = step_report.join_calls(read[0], posix.read_profile(beside["posix"]))
        if "system" in beside:
            found["system"] = step_report.join_system(read[0], system.read_trace(beside["system"]))
        if "timelog" in beside:
            found["timelog"] = step_report.join_time_log(read[0], read_logs([beside["timelog"]])[0])
    except system.TraceError as error:
        message = f"a file of --posix, --timelog or --system cannot be used: {error}"
        raise AnalysisError(message, "name files of the same run") from error
    return found


def _remarks(read: Sequence[Runtime]) -> Iterator[str]:
    for each in read:
        if each.dropped:
            yield f"warning: {each.name}: {each.dropped:,} events beyond the limit are left out"
        if not each.has_marks:
            yield (
                f"warning: {each.name}: no step is marked (tf.profiler.experimental.Trace); the whole trace counts as "
                "one step"
            )
        if not each.dated:
            yield (
                f"warning: {each.name}: the trace does not record when the profiler started; times are counted from "
                "the start of the trace"
            )
