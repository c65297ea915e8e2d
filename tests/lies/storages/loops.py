"""Loop devices, which are as fast as what holds their backing file."""

from pathlib import Path

from tests.lies import instruments
from tests.lies.lie import INVALID, REFUSED, VALID, Answer, Expected, MissingError, lie

_MEMORY = Path("/dev/shm")  # noqa: S108 - tmpfs on every Linux


@lie(
    "The images lie on ext4 on a loop device whose backing file lies in tmpfs.",
    Expected((REFUSED, INVALID), r"memory|tmpfs"),
)
def loop_in_tmpfs(workspace):
    if not _MEMORY.is_dir():
        raise MissingError(f"there is no {_MEMORY}")
    file = _MEMORY / f"{workspace.folder.name}.img"
    workspace.stack.callback(file.unlink, missing_ok=True)
    disk = workspace.disk(file=file)
    paths = workspace.images(disk.point / "images")
    before = disk.read_bytes()
    answer = workspace.campaign(paths[0].parent)
    moved = disk.read_bytes() - before
    return f"{disk.device} gave {moved / 1e6:.1f} MB, all of it from memory", answer


@lie(
    "The images lie on ext4 on a loop device whose backing file is in the page cache.",
    Expected((INVALID, VALID), r"backing"),
)
def loop_in_page_cache(workspace):
    lower = workspace.disk("lower", mib=64)
    disk = workspace.disk(file=lower.point / "disk.img", mib=24)
    paths = workspace.images(disk.point / "images")
    instruments.load([lower.point / "disk.img"])
    below, above = lower.read_bytes(), disk.read_bytes()
    answer = workspace.campaign(paths[0].parent)
    moved, seen = lower.read_bytes() - below, disk.read_bytes() - above
    if answer.status == VALID and moved < 0.9 * seen:  # valid is right only where the backing file was evicted, too
        answer = Answer(VALID, (), (), answer.passed)
    truth = f"the loop device gave {seen / 1e6:.1f} MB, the disk below it {moved / 1e6:.1f} MB"
    return truth, answer
