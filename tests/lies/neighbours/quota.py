"""A cgroup that gives less of the processors than the machine has."""

from tests.lies import groups
from tests.lies.lie import INVALID, Expected, confirmed, lie

_PERIOD_US, _QUOTA_US = 100_000, 40_000


@lie(
    "A cgroup leaves the campaign 0.4 of a processor.",
    Expected((INVALID,), r"throttl|quota"),
)
def quota(workspace):
    group = groups.made(workspace.stack, workspace.folder.name, "cpu")
    limits = {"cpu.cfs_period_us": f"{_PERIOD_US}", "cpu.cfs_quota_us": f"{_QUOTA_US}"}
    if (group / "cpu.max").exists():
        limits = {"cpu.max": f"{_QUOTA_US} {_PERIOD_US}"}
    for name, limit in limits.items():
        (group / name).write_text(limit)
    paths = workspace.images(workspace.folder / "set" / "images", number=64, pixels=400)
    answer = workspace.campaign(paths[0].parent, inside=groups.joining(group))
    counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    cpus = ", ".join(sorted({str(run["cpus"]) for run in workspace.measured()}))
    told = f"throttled in {counts['nr_throttled']} of {counts['nr_periods']} periods ({group.parent})"
    return confirmed(int(counts["nr_throttled"]) > 10, f"{told}; recorded cpus: {cpus}"), answer
