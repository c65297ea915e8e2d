"""The burst buffer by hand: drain what a job has left, say what is where, check every byte."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.burst_buffer import claim, drain, journal, snapshots
from jobs.burst_buffer.sides import Sides
from jobs.errors import FolderError
from jobs.terminal import visible


def main(argv: Sequence[str] | None = None) -> None:
    """Exit with 0; 1 where snapshots are damaged; 2 for folders that are no buffer; 3 where the slow storage fails."""
    parser = argparse.ArgumentParser(prog="python -m jobs.burst_buffer", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, says in {
        "drain": "bring to SLOW what is on FAST alone",
        "status": "say of each snapshot where it is",
        "verify": "read every file of every snapshot and compare it with its manifest",
    }.items():
        one = verbs.add_parser(verb, help=says, description=says)
        one.add_argument("fast", type=Path, metavar="FAST")
        one.add_argument("slow", type=Path, metavar="SLOW")
    verbs.choices["drain"].add_argument("--follow", action="store_true", help="go on until standard input is closed")
    words = parser.parse_args(argv)
    fast, slow = words.fast.resolve(), words.slow.resolve()
    try:
        buffer_id, marker = claim.pair(fast, slow)
        sides = Sides(fast, slow, buffer_id, drain.options_of(marker).keep if marker else 1)
        if words.verb == "drain":
            sys.exit(_drain(fast, slow, sys.stdin.fileno() if words.follow and sys.stdin else None))
        code = _status(sides) if words.verb == "status" else _verify(fast, slow)
        sys.stdout.flush()
        sys.exit(code)
    except OSError as error:
        print(f"error: {error}\n\nhint: see that both folders can be read and written", file=sys.stderr)
        os._exit(2)  # what could not be printed is not tried again
    except FolderError as error:
        print(f"error: {error.message}\n\nhint: {error.hint}", file=sys.stderr)
        sys.exit(2)


def _drain(fast: Path, slow: Path, pipe: int | None) -> int:
    code = drain.drain(fast, slow, pipe)
    if code == drain.GAVE_UP:
        print(f"error: the drain gave up: {visible(journal.last_reason(fast))}", file=sys.stderr)
        print(f"\nhint: nothing is lost: mend {slow}, then drain again", file=sys.stderr)
    return code


def _status(sides: Sides) -> int:
    waiting = sides.left()
    for name in snapshots.names(sides.fast):
        print(f"{name}  {'staged' if name in waiting else 'evictable':9}  {sides.fast}")
    states = {sides.fast: ("staging", "damaged"), sides.slow: ("staging", "copying", None)}
    for root, known in states.items():
        for state in known:
            for name in snapshots.names(root, state):
                print(f"{name}  {state or 'committed':9}  {root}")
    return 0


def _verify(fast: Path, slow: Path) -> int:
    wrong = 0
    for root in (fast, slow):
        for state in (None, "damaged"):
            for name in snapshots.names(root, state):
                found = snapshots.verify(root / (f"{state}-{name}" if state else name))
                wrong += bool(found)
                print(f"{name}  {root}  {'let go meanwhile' if found is None else visible('; '.join(found)) or 'good'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
