"""Storages that are programs: FUSE servers that do not answer as a disk would."""

from tests.lies import instruments, setup
from tests.lies.lie import INVALID, REFUSED, VALID, Expected, confirmed, lie

_BYTES_ALONE = ("benchmark.preprocess=false", "cache=as_is")  # nothing is decoded, nothing claimed of the cache


def _served(workspace, mode):
    """Return the server, the files that it has, and the same files as it gives them."""
    real = workspace.images(workspace.folder / "source" / "images")
    server = setup.fuse(workspace.stack, workspace.folder, mode, workspace.folder / "source", workspace.folder / "fuse")
    return server, real, [server.point / "images" / path.name for path in real]


@lie(
    "Nothing: a FUSE file system reads the files from its disk each time.",
    Expected((VALID,), untrue=frozenset({"device_bytes"})),
)
def fuse_honest(workspace):
    server, _, paths = _served(workspace, "honest")
    answer = workspace.campaign(paths[0].parent)
    given, fetched = server.served()
    truth = f"it gave {given / 1e6:.1f} MB and read as much; the kernel counts no byte of FUSE, so nothing is proved"
    return confirmed(given == fetched, truth), answer


@lie(
    "A FUSE file system reads each file once, and gives it from its own memory from then on.",
    Expected((VALID,), untrue=frozenset({"device_bytes"})),
    unseen="The kernel counts no byte that a FUSE server gives, so `device_bytes` is unverifiable. The page cache of"
    " this machine was empty; the memory of a server, here a process of this machine, is no page cache.",
)
def fuse_memory(workspace):
    server, _, paths = _served(workspace, "memory")
    answer = workspace.campaign(paths[0].parent)
    given, fetched = server.served()
    return confirmed(given > 3 * fetched, f"it gave {given / 1e6:.1f} MB and read {fetched / 1e6:.1f} MB"), answer


@lie(
    "A FUSE file system ends some files at half their length.",
    Expected((INVALID, REFUSED), r"bytes|manifest|short"),
)
def fuse_short(workspace):
    _, real, paths = _served(workspace, "short")
    answer = workspace.campaign(paths[0].parent, *_BYTES_ALONE)
    size, given = instruments.total(real), sum(len(path.read_bytes()) for path in paths)
    return confirmed(given < size, f"the files have {size / 1e6:.2f} MB, it gives {given / 1e6:.2f} MB"), answer


@lie(
    "A FUSE file system says that each file is three times as long as it is.",
    Expected((INVALID, REFUSED), r"bytes|manifest|size"),
)
def fuse_sizes(workspace):
    _, real, paths = _served(workspace, "sizes")
    claimed, size = instruments.total(paths), instruments.total(real)
    answer = workspace.campaign(paths[0].parent, *_BYTES_ALONE)
    return confirmed(
        claimed == 3 * size, f"it claims {claimed / 1e6:.2f} MB, the files have {size / 1e6:.2f} MB"
    ), answer


@lie(
    "A FUSE file system gives the files as they were before all of them were replaced, with the same sizes.",
    Expected((VALID,)),
    unseen="Names and sizes are held against the manifest, contents are not: that would cost one more read of every"
    " byte. A storage that gives old bytes in the right number is believed.",
)
def fuse_stale(workspace):
    _, real, paths = _served(workspace, "stale")
    instruments.load(paths)
    for path in real:
        path.write_bytes(bytes(path.stat().st_size))
    answer = workspace.campaign(paths[0].parent, "cache=as_is")
    stale = sum(path.read_bytes() != given.read_bytes() for path, given in zip(real, paths, strict=True))
    return confirmed(stale == len(real), f"{stale} of {len(real)} files were not what the disk held"), answer


@lie(
    "An array has the blocks in a cache of its own: a FUSE server gives a loop device's file from its memory.",
    Expected((VALID,)),
    unseen="A disk, an array or a file server that has the blocks in its own cache answers like one that fetches them,"
    " only sooner. No page was in the memory of this machine and every byte came over the wire; where it came from"
    " behind the wire, no counter of this machine tells. Only `below_peak` can see it, where the storage's own speed"
    " was measured with that cache empty.",
)
def array_cache(workspace):
    source = workspace.folder / "source"
    source.mkdir()
    made = workspace.disk("made", file=source / "disk.img")
    workspace.images(made.point / "images")
    setup.call("umount", made.point)
    server = setup.fuse(workspace.stack, workspace.folder, "block", source, workspace.folder / "wire")
    device = setup.attach(workspace.stack, server.point / "disk.img", "--read-only")
    point = setup.mount(workspace.stack, f"/dev/{device}", workspace.folder / "array", "-o", "ro")
    before = server.served()
    answer = workspace.campaign(point / "images")
    given, fetched = (now - then for now, then in zip(server.served(), before, strict=True))
    truth = f"{given / 1e6:.1f} MB came over the wire; behind it {fetched / 1e6:.1f} MB came from a disk"
    return confirmed(given > 0 and fetched == 0, truth), answer
