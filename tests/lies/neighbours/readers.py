"""Neighbours that bring files into memory after the tool has proved that they are not there."""

from tests.lies.lie import INVALID, Expected, confirmed, lie
from tests.lies.neighbours.racer import Racer

_PAGE_BYTES, _PAGES = 4096, 3
_SIZE = 8_400  # bytes; its three pages are 1.46 times as many, which hides that a fifth of them was in memory


@lie(
    "A neighbour reads a fifth of the images after their pages were counted and before the run.",
    Expected((INVALID,), r"^device_bytes", untrue=frozenset({"device_bytes"})),
)
def racer_before(workspace):
    paths = workspace.images(workspace.folder / "set" / "images", number=100, size=_SIZE, pixels=32)
    with Racer(paths, paths[:20], during=False) as racer:
        answer = workspace.campaign(paths[0].parent, "batch_size=32")
    return _truth(workspace, racer, len(paths) * _PAGES * _PAGE_BYTES, "pages"), answer


@lie(
    "A neighbour reads all images, the last one first, as soon as the run reads its first.",
    Expected((INVALID,), r"^device_bytes", untrue=frozenset({"device_bytes"})),
)
def racer_during(workspace):
    paths = workspace.images(workspace.folder / "set" / "images", number=200, pixels=200)
    with Racer(paths, paths[::-1], during=True) as racer:
        answer = workspace.campaign(paths[0].parent, "threads=1")
    return _truth(workspace, racer, sum(path.stat().st_size for path in paths), "bytes"), answer


def _truth(workspace, racer, whole, of_what):
    """Return how often it read, and what was left for the runs: the kernel's count of what each run fetched."""
    shares = [run["device_bytes"] / whole for run in workspace.measured()]
    truth = f"it read {racer.times} times; the runs fetched {min(shares):.0%} to {max(shares):.0%} of the {of_what}"
    return confirmed(racer.times > len(shares) and max(shares) < 0.9, truth)
