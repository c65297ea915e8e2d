"""Preloaded libraries that do nothing where they are asked to do something."""

from tests.lies import instruments, setup
from tests.lies.lie import INVALID, Expected, confirmed, lie


def _preloaded(workspace, name):
    """Return the environment that loads a library, and the file that grows by a byte with each call to it."""
    calls = workspace.folder / "calls"
    calls.write_bytes(b"")
    return {"LD_PRELOAD": setup.library(workspace.folder, name), "LIES_CALLS": str(calls)}, calls


@lie(
    "A preloaded library makes posix_fadvise do nothing, so that no page is dropped.",
    Expected((INVALID,), r"^cold", untrue=frozenset({"cold", "device_bytes"})),
)
def fadvise(workspace):
    environment, calls = _preloaded(workspace, "fadvise")
    paths = workspace.images(workspace.folder / "set" / "images")
    answer = workspace.campaign(paths[0].parent, **environment)
    count, share = calls.stat().st_size, instruments.resident(paths)
    return confirmed(count, f"{count} calls did nothing; at the end {share:.0%} of the pages were in memory"), answer


@lie(
    "A preloaded library makes fsync and the like do nothing while snapshots are saved.",
    Expected((INVALID,), r"^checkpoints_durable", untrue=frozenset({"checkpoints_durable"})),
)
def fsync_checkpoints(workspace):
    environment, calls = _preloaded(workspace, "fsync")
    disk = workspace.disk(mib=256)
    paths = workspace.images(disk.point / "images")
    words = ("benchmark=alexnet", "benchmark.width=0.02", "accelerator=cpu", "checkpoint=local", "checkpoint.every=3")
    answer = workspace.campaign(paths[0].parent, *words, f"checkpoint.root={disk.point}", **environment)
    count = calls.stat().st_size
    return confirmed(count, f"{count} calls did nothing"), answer


@lie(
    "A preloaded library makes fsync and the like do nothing, and refuses O_DIRECT, while a file is written.",
    Expected((INVALID,), r"^reached_device", untrue=frozenset({"reached_device"})),
)
def fsync_baseline(workspace):
    environment, calls = _preloaded(workspace, "fsync")
    disk = workspace.disk(mib=256)
    words = ("benchmark=baseline", "benchmark.access=write", "benchmark.engine=builtin", "benchmark.file_mb=30")
    answer = workspace.run(*words, f"storage.root={disk.point}", **environment)
    count = calls.stat().st_size
    return confirmed(count, f"{count} calls did nothing"), answer
