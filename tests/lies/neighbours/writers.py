"""A neighbour beside a run that writes."""

import statistics

from tests.lies.disturbances.disturbance import ALL, DISK
from tests.lies.disturbances.rows import QUIET, place_of
from tests.lies.lie import VALID, Expected, confirmed, lie


@lie(
    "A neighbour writes one block and flushes it, in a loop, beside a baseline that writes a file.",
    Expected((VALID,)),
    unseen="A device counts its flushes and not whose they are. A run that reads has none, and one that saves snapshots"
    " none but while it saves; one that writes and flushes all the time cannot be told from its neighbour, whose bytes"
    " are few. Only `spread` can see it, where the neighbour does not stay.",
)
def flushes_beside_writing(workspace):
    place = place_of(workspace, DISK)
    folder = place.paths[0].parent.parent
    words = ("benchmark=baseline", "benchmark.access=write", "benchmark.engine=builtin", "benchmark.file_mb=32")
    words += (f"storage.root={folder}", "checks.other_device_max=0.05")
    workspace.run(*words, *QUIET)
    alone = len(workspace.measured())
    with ALL["flushes"].around(place) as start:
        answer = workspace.run(*words, *QUIET, "runs=5")
        happened, truth = start.happened()
    rates = [run["write_mb_per_s"] for run in workspace.measured()]
    without, beside = statistics.median(rates[:alone]), statistics.median(rates[alone:])
    return confirmed(happened, f"{truth}; {without:.0f} MB/s without it, {beside:.0f} MB/s beside it"), answer
