"""Files that take less room on their disk than they are long, or share it: nothing cheats, which must not be denied."""

from tests.lies import instruments, setup
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


@lie(
    "Each image shares its blocks with another file, which is in memory (reflinks).",
    Expected((VALID,)),
)
def reflinks(workspace):
    disk = workspace.disk(fs="btrfs", mib=128)
    originals = workspace.images(disk.point / "originals")
    copies = disk.point / "set" / "images"
    copies.parent.mkdir()
    setup.call("cp", "-r", "--reflink=always", originals[0].parent, copies)
    setup.call("sync", "-f", copies)
    instruments.load(originals)
    before = disk.read_bytes()
    answer = workspace.campaign(copies)
    fetched, size = (disk.read_bytes() - before) / len(workspace.records()[0]["runs"]), instruments.total(originals)
    kept = instruments.resident(originals)
    gave = f"the disk gave {fetched / 1e6:.1f} MB a run for {size / 1e6:.1f} MB"
    return confirmed(kept > 0.9 and fetched >= size, f"{kept:.0%} of the other files stayed in memory; {gave}"), answer
