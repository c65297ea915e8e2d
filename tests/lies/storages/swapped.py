"""Runs of one cell at one path, on two storages."""

from tests.lies import setup
from tests.lies.lie import REFUSED, SET_ASIDE, Expected, confirmed, lie

_OTHER = r"(another|other) (storage|device|mount|options)"


@lie(
    "Another device with the same images is mounted at the same path before the last two runs.",
    Expected((SET_ASIDE, REFUSED), _OTHER),
)
def other_device(workspace):
    numbers = []
    for runs in (4, 6):
        disk = workspace.disk(file=workspace.folder / f"{runs}.img")
        paths = workspace.images(disk.point / "images")
        numbers.append(disk.point.stat().st_dev)
        answer = workspace.campaign(paths[0].parent, f"runs={runs}")
    truth = f"device numbers {numbers[0]} and {numbers[1]}; {_runs(workspace)} runs are in one record"
    return confirmed(numbers[0] != numbers[1], truth), answer


@lie(
    "The file system is mounted with other options before the last two runs.",
    Expected((SET_ASIDE, REFUSED), _OTHER),
)
def other_options(workspace):
    disk = workspace.disk()
    paths = workspace.images(disk.point / "images")
    workspace.campaign(paths[0].parent)
    setup.call("mount", "-o", "remount,sync,noatime", disk.point)
    answer = workspace.campaign(paths[0].parent, "runs=6")
    return f"mounted with sync,noatime after the first three; {_runs(workspace)} runs are in one record", answer


def _runs(workspace):
    return max(len(record["runs"]) for record in workspace.records())
