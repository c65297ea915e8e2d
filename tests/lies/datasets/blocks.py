"""Files that take less room on their disk than they are long: nothing cheats, and the tool must not say so."""

from tests.lies import instruments
from tests.lies.lie import VALID, Expected, confirmed, lie

_KNOWN = r"on the disk|unverifiable|cannot be known"


@lie(
    "The images lie on btrfs, which compresses them to a fifth.",
    Expected((VALID,), rf"compress|{_KNOWN}"),
)
def compression(workspace):
    disk = workspace.disk("disk", "-o", "compress-force=zstd", fs="btrfs", mib=128)
    paths = workspace.images(disk.point / "images", size=100_000)
    before = disk.read_bytes()
    answer = workspace.campaign(paths[0].parent)
    fetched, size = (disk.read_bytes() - before) / len(workspace.records()[0]["runs"]), instruments.total(paths)
    truth = f"the files have {size / 1e6:.1f} MB; the disk gave {fetched / 1e6:.1f} MB a run"
    return confirmed(0 < fetched < 0.6 * size, truth), answer


@lie(
    "Three quarters of each image's file are a hole.",
    Expected((VALID,), rf"holes?\b|{_KNOWN}"),
)
def holes(workspace):
    paths = workspace.images(workspace.folder / "set" / "images")
    for path in paths:
        with path.open("r+b") as file:
            file.truncate(4 * path.stat().st_size)
    answer = workspace.campaign(paths[0].parent)
    size, taken = instruments.total(paths), instruments.on_disk(paths)
    return confirmed(taken < 0.6 * size, f"files of {size / 1e6:.1f} MB take {taken / 1e6:.1f} MB on the disk"), answer
