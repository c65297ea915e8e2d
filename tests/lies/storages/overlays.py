"""Overlay file systems, as every container has: cachestat(2) counts no page of their files, ever."""

import mmap

from tests.lies import instruments, setup
from tests.lies.lie import INVALID, VALID, Expected, confirmed, lie


def _overlay(workspace):
    """Return the files of the lower layer, and their folder on the overlay."""
    paths = workspace.images(workspace.folder / "lower" / "images")
    merged = setup.overlay(workspace.stack, workspace.folder / "lower", workspace.folder / "overlay")
    return paths, merged / "images"


@lie(
    "The images lie on an overlay, and a neighbour has them mapped, so that their pages cannot be dropped.",
    Expected((INVALID,), r"^cold", untrue=frozenset({"cold"})),
)
def overlay_in_memory(workspace):
    paths, folder = _overlay(workspace)
    for path in paths:
        with path.open("rb") as file:
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        workspace.stack.callback(held.close)
        held[:: mmap.PAGESIZE]  # touches every page
    answer = workspace.campaign(folder)
    share = instruments.resident(paths)
    return confirmed(share == 1, f"{share:.0%} of the pages stayed in memory, by mincore"), answer


@lie(
    "The images lie on an overlay, and the campaign asks for cache=warm: nothing cheats.",
    Expected((VALID,)),
)
def overlay_warm(workspace):
    paths, folder = _overlay(workspace)
    answer = workspace.campaign(folder, "cache=warm")
    if answer.status == INVALID:  # the process fetched a page of a library: the same command measures what is missing
        answer = workspace.campaign(folder, "cache=warm")
    share = instruments.resident(paths)
    return confirmed(share == 1, f"{share:.0%} of the pages were in memory, by mincore"), answer
