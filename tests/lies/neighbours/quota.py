"""A cgroup that gives less of the processors than the machine has."""

import contextlib
import time
from pathlib import Path

from tests.lies import setup
from tests.lies.lie import INVALID, Expected, MissingError, confirmed, lie

_PERIOD_US, _QUOTA_US = 100_000, 40_000
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


@lie(
    "A cgroup leaves the campaign 0.4 of a processor.",
    Expected((INVALID,), r"throttl|quota"),
)
def quota(workspace):
    root, limits = _controller()
    group = root / workspace.folder.name
    setup.need("sh")
    group.mkdir()
    workspace.stack.callback(_remove, group)
    for name, limit in limits.items():
        (group / name).write_text(limit)
    paths = workspace.images(workspace.folder / "set" / "images", number=64, pixels=400)
    join = ("sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh")
    answer = workspace.campaign(paths[0].parent, inside=join)
    counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    cpus = ", ".join(sorted({str(run["cpus"]) for run in workspace.measured()}))
    truth = f"throttled in {counts['nr_throttled']} of {counts['nr_periods']} periods ({root}); recorded cpus: {cpus}"
    return confirmed(int(counts["nr_throttled"]) > 10, truth), answer


def _controller():
    """Return where the CPU controller of this machine is, of version 2 or 1, and how it is told a quota."""
    for root in _V2:
        control = root / "cgroup.subtree_control"
        if control.exists() and "cpu" in control.read_text().split():
            return root, {"cpu.max": f"{_QUOTA_US} {_PERIOD_US}"}
    if (_V1 / "cpu.cfs_quota_us").exists():
        return _V1, {"cpu.cfs_period_us": f"{_PERIOD_US}", "cpu.cfs_quota_us": f"{_QUOTA_US}"}
    raise MissingError("there is no CPU controller of cgroups, neither of version 1 nor of version 2")


def _remove(group):
    """Remove a group; processes that were just killed may still be in it for a moment."""
    deadline = time.monotonic() + 5
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            group.rmdir()
