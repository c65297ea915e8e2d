"""Manage a burst buffer: snapshots are saved on FAST, and then copied to SLOW.

FAST is a folder on a fast storage. SLOW is a folder on a slow storage, or a
bucket of an object store: https://HOST/BUCKET/PREFIX. Draining means copying
the snapshots from FAST to SLOW.

Exit codes: 0: done; 1: a snapshot is damaged, or no snapshot is complete;
2: FAST and SLOW are not a burst buffer, or cannot be read; 3: SLOW failed
while snapshots were copied.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from jobs.checkpoints import drain_loop, drain_process, lease, restart
from jobs.checkpoints.buffer import BurstBuffer
from jobs.checkpoints.drain_loop import SnapshotSides, options_in_marker
from jobs.checkpoints.snapshots import Snapshots, store_of
from jobs.errors import FolderError, JobError
from jobs.model.codes import ExitCode
from jobs.parser import ProgramParser, exit_code_of
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.system.files import error_text, resolve_links
from jobs.terminal import complain, open_streams, visible

__all__ = ["BurstBuffer"]

_VERBS = {
    "drain": "Copy all snapshots that are only on FAST to SLOW.",
    "list": "Print one line per copy of a snapshot: name, state, folder and faults.",
    "restore": "Find the newest complete snapshot by reading and comparing every byte, and print its folder.",
    "clear": "Remove the snapshots of a finished training from FAST and SLOW; all other files stay.",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb on a burst buffer, and exit with a code that the docstring of this module lists."""
    open_streams()
    options = _parsed(argv)
    try:
        sys.exit(_run(Folder(resolve_links(options.fast)), store_of(options.slow), options))
    except KeyboardInterrupt:
        os._exit(ExitCode.INTERRUPTED)  # no complete snapshot is lost; incomplete snapshots do not count
    except BrokenPipeError:  # the program that reads the output has ended, for example `head`
        os._exit(ExitCode.READER_ENDED)
    except OSError as error:
        condition = "both folders can be read and written" if error.filename else "standard output can be written"
        complain(error_text(error), f"make sure that {condition}")
        os._exit(2)  # a normal exit would make Python print the remaining output again
    except JobError as error:
        complain(error.message, error.hint)
        sys.exit(2)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ProgramParser(
        prog="python -m jobs.burst_buffer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, about in _VERBS.items():
        options = verbs.add_parser(verb, help=about, description=about)
        options.add_argument("fast", metavar="FAST", help="folder on the fast storage")
        options.add_argument("slow", metavar="SLOW", help="folder on the slow storage, or https://HOST/BUCKET/PREFIX")
    verbs.choices["clear"].add_argument("--gone", action="store_true", help="clear only SLOW; FAST no longer exists")
    verbs.choices["drain"].add_argument("--follow", action="store_true", help="go on until standard input is closed")
    verbs.choices["list"].add_argument("--verify", action="store_true", help="also read every file of every snapshot")
    return parser.parse_args(argv)


def _run(fast: Folder, slow: Folder | Bucket, options: argparse.Namespace) -> int:
    """Run a verb, flush the printed output, and return the exit code."""
    verb = options.verb
    if verb == "clear":
        code = _clear(fast, slow, gone=options.gone)
    elif verb == "drain" and options.follow and sys.stdin:
        code = drain_loop.drain_snapshots(fast, slow, sys.stdin.fileno())
    elif verb == "drain":
        code = _drain(_open_sides(fast, slow))
    elif verb == "list":
        code = _list(_open_sides(fast, slow, joins=True), verify=options.verify)
    else:
        code = _restore(_open_sides(fast, slow, joins=True))
    sys.stdout.flush()
    return code


def _open_sides(fast: Folder, slow: Folder | Bucket, *, joins: bool = False) -> SnapshotSides:
    """Return the fast and the slow side of a burst buffer. With `joins`, FAST may also be a new folder.

    Raises FolderError if the folders are not a burst buffer. Raises JobError if the slow side is a bucket that does not
    answer.
    """
    buffer_id, marker = lease.identify_pair(fast, slow)
    if marker is None and not (joins and lease.read_marker(slow)):
        raise FolderError(f"{fast} is no side of a burst buffer", "name the fast side first, then the slow side")
    return SnapshotSides(Snapshots(fast), Snapshots(slow), buffer_id, options_in_marker(marker).keep if marker else 1)


def _clear(fast: Folder, slow: Folder | Bucket, *, gone: bool) -> int:
    """Remove the snapshots of a burst buffer from the fast and the slow side, or with `gone` only from the slow side.

    FAST must be named if it exists, because only FAST shows whether a training still runs.
    """
    if not gone:
        _open_sides(fast, slow)
    elif os.path.lexists(fast.root):
        raise FolderError(f"{fast} still exists", "leave out --gone")
    elif (marker := lease.read_marker(slow)) is None or marker["role"] != "slow":
        raise FolderError(f"{slow} is no side of a burst buffer", "name the slow side of a burst buffer")
    lease.clear_stores([fast, slow])
    print(visible(f"removed the snapshots in {slow}" if gone else f"removed the snapshots in {fast} and in {slow}"))
    return 0


def _drain(sides: SnapshotSides) -> int:
    fast = Path(str(sides.fast.store))
    if lease.is_locked(Folder(fast), "drainer"):
        message = f"waiting for the drainer of {fast}, which stays as long as its trainer"
        print(visible(message), file=sys.stderr, flush=True)
    code = drain_loop.drain_snapshots(str(sides.fast.store), sides.slow.store)
    if code == drain_loop.GAVE_UP:
        reason = drain_process.last_reason(fast)
        complain(f"the drain gave up: {reason}", f"no snapshot is lost: repair {sides.slow.store}, then drain again")
    elif damaged := sides.fast.names("damaged"):
        cure = "`list --verify` shows what is wrong; `restore` finds the newest complete snapshot"
        complain(f"damaged on {sides.fast.store}, and not drained: {', '.join(damaged)}", cure)
        return 1
    return code


def _list(sides: SnapshotSides, *, verify: bool) -> int:
    """Print one line per copy of a snapshot; return exit code 1 if a copy has problems, else 0."""
    waiting_names, damaged_count = sides.pending_or_all(), 0
    for side in (sides.fast, sides.slow):
        for name, state in side.states().items():
            state_text = "waiting" if side is sides.fast and name in waiting_names else state
            if (problems := side.verify(name) if verify and state != "incomplete" else []) is None:
                continue  # a drain process removed this copy while the list was made
            damaged_count += bool(problems)
            verdict = "  good" if verify and state != "incomplete" else ""
            print(
                visible(f"{name}  {state_text:10}  {side.store}{'  ' + '; '.join(problems) if problems else verdict}")
            )
    return 1 if damaged_count else 0


def _restore(sides: SnapshotSides) -> int:
    with warnings.catch_warnings(record=True) as damage_warnings:
        warnings.simplefilter("always")
        folder = restart.latest_snapshot(sides.fast.store, sides.slow.store)
    for damage in damage_warnings:
        print(f"warning: {visible(str(damage.message))}", file=sys.stderr)
    print(folder or "there is no complete snapshot")
    return 0 if folder else 1


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
