"""The burst buffer by hand: drain what a job has left, say what is where, check every byte, remove all of it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.burst_buffer import drain_journal, drain_loop, lease, reclaim, snapshots
from jobs.burst_buffer.sides import Sides
from jobs.burst_buffer.slow_storage import Folder, Place, place_of
from jobs.errors import FolderError
from jobs.terminal import open_streams, visible


def main(argv: Sequence[str] | None = None) -> None:
    """Exit with 0; 1 where snapshots are damaged; 2 for folders that are no buffer; 3 where the slow storage fails."""
    open_streams()
    parser = argparse.ArgumentParser(prog="python -m jobs.burst_buffer", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, says in {
        "drain": "bring to SLOW what is on FAST alone",
        "status": "say of each snapshot where it is",
        "verify": "read every file of every snapshot and compare it with its manifest",
        "clear": "remove the snapshots of a training that is over from FAST and from SLOW; nothing but ours goes",
    }.items():
        one = verbs.add_parser(verb, help=says, description=says)
        one.add_argument("fast", type=Path, metavar="FAST")
        one.add_argument("slow", metavar="SLOW", help="a folder, or a bucket: https://HOST/BUCKET/PREFIX")
    verbs.choices["clear"].add_argument("--gone", action="store_true", help="FAST is no more: clear SLOW alone")
    verbs.choices["drain"].add_argument("--follow", action="store_true", help="go on until standard input is closed")
    words = parser.parse_args(argv)
    fast = words.fast.resolve()
    try:
        slow = place_of(words.slow)
        if words.verb == "clear":
            _clear(fast, slow, gone=words.gone)
            sys.exit(0)
        if words.verb == "drain":
            sys.exit(_drain(fast, slow, sys.stdin.fileno() if words.follow and sys.stdin else None))
        buffer_id, marker = lease.pair(fast, slow)
        sides = Sides(fast, slow, buffer_id, drain_loop.options_of(marker).keep if marker else 1)
        code = _status(sides) if words.verb == "status" else _verify(sides)
        sys.stdout.flush()
        sys.exit(code)
    except OSError as error:
        print(f"error: {error}\n\nhint: see that both folders can be read and written", file=sys.stderr)
        os._exit(2)  # what could not be printed is not tried again
    except FolderError as error:
        print(f"error: {error.message}\n\nhint: {error.hint}", file=sys.stderr)
        sys.exit(2)


def _clear(fast: Path, slow: Place, *, gone: bool) -> None:
    """Remove what both sides of one burst buffer have; a bucket cannot tell whether its trainer lives, FAST can."""
    if gone and os.path.lexists(fast):
        raise FolderError(f"{fast} is there", "leave out --gone")
    marker = lease.marker_of(slow) if gone else lease.pair(fast, slow)[1]
    if marker is None or (gone and marker["role"] != "slow"):
        side = slow if gone else fast
        cure = "name both sides of it; where the fast one is no more: --gone"
        raise FolderError(f"{side} is no side of a burst buffer", cure)
    reclaim.clear([fast, slow])
    print(f"removed the snapshots in {slow}" if gone else f"removed the snapshots in {fast} and in {slow}")


def _drain(fast: Path, slow: Place, pipe: int | None) -> int:
    code = drain_loop.drain(fast, slow, pipe)
    if code == drain_loop.GAVE_UP:
        print(f"error: the drain gave up: {visible(drain_journal.last_reason(fast))}", file=sys.stderr)
        print(f"\nhint: nothing is lost: mend {slow}, then drain again", file=sys.stderr)
    return code


def _status(sides: Sides) -> int:
    waiting = sides.left()
    for name in snapshots.names(sides.fast):
        print(f"{name}  {'staged' if name in waiting else 'evictable':9}  {sides.fast}")
    fast = [(name, state) for state in ("staging", "damaged") for name in snapshots.names(sides.fast, state)]
    for root, states in ((sides.fast, fast), (sides.slow, sides.store.states())):
        for name, state in states:
            print(f"{name}  {state:9}  {root}")
    return 0


def _verify(sides: Sides) -> int:
    fast, wrong = [*snapshots.names(sides.fast)], 0
    fast += [f"damaged-{name}" for name in snapshots.names(sides.fast, "damaged")]
    slow = [name for name, state in sides.store.states() if state == "committed"]
    for root, store, names in ((sides.fast, Folder(sides.fast), fast), (sides.slow, sides.store, slow)):
        for name in names:
            found = store.verify(name)
            wrong += bool(found)
            said = "let go meanwhile" if found is None else visible("; ".join(found)) or "good"
            print(f"{name.removeprefix('damaged-')}  {root}  {said}")
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
