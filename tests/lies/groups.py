"""Control groups of one's own, of version 1 or 2: a command that puts a program into one, and the group's files."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tests.lies import setup
from tests.lies.lie import MissingError

_V1, _V2 = Path("/sys/fs/cgroup"), (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_EMPTY_WITHIN_S = 5


def made(stack: contextlib.ExitStack, name: str, controller: str) -> Path:
    """Make a group that a controller governs, and remove it at the end; MissingError where there is none."""
    setup.need("sh")
    group = _root(controller) / name
    try:
        group.mkdir()
    except OSError as error:
        raise MissingError(f"no control group can be made: {error}") from None
    stack.callback(_remove, group)
    return group


def joining(group: Path) -> tuple[str, ...]:
    """Return a command that joins the group and then runs its arguments."""
    return ("sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh")


def _root(controller: str) -> Path:
    for root in _V2:
        control = root / "cgroup.subtree_control"
        if control.exists() and controller.replace("blkio", "io") in control.read_text().split():
            return root
    if (_V1 / controller / "cgroup.procs").exists():
        return _V1 / controller
    raise MissingError(f"there is no controller {controller} of control groups, of neither version")


def _remove(group: Path) -> None:
    """Remove a group; processes that were just killed may still be in it for a moment."""
    deadline = time.monotonic() + _EMPTY_WITHIN_S
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.02)
