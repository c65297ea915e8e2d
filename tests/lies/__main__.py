"""`python -m tests.lies [NAME …]`: run the tool against each lie, and print what it answers."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tests.lies import honest_runs, proofs, workspace
from tests.lies.lie import MissingError, NotStagedError
from tests.lies.registry import ALL
from tests.lies.tools import told

_HONEST_RUNS = 200
_Outcome = TypeVar("_Outcome")


def main() -> int:
    """Run the lies; 0: every answer was as expected, 1: one was not, 3: all were, but some lies could not be staged."""
    asked = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is staged is undone on the way out
    all_of_it = not (asked.names or asked.honest or asked.tools)
    rows = _printed(map(row, ALL if all_of_it else asked.names), lambda each: each.line)
    compared = _printed(told.compared(), told.line) if asked.tools or (all_of_it and asked.write) else []
    number = asked.honest or (_HONEST_RUNS if all_of_it and asked.write else 0)
    counts = _printed(honest_runs.counted(number) if number else (), honest_runs.line)
    if asked.write:
        asked.write.write_text(proofs.page(rows, counts, compared), encoding="utf-8")
        print(asked.write)
    wrong = any(each.problem for each in rows) or honest_runs.false_alarms(counts)
    return 1 if wrong else 3 if any(each.missing for each in (*rows, *compared, *counts)) else 0


def row(name: str) -> proofs.Row:
    """Run one lie."""
    lie = ALL[name]
    try:
        truth, answer = workspace.run(lie)
    except (MissingError, NotStagedError) as error:
        return proofs.Row(lie, missing=str(error))
    return proofs.Row(lie, truth, answer, lie.expected.problem(answer) or "")


def _printed(outcomes: Iterable[_Outcome], line: Callable[[_Outcome], str]) -> list[_Outcome]:
    """Return all outcomes; print the line of each as soon as it is there."""
    every = []
    for each in outcomes:
        print(line(each), flush=True)
        every.append(each)
    return every


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.lies", description=__doc__)
    made.add_argument("names", nargs="*", metavar="NAME", choices=[[], *ALL], help="lies to run; without any, all")
    made.add_argument(
        "--honest", metavar="N", type=int, help="measure N runs in which nothing cheats, and count what the checks say"
    )
    made.add_argument("--tools", action="store_true", help="tell ten lies to fio and to plain loops, too")
    everything = f"write it as Markdown: docs/proofs.md; without other words all of this, with {_HONEST_RUNS} runs"
    made.add_argument("--write", metavar="FILE", type=Path, help=everything)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
